"""The benchmark of planners accepts a plan that is right, and no other."""

from __future__ import annotations

import json
from typing import Any

import planning
import pytest

from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Task

GOLD = [
    ["image-to-text", {"image": "a.jpg"}],
    ["translation", {"text": "Guten Tag"}],
    ["summarization", {"text": "<resource>-0 and <resource>-1"}],
]


def task(number: int, name: str, **args: Any) -> Task:
    return Task(task=name, id=number, args=args)


def test_a_plan_may_have_its_tasks_in_another_order_with_references_that_follow() -> None:
    tasks = [
        task(0, "translation", text="Guten Tag."),
        task(1, "image-to-text", image="a.jpg"),
        task(12, "summarization", text="<resource>-1 and <resource>-0"),
    ]
    assert planning.accepts(GOLD, tasks)
    swapped = tasks[2].model_copy(update={"args": {"text": "<resource>-0 and <resource>-1"}})
    assert not planning.accepts(GOLD, [*tasks[:2], swapped])


@pytest.mark.parametrize(
    "said",
    [
        [],
        [task(0, "image-to-text", image="b.jpg")],
        [task(0, "image-classification", image="a.jpg")],
        [task(0, "image-to-text", image="a.jpg"), task(1, "image-to-text", image="a.jpg")],
    ],
    ids=["nothing", "another file", "another task", "a task twice"],
)
def test_a_plan_with_other_tasks_or_files_is_wrong(said: list[Task]) -> None:
    assert not planning.accepts(GOLD[:1], said)


def test_a_file_where_none_was_due_is_wrong_and_other_arguments_are_free() -> None:
    asked = [["text-to-image", {}]]
    assert planning.accepts(asked, [task(0, "text-to-image", text="a fox")])
    speak = [["visual-question-answering", {"text": "What?"}]]
    assert not planning.accepts(
        speak, [task(0, "visual-question-answering", text="What?", image="<resource>-7")]
    )


def test_tasks_are_counted_as_often_as_they_stand_there() -> None:
    twice = [task(0, "image-to-text"), task(1, "image-to-text")]
    assert planning.node_f1(GOLD[:1], twice) == pytest.approx(2 / 3)
    assert planning.node_f1([], []) == 1.0
    assert planning.node_f1(GOLD, []) == 0.0


def test_every_way_has_settings_that_there_are_and_every_request_plans() -> None:
    assert all(fields.keys() <= Settings.model_fields.keys() for _, fields in planning.WAYS.values())
    cases = planning.read_cases(planning.REQUESTS)
    assert len(cases) == len(json.loads(planning.REQUESTS.read_text(encoding="utf-8"))) == 33
    assert all(case.plans for case in cases)
