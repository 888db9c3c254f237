"""The benchmark of planners accepts a plan that is right, and no other."""

from __future__ import annotations

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


def test_only_correct_plans_are_accepted() -> None:
    swapped = [
        task(0, "translation", text="Guten Tag."),
        task(1, "image-to-text", image="a.jpg"),
        task(12, "summarization", text="<resource>-1 and <resource>-0"),
    ]
    caption = task(0, "image-to-text", image="a.jpg")
    question = ["visual-question-answering", {"text": "What?"}]
    cases: list[tuple[Any, list[Task], bool]] = [
        (GOLD, swapped, True),
        (GOLD, [*swapped[:2], task(12, "summarization", text="<resource>-0 and <resource>-1")], False),
        (GOLD[:1], [caption], True),
        (GOLD[:1], [], False),
        (GOLD[:1], [task(0, "image-to-text", image="b.jpg")], False),
        (GOLD[:1], [task(0, "image-classification", image="a.jpg")], False),
        (GOLD[:1], [caption, caption.model_copy(update={"id": 1})], False),
        ([["text-to-image", {}]], [task(0, "text-to-image", text="a fox")], True),
        ([question], [task(0, question[0], text="What?", image="<resource>-7")], False),
    ]
    wrong = [case for case in cases if planning.accepts(case[0], case[1]) is not case[2]]
    assert not wrong


def test_node_f1_counts_repeated_tasks() -> None:
    twice = [task(0, "image-to-text"), task(1, "image-to-text")]
    assert planning.node_f1(GOLD[:1], twice) == pytest.approx(2 / 3)
    assert (planning.node_f1([], []), planning.node_f1(GOLD, [])) == (1.0, 0.0)


def test_the_settings_and_requests_of_the_benchmark_are_valid() -> None:
    assert all(fields.keys() <= Settings.model_fields.keys() for _, fields in planning.WAYS.values())
    assert all(case.plans for case in planning.read_cases(planning.REQUESTS))
