"""What planners write, strong and weak ones, well-formed and broken, becomes the plan that was meant.

The corpus (data/planner_outputs.jsonl) holds one output a line: its name, its text, the tools that it may use
beside the Hub's tasks, the tasks that it must become as [task, id, dep, args], and words of the notes on it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Task
from jarvis_agent.planning.parser import StreamingPlanParser
from jarvis_agent.planning.plan import Plan

CORPUS: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "planner_outputs.jsonl").read_text("utf-8").splitlines()
]


def rows(tasks: list[Task]) -> list[list[Any]]:
    return [[task.task, task.id, task.dep, task.args] for task in tasks]


@pytest.mark.parametrize("output", CORPUS, ids=[output["name"] for output in CORPUS])
def test_what_was_written_becomes_what_was_meant(output: dict[str, Any]) -> None:
    plan = Plan.parse(output["text"], output.get("tools"))
    assert rows(plan.tasks) == output["plan"]
    for words in output.get("notes", []):
        assert any(words in note for note in plan.notes), plan.notes


@pytest.mark.parametrize("size", [1, 7])
def test_it_makes_no_difference_in_which_pieces_it_comes(size: int) -> None:
    for output in CORPUS:
        if "tools" in output:
            continue
        builder, text = StreamingPlanParser(TASKS), output["text"]
        given = [task for at in range(0, len(text), size) for task in builder.feed(text[at : at + size])]
        given += builder.finish()
        assert rows(given) == output["plan"], output["name"]


def test_the_corpus_is_large_and_names_each_output_once() -> None:
    names = [output["name"] for output in CORPUS]
    assert len(names) == len(set(names)) >= 200


def test_what_is_no_plan_says_so_and_what_is_none_on_purpose_does_not() -> None:
    notes = {output["name"]: Plan.parse(output["text"]).notes for output in CORPUS if not output["plan"]}
    assert notes["nothing: an empty list"] == []
    assert notes["nothing: an empty list of tasks"] == []
    assert notes["nothing: a refusal"]
    assert notes["nothing: HTML"]
