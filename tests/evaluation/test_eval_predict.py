"""Requests are planned, written down, and gone on from; no failure is silent, and none is for good."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.core.errors import ConfigError, InputError, JarvisError, LLMError, MissingExtraError
from jarvis_agent.evaluation.predict import named_files, predict
from jarvis_agent.evaluation.predictions import Prediction, held_in, line_of, read_predictions
from jarvis_agent.planning.plan import Plan
from jarvis_agent.core.request import RunContext
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Task, Usage

REQUESTS = {str(n): f"Translate 'word {n}'" for n in range(3)}
PLAN = {"id": "1", "task_nodes": [{"task": "translation", "arguments": ["Hi"]}], "planner": "mine"}


class Planned:
    """A planner that writes one plan for everything, or fails."""

    def __init__(self, failing: str = "", error: JarvisError | None = None) -> None:
        self.failing = failing
        self.error = error or LLMError("it is down")
        self.asked: list[str] = []

    async def plan(self, brief: RunContext, on_task: Callable[[Task], None]) -> Plan:
        self.asked.append(brief.request)
        if self.failing and self.failing in brief.request:
            raise self.error
        return Plan(tasks=[Task(task="translation", id=0, args={"text": brief.request.split("'")[1]})])


def predicted(planner: Planned, out: Path | None, **options: Any) -> dict[str, Prediction]:
    options = {"name": "mine", "concurrency": 2, **options}

    async def collect() -> dict[str, Prediction]:
        return {one.id: one async for one in predict(REQUESTS, TASKS, planner, out=out, **options)}

    return asyncio.run(collect())


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


def test_predictions_are_written_as_taskbench_writes_them(out: Path) -> None:
    found = predicted(Planned(), out)
    assert set(found) == set(REQUESTS)
    written = {record["id"]: record for record in map(json.loads, out.read_text().splitlines())}
    assert written["2"]["task_nodes"] == written["2"]["result"]["task_nodes"]
    assert written["2"]["task_nodes"] == [{"task": "translation", "arguments": ["word 2"]}]
    assert written["2"]["user_request"] == REQUESTS["2"]


def test_what_was_planned_already_is_not_planned_again(out: Path) -> None:
    predicted(Planned(), out)
    lines = out.read_text().splitlines(keepends=True)
    out.write_text(lines[0] + lines[1][:20])  # broken off while it was written
    again = Planned()
    found = predicted(again, out)
    assert len(again.asked) == 2
    assert set(found) == set(read_predictions(out)) == set(REQUESTS)


def test_a_line_that_was_broken_off_within_a_character_is_planned_again(out: Path) -> None:
    predicted(Planned(), out)
    first, second, third = out.read_bytes().splitlines(keepends=True)
    out.write_bytes(first + second + third[:20] + "译".encode()[:2])
    again = Planned()
    assert set(predicted(again, out)) == set(read_predictions(out)) == set(REQUESTS)
    assert len(again.asked) == 1


def test_time_and_tokens_of_what_was_planned_before_are_read_back(out: Path) -> None:
    before = Prediction(
        graph=predicted(Planned(), None)["1"].graph,
        seconds=7.5,
        usage=Usage(calls=2, input_tokens=300),
        planner="mine",
    )
    out.write_text(line_of(before, REQUESTS["1"]))
    found = predicted(Planned(), out)
    assert (found["1"].seconds, found["1"].usage) == (7.5, before.usage)


def test_a_planner_that_fails_gives_an_empty_plan_and_the_reason(out: Path) -> None:
    found = predicted(Planned(failing="word 1"), out)
    assert found["1"].graph.nodes == ()
    assert "it is down" in str(found["1"].error)
    assert found["0"].error is None


def test_a_request_at_which_the_planner_failed_is_planned_again(out: Path) -> None:
    predicted(Planned(failing="word 1"), out)
    again = Planned()
    found = predicted(again, out)
    assert again.asked == [REQUESTS["1"]]
    assert (found["1"].error, len(found["1"].graph.nodes)) == (None, 1)
    assert read_predictions(out)["1"] == found["1"].model_copy(
        update={"seconds": pytest.approx(found["1"].seconds, abs=1e-4)}
    )


@pytest.mark.parametrize(
    "error", [ConfigError("no key"), MissingExtraError("it", "starter"), InputError("no such file")]
)
def test_what_no_request_can_mend_stops_the_evaluation(out: Path, error: JarvisError) -> None:
    with pytest.raises(type(error)):
        predicted(Planned(failing="word", error=error), out)
    assert out.read_text() == ""


@pytest.mark.parametrize("planner", ["theirs", ""])
def test_plans_of_another_planner_are_not_mixed_in(out: Path, planner: str) -> None:
    out.write_text(json.dumps({**PLAN, "planner": planner}) + "\n")
    with pytest.raises(InputError, match=f'plans of .*{planner}.*planner is "mine"'):
        predicted(Planned(), out)
    assert len(out.read_text().splitlines()) == 1


def test_a_planner_is_warmed_up_by_a_request_that_does_not_count(out: Path) -> None:
    warmed = Planned()
    found = predicted(warmed, out, warm=True, concurrency=1)
    assert warmed.asked == [REQUESTS["0"], *REQUESTS.values()]
    assert (len(found), len(out.read_text().splitlines())) == (3, 3)
    nothing_to_do = Planned()
    predicted(nothing_to_do, out, warm=True)
    assert nothing_to_do.asked == []


def test_a_file_that_can_not_be_written_is_told_before_anything_is_planned(tmp_path: Path) -> None:
    planner = Planned()
    for out in (tmp_path / "missing" / "out.jsonl", tmp_path):
        with pytest.raises(InputError, match="can not be written"):
            predicted(planner, out)
    assert planner.asked == []


# The files


def test_a_prediction_survives_the_way_through_a_file(out: Path) -> None:
    prediction = Prediction(
        graph={"id": "1", "nodes": [{"task": "translation", "arguments": ["Hi"]}]},  # type: ignore[arg-type]
        tasks=(Task(task="translation", id=0, args={"text": "Hi"}),),
        seconds=0.5,
        usage=Usage(calls=1),
        planner="mine",
    )
    out.write_text(line_of(prediction, "a\u2028b\x85c\x0bd"), encoding="utf-8")
    assert held_in(out, "mine") == {"1": prediction}


@pytest.mark.parametrize(
    "told",
    [
        {"task_nodes": [{"tool": "translation"}]},
        {"task_nodes": [], "plan": [{"task": 7}]},
        {"task_nodes": [], "seconds": "soon"},
        {},
    ],
    ids=["a node without a task", "a plan of another kind", "a time of another kind", "no nodes"],
)
def test_a_record_that_holds_no_plan_is_as_if_the_planner_had_failed(out: Path, told: dict[str, Any]) -> None:
    out.write_text(json.dumps({"id": 7, **told, "planner": "mine"}) + "\n" + json.dumps(PLAN) + "\n")
    found = read_predictions(out)
    assert "holds no plan" in str(found["7"].error)
    assert (found["7"].graph.nodes, found["7"].planner) == ((), "mine")
    assert found["1"].error is None


def test_the_last_record_of_a_request_counts(out: Path) -> None:
    out.write_text(json.dumps({**PLAN, "error": "it was down"}) + "\n" + json.dumps(PLAN))
    assert read_predictions(out)["1"].error is None


def test_a_last_line_without_an_end_is_kept_if_it_is_whole(out: Path) -> None:
    out.write_text(json.dumps(PLAN))
    assert set(held_in(out, "mine")) == {"1"}
    assert out.read_text() == json.dumps(PLAN) + "\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"id": "1"\n{"id": "2", "task_nodes": []}\n', "line 1, is no JSON"),
        ('\n{"x": 1}\n', "line 2, is no object with an `id`"),
        ("Dear diary", "line 1, is no JSON"),
    ],
)
def test_a_file_of_something_else_is_refused_and_left_as_it_is(out: Path, text: str, told: str) -> None:
    out.write_text(text)
    with pytest.raises(InputError, match=told):
        held_in(out, "mine")
    assert out.read_text() == text


def test_the_files_that_a_request_names_are_known_by_their_endings() -> None:
    files = named_files("Read 'example.txt', describe example.jpg and dub a.mp4 with b.wav, then c.csv.")
    assert [(file.name, file.kind) for file in files] == [
        ("example.txt", "text"),
        ("example.jpg", "image"),
        ("a.mp4", "video"),
        ("b.wav", "audio"),
        ("c.csv", "table"),
    ]
