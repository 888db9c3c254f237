"""Chunks of a run add up to the run, in whichever order its tasks end."""

from __future__ import annotations

from itertools import accumulate
from operator import add

import pytest

from jarvis_agent.planning.plan import Plan
from jarvis_agent.execution.run import Run
from jarvis_agent.core.types import Resource, Task, TaskResult, Usage

FIRST = Task(task="image-to-text", id=0, args={"image": "a.jpg"})
SECOND = Task(task="translation", id=1, args={"text": "hello", "tgt_lang": "fr"})
PLAN = Plan(tasks=[FIRST, SECOND], notes=["mended"])


def done(task: Task, text: str) -> TaskResult:
    return TaskResult(task=task, status="ok", resources=[Resource(kind="text", text=text)])


SLOW, QUICK = done(FIRST, "a cat"), done(SECOND, "bonjour")
CHUNKS = [
    Run(plan=PLAN, usage={"plan": Usage(calls=1, input_tokens=10, output_tokens=5)}, timings={"plan": 1.0}),
    Run(results=[QUICK], usage={"select": Usage(calls=1, input_tokens=3, output_tokens=1)}),
    Run(results=[SLOW], usage={"select": Usage(calls=1, input_tokens=4, output_tokens=2)}),
    Run(answer="A cat, "),
    Run(answer="bonjour.", timings={"execute": 2.0, "total": 4.0}),
]
WHOLE = Run(
    answer="A cat, bonjour.",
    plan=PLAN,
    results=[SLOW, QUICK],
    usage={
        "plan": Usage(calls=1, input_tokens=10, output_tokens=5),
        "select": Usage(calls=2, input_tokens=7, output_tokens=3),
    },
    timings={"plan": 1.0, "execute": 2.0, "total": 4.0},
)


def total(chunks: list[Run]) -> Run:
    return list(accumulate(chunks, add))[-1]


def test_results_stand_in_plan_order_though_a_later_task_ended_first() -> None:
    run = total(CHUNKS)
    assert [result.task.id for result in run.results] == [0, 1]
    assert [resource.text for resource in run.resources] == ["a cat", "bonjour"]


def test_chunks_add_up_to_the_whole_run() -> None:
    assert total(CHUNKS) == WHOLE


def test_the_order_is_the_plans_and_not_that_of_the_ids() -> None:
    backwards = Plan(tasks=[SECOND, FIRST])
    run = Run(plan=backwards) + Run(results=[SLOW]) + Run(results=[QUICK])
    assert run.results == [QUICK, SLOW]


@pytest.mark.parametrize("cut", range(1, len(CHUNKS)))
def test_it_makes_no_difference_which_chunks_are_added_first(cut: int) -> None:
    assert total(CHUNKS[:cut]) + total(CHUNKS[cut:]) == WHOLE


def test_an_empty_chunk_changes_nothing() -> None:
    assert Run() + WHOLE == WHOLE == WHOLE + Run()


def test_a_later_result_of_a_task_takes_the_place_of_the_earlier_one() -> None:
    failed = TaskResult(task=FIRST, status="failed", error="gone")
    assert (Run(plan=PLAN, results=[failed, QUICK]) + Run(results=[SLOW])).results == [SLOW, QUICK]


def test_a_run_is_added_to_runs_only() -> None:
    with pytest.raises(TypeError):
        WHOLE + "more"  # type: ignore[operator]
