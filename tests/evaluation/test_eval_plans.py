"""Our own requests are well-formed, plans are judged as a plain reader would, and one command does it all."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from jarvis_agent.core.references import refs_in
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import MEDIA
from jarvis_agent.core.types import Task
from jarvis_agent.evaluation.graphs import PlanGraph
from jarvis_agent.evaluation.paper import judge, judge_all, reports_on, turned
from jarvis_agent.evaluation.plan_equality import fits, same_plan
from jarvis_agent.evaluation.predictions import Prediction, read_predictions
from jarvis_agent.evaluation.requests import OwnRequest, data_file, read_requests
from jarvis_agent.interfaces.cli.app import app
from jarvis_agent.planning.plan import Plan
from jarvis_agent.testing import ScriptedLLM

pytest.importorskip("numpy")

REQUESTS = read_requests()
PLANS = [(asked, plan) for asked in REQUESTS for plan in asked.plans]


def task(number: int, name: str, *dep: int, **args: Any) -> Task:
    return Task(task=name, id=number, dep=list(dep) or [-1], args=args)


# The set


def test_there_are_enough_requests_and_their_ids_are_unique() -> None:
    assert len(REQUESTS) >= 150
    assert len({asked.id for asked in REQUESTS}) == len(REQUESTS)
    assert len({asked.request for asked in REQUESTS}) == len(REQUESTS)


def test_every_task_type_is_asked_for() -> None:
    assert {task.task for asked in REQUESTS for task in asked.plan} == set(TASKS)


def test_most_requests_are_single_and_a_quarter_is_chinese() -> None:
    kinds = Counter(asked.kind for asked in REQUESTS)
    assert 0.5 < kinds["single"] / len(REQUESTS) < 0.65
    assert min(kinds[kind] for kind in ("sequential", "graph", "empty")) >= 20
    assert sum(asked.language == "zh" for asked in REQUESTS) / len(REQUESTS) == pytest.approx(0.25, abs=0.05)


def test_the_halves_are_alike_in_kinds_and_languages() -> None:
    dev, test = (Counter((a.kind, a.language) for a in read_requests(half)) for half in ("dev", "test"))
    assert dev.keys() == test.keys()
    shares = ({group: half[group] / half.total() for group in dev} for half in (dev, test))
    assert next(shares) == pytest.approx(next(shares), abs=0.03)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_language_is_that_of_the_words(language: str) -> None:
    has_han = [bool(re.search("[\u4e00-\u9fff]", a.request)) for a in REQUESTS if a.language == language]
    assert set(has_han) == {language == "zh"}


def test_every_plan_is_valid_as_it_stands() -> None:
    for asked, plan in PLANS:
        read = Plan.parse(Plan(tasks=plan).to_json())
        assert (asked.id, read.tasks, read.notes) == (asked.id, plan, [])


def test_every_task_has_what_it_needs_and_only_files_that_are_there() -> None:
    for asked, plan in PLANS:
        there = {*asked.files, *(file for turn in asked.turns for file in turn.files)}
        for each in plan:
            spec = TASKS[each.task]
            assert set(spec.required) <= each.args.keys() <= {arg.name for arg in spec.inputs}, asked.id
            media = [each.args.get(arg.name, []) for arg in spec.inputs if arg.kind in MEDIA]
            files = {name for value in media for name in ([value] if isinstance(value, str) else value)}
            assert {name for name in files if not refs_in(name)} <= there, asked.id


def test_a_kind_is_that_of_the_plan() -> None:
    for asked in REQUESTS:
        needs = [each.deps for each in asked.plan]
        is_chain = len(needs) > 1 and needs == [(), *((place,) for place in range(len(needs) - 1))]
        kind = "single" if len(needs) == 1 else "sequential" if is_chain else "graph" if needs else "empty"
        assert (asked.id, asked.kind) == (asked.id, kind)


def test_a_planner_gets_the_files_and_turns_of_a_request_by_their_names() -> None:
    for asked in REQUESTS:
        assert [file.name for file in asked.brief.files] == asked.files
        told = [[file.name for file in turn.resources] for turn in asked.brief.turns]
        assert told == [turn.files for turn in asked.turns]


def test_its_own_plan_is_exact_for_every_request() -> None:
    assert not [asked.id for asked, plan in PLANS if not judge(asked, plan).exact]


def test_no_request_is_a_phrase_that_the_offline_planner_holds() -> None:
    bank = json.loads(
        (data_file("").parents[1] / "planning/offline/data/phrases.json").read_text(encoding="utf-8")
    )
    phrases = {phrase.casefold() for entry in bank.values() for phrase in entry["phrases"]}
    assert not phrases & {asked.request.casefold().rstrip("?.!") for asked in REQUESTS}


# What counts as the same

SPEAK = [
    task(0, "image-to-text", image="a.jpg"),
    task(1, "text-to-speech", 0, text="<resource>-0"),
]


def test_ids_and_the_order_of_tasks_do_not_matter() -> None:
    gold = [*SPEAK, task(2, "object-detection", image="a.jpg")]
    said = [
        task(7, "object-detection", image="a.jpg"),
        task(9, "image-to-text", image="a.jpg"),
        task(3, "text-to-speech", 9, text="<resource>-9"),
    ]
    assert same_plan(gold, said)


def test_of_two_like_tasks_the_right_one_is_linked() -> None:
    two = [task(0, "image-to-text", image="a.jpg"), task(1, "image-to-text", image="b.jpg")]
    gold = [*two, task(2, "text-to-speech", 1, text="<resource>-1")]
    swapped = [two[1].model_copy(update={"id": 0}), two[0].model_copy(update={"id": 1})]
    assert same_plan(gold, [*swapped, task(2, "text-to-speech", 0, text="<resource>-0")])
    assert not same_plan(gold, [*swapped, task(2, "text-to-speech", 1, text="<resource>-1")])


@pytest.mark.parametrize(
    "said",
    [
        [],
        SPEAK[:1],
        [*SPEAK, SPEAK[1].model_copy(update={"id": 2})],
        [SPEAK[0], task(1, "text-to-speech", text="a.jpg")],
        [task(0, "image-to-text", image="b.jpg"), SPEAK[1]],
    ],
    ids=["nothing", "a task less", "a task more", "no link", "another file"],
)
def test_another_plan_is_not_the_same(said: list[Task]) -> None:
    assert not same_plan(SPEAK, said)


def test_waiting_without_need_is_another_plan() -> None:
    gold = [task(0, "image-to-text", image="a.jpg"), task(1, "object-detection", image="a.jpg")]
    assert not same_plan(gold, [gold[0], gold[1].model_copy(update={"dep": [0]})])


def test_arguments_that_the_gold_plan_does_not_have_are_free() -> None:
    gold = [task(0, "translation", text="Hi", tgt_lang="French")]
    assert same_plan(gold, [task(0, "translation", text="Hi", src_lang="en", tgt_lang="fr")])


@pytest.mark.parametrize(
    ("name", "argument", "gold", "said", "is_same"),
    [
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
        (
            "text-to-image",
            "text",
            "a knight",
            "make the pose of b.jpg and then draw me a knight like it",
            False,
        ),
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
    ],
)
def test_an_argument_fits(name: str, argument: str, gold: Any, said: Any, is_same: bool) -> None:
    assert fits(name, argument, gold, said) is is_same


# The figures, by hand


def asked_for(number: int, *plans: list[Task], kind: str = "single", language: str = "en") -> OwnRequest:
    return OwnRequest.model_validate(
        {
            "id": str(number),
            "half": "dev",
            "kind": kind,
            "language": language,
            "request": f"request {number}",
            "plan": plans[0],
            "alternatives": list(plans[1:]),
        }
    )


SEE, DETECT = task(0, "image-to-text", image="a.jpg"), task(0, "object-detection", image="a.jpg")


def test_the_nearest_of_several_right_plans_counts() -> None:
    asked = asked_for(1, [SEE], [DETECT])
    assert judge(asked, [DETECT]).exact
    assert judge(asked, [DETECT]).graph.counts["node"].f1 == 1.0
    assert not judge(asked, []).exact


def test_figures_agree_with_hand_computed_ones() -> None:
    judged = [
        judge(asked_for(1, [SEE]), [SEE]),
        judge(asked_for(2, [SEE]), [task(0, "image-to-text", image="b.jpg")]),
        judge(asked_for(3, SPEAK, kind="sequential", language="zh"), [SEE]),
        judge(asked_for(4, [], kind="empty"), [DETECT]),
    ]
    reports = {report.name: report for report in reports_on(judged, {})}
    assert list(reports) == ["all", "single", "sequential", "empty", "English", "Chinese"]
    figures = {figure.name: figure.value for figure in reports["all"].figures}
    # Tasks: 3 right of 4 predicted and 4 gold ones. Links: none of 1. Likeness: 1, 1, 2/3, 0.
    assert figures == {
        "exact plan": 0.25,
        "accuracy": 0.5,
        "precision": 0.75,
        "recall": 0.75,
        "F1": 0.75,
        "edit distance": pytest.approx((1 / 3 + 1) / 4, abs=1e-6),
        "graph F1": pytest.approx(2 * 3 / (4 + 5), abs=1e-6),
    }
    assert reports["single"].requests == 2
    assert reports["all"].unanswered == 0


def test_an_empty_plan_is_right_where_nothing_can_be_done_and_wrong_elsewhere() -> None:
    right, wrong = judge(asked_for(1, [], kind="empty"), []), judge(asked_for(2, [SEE]), [])
    assert (right.exact, wrong.exact) == (True, False)
    (everything, *_) = reports_on([right, wrong], {})
    assert everything.unanswered == 1
    assert {figure.name: figure.value for figure in everything.figures}["recall"] == 0.0


def test_a_failure_is_no_empty_plan_and_right_nowhere() -> None:
    asked = [asked_for(1, [], kind="empty"), asked_for(2, [], kind="empty")]
    failed = Prediction(graph=PlanGraph(id="1"), tasks=(), error="it is down")
    (report, *_) = reports_on(judge_all(asked, {"1": failed}), {"1": failed})
    figures = {figure.name: figure.value for figure in report.figures}
    assert (figures["exact plan"], figures["accuracy"], figures["edit distance"]) == (0.0, 0.0, 1.0)
    assert (report.unanswered, report.failed, report.reason) == (2, 1, "it is down")


def test_nothing_planned_has_no_precision_where_tasks_were_due() -> None:
    (report, *_) = reports_on([judge(asked_for(1, [SEE]), [])], {})
    assert {figure.name: figure.value for figure in report.figures}["precision"] == 0.0


def test_a_tool_that_is_invented_costs_precision() -> None:
    (report, *_) = reports_on([judge(asked_for(1, [SEE]), [SEE, task(1, "teleport", image="a.jpg")])], {})
    assert {figure.name: figure.value for figure in report.figures}["precision"] == 0.5


def test_groups_become_the_bars_of_a_chart() -> None:
    reports = reports_on([judge(asked_for(1, [SEE]), [SEE])], {})
    (exact,) = turned(reports, ["exact plan"])
    assert (exact.name, [figure.name for figure in exact.figures]) == (
        "exact plan",
        ["all", "single", "English"],
    )


# The command


def called(*words: object) -> Result:
    return CliRunner().invoke(app, ["eval", "plans", "--model", "none", *map(str, words)])


def test_one_command_plans_scores_and_goes_on_where_it_was(tmp_path: Path) -> None:
    out = tmp_path / "plans.jsonl"
    first = called("--half", "dev", "--limit", 2, "--predictions", out, "--json")
    assert first.exit_code == 0, first.output
    assert json.loads(first.stdout)["reports"][0]["requests"] == 2
    lines = out.read_text().splitlines()
    again = called("--half", "dev", "--limit", 3, "--predictions", out, "--json")
    assert json.loads(again.stdout)["reports"][0]["requests"] == 3
    assert out.read_text().splitlines()[:2] == lines
    assert [task.task for one in read_predictions(out).values() for task in one.tasks or ()]


def test_a_language_model_plans_and_its_calls_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = read_requests("dev")[0]
    model = ScriptedLLM({"plan": Plan(tasks=asked.plan).to_json()})
    monkeypatch.setattr("jarvis_agent.llm.client.resolve_model", lambda name, settings: model)
    words = ["eval", "plans", "--model", "scripted", "--half", "dev", "--limit", "1", "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)["reports"][0]
    assert (report["figures"][0]["value"], report["usage"]["calls"]) == (1.0, 1)


def test_failures_show_what_was_expected_and_what_came(tmp_path: Path) -> None:
    out = tmp_path / "plans.jsonl"
    asked = read_requests("dev")[0]
    empty = {"id": asked.id, "task_nodes": [], "plan": [], "seconds": 0.1, "usage": {}, "error": None}
    empty["planner"] = "no model"
    out.write_text(json.dumps(empty) + "\n")
    done = called("--half", "dev", "--limit", 1, "--predictions", out, "--failures")
    assert done.exit_code == 0, done.output
    assert asked.id in done.stdout
    assert re.search(rf"expected +0 {asked.plan[0].task}", done.stdout)
    assert re.search(r"got +no task", done.stdout)


def test_the_figures_by_group_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    chart = tmp_path / "plans.svg"
    done = called("--limit", 2, "--chart", chart)
    assert done.exit_code == 0, done.output
    assert b"exact plan" in chart.read_bytes()


# Requests of one's own

MINE = {
    "id": "a1",
    "kind": "single",
    "request": "Describe a.jpg",
    "files": ["a.jpg"],
    "plan": [{"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": "a.jpg"}}],
}


def test_a_planner_is_scored_on_requests_of_ones_own(tmp_path: Path) -> None:
    mine = tmp_path / "mine.jsonl"
    mine.write_text(json.dumps(MINE) + "\n" + json.dumps({**MINE, "id": "a2", "half": "test"}))
    done = called("--requests", mine, "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)["reports"][0]
    assert (report["requests"], report["figures"][0]["value"]) == (2, 1.0)
    half = called("--requests", mine, "--half", "test", "--json")
    assert json.loads(half.stdout)["reports"][0]["requests"] == 1


@pytest.mark.parametrize(
    ("records", "told"),
    [
        ([{**MINE, "kind": "odd"}], "the request a1: kind: "),
        ([{**MINE, "plan": [{"task": "teleport", "id": 0}]}], 'there is no task type "teleport"'),
        (
            [{**MINE, "plan": [{"task": "image-to-text", "id": 0, "args": {"image": "<resource>-3"}}]}],
            "task 0 needs a task that does not stand before it",
        ),
        ([MINE, MINE], "two requests with the id a1"),
        ([], "holds no requests"),
    ],
)
def test_requests_that_can_not_be_used_are_named(
    tmp_path: Path, records: list[dict[str, Any]], told: str
) -> None:
    mine = tmp_path / "mine.jsonl"
    mine.write_text("\n".join(map(json.dumps, records)))
    done = called("--requests", mine)
    assert done.exit_code == 2
    assert told in done.stderr
    assert "mine.jsonl" in done.stderr
