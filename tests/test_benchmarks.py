"""The benchmarks compute the makespans that they compare with."""

from __future__ import annotations

import random

import figures
import pytest
import scheduling

from jarvis_agent.core.types import Task


def sleep(number: int, deps: list[int], seconds: float, fails: bool = False) -> Task:
    return Task(task="sleep", id=number, dep=deps or [-1], args={"seconds": seconds, "fails": fails})


def test_makespans_are_computed() -> None:
    tasks = [sleep(0, [], 1.2), sleep(1, [], 3.0), sleep(2, [0], 3.0), sleep(3, [1], 1.0)]
    known = scheduling.ran(tasks)
    assert known.makespan() == pytest.approx(4.2)
    assert known.by_levels() == pytest.approx(6.0)


def test_tasks_after_a_failure_take_no_time() -> None:
    known = scheduling.ran([sleep(0, [], 1.0, fails=True), sleep(1, [0], 9.0), sleep(2, [1], 9.0)])
    assert known.makespan() == pytest.approx(1.0)


def test_random_plans_are_valid_and_hold_what_they_should() -> None:
    rng = random.Random(3)
    plans = [scheduling.random_plan(rng) for _ in range(30)]
    assert all(dep < task.id for tasks in plans for task in tasks for dep in task.deps)
    assert max(map(len, plans)) > 100
    assert any(task.args["fails"] for tasks in plans for task in tasks)


@pytest.mark.parametrize(("limit", "met"), [(1.0, False), (3.0, True), (None, True)])
def test_a_figure_is_compared_with_its_limit(limit: float | None, met: bool) -> None:
    assert figures.Figure("x", 2.0, limit).met is met
