"""The benchmark of planners accepts a plan that is right, and no other."""

from __future__ import annotations

import json
from typing import Any

import planning
import pytest

from jarvis_agent.core.types import Task
from jarvis_agent.testing import ScriptedLLM

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
    question: list[Any] = ["visual-question-answering", {"text": "What?"}]
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


async def test_every_way_plans_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jarvis_agent.llm.chat_model.is_openai_like", lambda model: True)
    case = planning.read_cases(planning.REQUESTS)[0]
    [[name, args]] = case.plans[0]
    plan = json.dumps([{"task": name, "id": 0, "dep": [-1], "args": args}])
    for way in planning.WAYS.values():
        llm = ScriptedLLM({"plan": plan})
        [outcome] = await planning.plan_cases(llm, way, [case])
        assert (outcome.is_right, outcome.calls, outcome.failure) == (True, 1, "")
        assert ("response_format" in llm.calls[0].kwargs) is way.has_schema
        assert (len(llm.calls[0].messages) > 2) is (way.examples == "default")


def test_the_requests_of_the_benchmark_have_plans() -> None:
    assert all(case.plans for case in planning.read_cases(planning.REQUESTS))
