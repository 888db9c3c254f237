"""Our own requests are well-formed, and plans are judged by what a plain reader would accept."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.core.errors import InputError
from jarvis_agent.core.references import refs_in
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import MEDIA
from jarvis_agent.core.types import Task
from jarvis_agent.evaluation.predict import Prediction
from jarvis_agent.evaluation.report import EvaluationReport
from jarvis_agent.evaluation.requests import (
    OwnRequest,
    judge,
    read_requests,
    same_argument,
    same_plan,
    score_requests,
)
from jarvis_agent.planning.plan import Plan

REQUESTS = read_requests()
PLANS = [(asked, plan) for asked in REQUESTS for plan in asked.plans]


def task(number: int, name: str, *dep: int, **args: Any) -> Task:
    return Task(task=name, id=number, dep=list(dep) or [-1], args=args)


def test_the_set_is_large_and_balanced() -> None:
    assert len(REQUESTS) >= 150
    assert (
        len({asked.id for asked in REQUESTS}) == len({asked.request for asked in REQUESTS}) == len(REQUESTS)
    )
    kinds = Counter(asked.kind for asked in REQUESTS)
    assert 0.5 < kinds["single"] / len(REQUESTS) < 0.65
    assert min(kinds[kind] for kind in ("sequential", "graph", "empty")) >= 20
    assert sum(asked.language == "zh" for asked in REQUESTS) / len(REQUESTS) == pytest.approx(0.25, abs=0.05)
    dev, test = (Counter((a.kind, a.language) for a in read_requests(half)) for half in ("dev", "test"))
    shares = ({group: half[group] / half.total() for group in dev | test} for half in (dev, test))
    assert next(shares) == pytest.approx(next(shares), abs=0.03)


def test_every_request_agrees_with_its_plans_and_inputs() -> None:
    for asked, plan in PLANS:
        read = Plan.parse(Plan(tasks=plan).to_json())
        assert (asked.id, read.tasks, read.notes) == (asked.id, plan, [])
        present = {*asked.files, *(file for turn in asked.turns for file in turn.files)}
        for each in plan:
            spec = TASKS[each.task]
            assert set(spec.required) <= each.args.keys() <= {arg.name for arg in spec.inputs}, asked.id
            media = [each.args.get(arg.name, []) for arg in spec.inputs if arg.kind in MEDIA]
            files = {name for value in media for name in ([value] if isinstance(value, str) else value)}
            assert {name for name in files if not refs_in(name)} <= present, asked.id
        assert judge(asked, plan).exact, asked.id
    for asked in REQUESTS:
        needs = [each.deps for each in asked.plan]
        is_chain = len(needs) > 1 and needs == [(), *((place,) for place in range(len(needs) - 1))]
        kind = "single" if len(needs) == 1 else "sequential" if is_chain else "graph" if needs else "empty"
        assert (asked.id, asked.kind) == (asked.id, kind)
        assert [file.name for file in asked.inputs["files"]] == asked.files
        names = [[file.name for file in turn.resources] for turn in asked.inputs["chat_history"]]
        assert names == [turn.files for turn in asked.turns]


SEE, DETECT = task(0, "image-to-text", image="a.jpg"), task(0, "object-detection", image="a.jpg")
SPEAK = [SEE, task(1, "text-to-speech", 0, text="<resource>-0")]


def test_plans_are_the_same_whatever_their_ids_and_order() -> None:
    other = task(0, "image-to-text", image="b.jpg")
    two = [SEE, other.model_copy(update={"id": 1})]
    swapped = [other, SEE.model_copy(update={"id": 1})]
    detect = DETECT.model_copy(update={"id": 1})
    reordered = [
        task(7, "object-detection", image="a.jpg"),
        task(9, "image-to-text", image="a.jpg"),
        task(3, "text-to-speech", 9, text="<resource>-9"),
    ]

    def speak(source: int) -> Task:
        return task(2, "text-to-speech", source, text=f"<resource>-{source}")

    french = [task(0, "translation", text="Hi", tgt_lang="French")]
    cases = {
        "reordered": ([*SPEAK, task(2, "object-detection", image="a.jpg")], reordered, True),
        "the right one of two is linked": ([*two, speak(1)], [*swapped, speak(0)], True),
        "the wrong one of two is linked": ([*two, speak(1)], [*swapped, speak(1)], False),
        "more arguments": (french, [task(0, "translation", text="Hi", src_lang="en", tgt_lang="fr")], True),
        "nothing": (SPEAK, [], False),
        "a task less": (SPEAK, SPEAK[:1], False),
        "a task more": (SPEAK, [*SPEAK, SPEAK[1].model_copy(update={"id": 2})], False),
        "no link": (SPEAK, [SEE, task(1, "text-to-speech", text="a.jpg")], False),
        "another file": (SPEAK, [other, SPEAK[1]], False),
        "a needless dependency": ([SEE, detect], [SEE, detect.model_copy(update={"dep": [0]})], False),
    }
    assert not [name for name, (gold, plan, same) in cases.items() if same_plan(gold, plan) is not same]


ARGUMENTS: list[tuple[str, str, Any, Any, bool]] = [
    ("translation", "tgt_lang", "French", "fr", True),
    ("translation", "tgt_lang", "French", "de", False),
    ("translation", "text", "Good morning!", "good morning", True),
    ("translation", "text", "Good morning", "Good morning into French", False),
    ("translation", "text", "Good morning", None, False),
    ("translation", "text", "notes.txt", "notes.txt", True),
    ("translation", "text", "notes.txt", "other.txt", False),
    ("text-to-image", "text", "two foxes", "a picture of two foxes", True),
    ("text-to-image", "text", "two foxes", "foxes, two of them", False),
    ("text-to-image", "text", "a tea room", "Japanese tea room", True),
    ("text-to-image", "text", "a knight", "make the pose of b.jpg, then draw me a knight like it", False),
    ("text-to-image", "text", "戴眼镜的熊猫", "一只戴眼镜的熊猫", True),
    ("visual-question-answering", "text", "what colour", "which colour is it?", False),
    ("visual-question-answering", "text", "what colour is it", "Tell me, what colour is it there?", True),
    ("zero-shot-object-detection", "labels", ["dog", "a cat"], ["cats", "dog"], True),
    ("zero-shot-object-detection", "labels", ["dog", "cat"], ["dog"], False),
    ("zero-shot-object-detection", "labels", ["dog"], "dog", True),
    ("crop-image", "box", [1, 2, 30, 40], "1, 2, 30, 40", True),
    ("crop-image", "box", [1, 2, 30, 40], [1, 2, 30, 4], False),
    ("resize-image", "width", 640, "640", True),
    ("resize-image", "width", 640, 64, False),
    ("image-to-text", "image", "a.jpg", "./a.jpg", True),
    ("image-to-text", "image", "a.jpg", "b/a.jpg", False),
    ("visual-document-retrieval", "image", ["a.png", "b.png"], ["b.png", "a.png"], True),
    ("visual-document-retrieval", "image", ["a.png", "b.png"], ["a.png"], False),
    ("sentence-similarity", "sentences", ["<resource>-1"], "<resource>-1", True),
    ("text-to-speech", "text", "<resource>-1", "Say <resource>-1", False),
    ("text-generation", "text", "<resource>-0", "Describe: <resource>-0", True),
    ("text-generation", "text", "<resource>-0 or <resource>-1?", "Compare <resource>-1, <resource>-0", True),
    ("text-generation", "text", "<resource>-0", "Describe: <resource>-1", False),
    ("text-generation", "text", "<resource>-0", "Compare <resource>-0 and <resource>-1", False),
    ("text-to-image", "text", "海边的灯塔", "请画一张海边的灯塔的水彩画给我", True),
    (
        "text-to-image",
        "text",
        "海边的灯塔",
        "请你先看一看这张照片里有什么东西，再给我画一张海边的灯塔的画",
        False,
    ),
    ("text-to-image", "text", "海边的灯塔", "a lighthouse by the sea", True),
    ("text-to-audio", "text", "rain on a roof", "屋顶上的雨声", True),
    ("text-to-image", "text", "海边的灯塔", "…", False),
    ("text-to-image", "text", "海边的灯塔", "山上的寺庙", False),
    ("text-to-speech", "text", "你好", "hello", False),
    ("visual-question-answering", "text", "桌上有几个杯子", "How many cups are there?", False),
]


def test_arguments_are_compared_by_their_kind() -> None:
    assert not [row for row in ARGUMENTS if same_argument(*row[:4]) is not row[4]]


def asked_for(number: int, plan: list[Task], *others: list[Task], **fields: str) -> OwnRequest:
    about = {"id": str(number), "kind": "single", "request": f"request {number}", **fields}
    return OwnRequest.model_validate({**about, "plan": plan, "alternatives": others})


def reports_on(*cases: tuple[OwnRequest, list[Task], str | None]) -> dict[str, EvaluationReport]:
    """The reports by group, on requests with their predicted plan or error."""
    made = {asked.id: Prediction(id=asked.id, plan=tuple(plan), error=error) for asked, plan, error in cases}
    reports, _ = score_requests([asked for asked, _, _ in cases], made)
    return {report.name: report for report in reports}


def figures(report: EvaluationReport) -> dict[str, float | None]:
    return {figure.name: figure.value for figure in report.figures}


def test_figures_agree_with_hand_computed_ones() -> None:
    reports = reports_on(
        (asked_for(1, [SEE]), [SEE], None),
        (asked_for(2, [SEE]), [task(0, "image-to-text", image="b.jpg")], None),
        (asked_for(3, SPEAK, kind="sequential", language="zh"), [SEE], None),
        (asked_for(4, [], kind="empty"), [DETECT], None),
    )
    assert list(reports) == ["all", "single", "sequential", "empty", "English", "Chinese"]
    # Tasks: 3 right of 4 predicted and 4 gold ones. Links: none of 1.
    assert figures(reports["all"]) == {
        "exact plan": 0.25,
        "F1": 0.75,
        "graph F1": pytest.approx(2 * 3 / (4 + 5), abs=1e-6),
    }
    assert (reports["single"].requests, reports["all"].unanswered) == (2, 0)
    either = asked_for(1, [SEE], [DETECT])  # the closest of several correct plans counts
    assert judge(either, [DETECT]).exact
    assert judge(either, [DETECT]).graph.nodes == (2, 2)
    assert not judge(either, []).exact


def test_empty_plans_failures_and_unknown_tasks() -> None:
    empty = asked_for(1, [], kind="empty")
    both = reports_on((empty, [], None), (asked_for(2, [SEE]), [], None))["all"]
    assert (both.unanswered, figures(both)["exact plan"], figures(both)["F1"]) == (1, 0.5, 0.0)
    failed = reports_on((empty, [], "it is down"))["all"]
    assert figures(failed) == {"exact plan": 0.0, "F1": None, "graph F1": None}
    assert (failed.unanswered, failed.failed, failed.reason) == (1, 1, "it is down")
    unknown = reports_on((asked_for(1, [SEE]), [SEE, task(1, "teleport", image="a.jpg")], None))["all"]
    assert figures(unknown)["F1"] == pytest.approx(2 / 3, abs=1e-6)


MINE = {
    "id": "a1",
    "kind": "single",
    "request": "Describe a.jpg",
    "files": ["a.jpg"],
    "plan": [{"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": "a.jpg"}}],
}


def test_requests_can_come_from_another_file_and_invalid_ones_are_reported(tmp_path: Path) -> None:
    mine = tmp_path / "mine.jsonl"
    mine.write_text(json.dumps(MINE) + "\n" + json.dumps({**MINE, "id": "a2", "half": "test"}))
    assert [one.id for one in read_requests(path=mine)] == ["a1", "a2"]
    assert [one.id for one in read_requests("test", mine)] == ["a2"]
    early = {"task": "image-to-text", "id": 0, "args": {"image": "<resource>-3"}}
    rows: list[tuple[list[dict[str, Any]], str]] = [
        ([{**MINE, "kind": "odd"}], "the request a1: kind: "),
        ([{**MINE, "plan": [{"task": "teleport", "id": 0}]}], 'there is no task type "teleport"'),
        ([{**MINE, "plan": [early]}], "task 0 needs a task that does not precede it"),
        ([MINE, MINE], "two requests with the id a1"),
        ([], "holds no requests"),
    ]
    for records, message in rows:
        mine.write_text("\n".join(map(json.dumps, records)))
        with pytest.raises(InputError, match=message) as caught:
            read_requests(path=mine)
        assert "mine.jsonl" in str(caught.value)
