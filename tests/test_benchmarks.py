"""The benchmarks measure what they say: their schedules are right, and their table goes where it belongs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import figures
import pytest
import scheduling

from jarvis_agent.core.types import Task


def sleep(number: int, deps: list[int], seconds: float, fails: bool = False) -> Task:
    return Task(task="sleep", id=number, dep=deps or [-1], args={"seconds": seconds, "fails": fails})


def test_the_other_schedulers_are_computed_right() -> None:
    tasks = [sleep(0, [], 1.2), sleep(1, [], 3.0), sleep(2, [0], 3.0), sleep(3, [1], 1.0)]
    known = scheduling.ran(tasks)
    assert known.makespan() == pytest.approx(4.2)
    assert known.by_levels() == pytest.approx(6.0)
    assert known.polled() == pytest.approx(4.5)


def test_what_stands_behind_a_failure_takes_no_time() -> None:
    known = scheduling.ran([sleep(0, [], 1.0, fails=True), sleep(1, [0], 9.0), sleep(2, [1], 9.0)])
    assert known.makespan() == pytest.approx(1.0)


def test_random_plans_are_valid_and_hold_what_they_should() -> None:
    rng = random.Random(3)
    plans = [scheduling.random_plan(rng) for _ in range(30)]
    assert all(dep < task.id for tasks in plans for task in tasks for dep in task.deps)
    assert max(map(len, plans)) > 100
    assert any(task.args["fails"] for tasks in plans for task in tasks)


def test_no_scheduler_beats_the_critical_path() -> None:
    rng = random.Random(4)
    for _ in range(30):
        known = scheduling.ran(scheduling.random_plan(rng))
        best = known.makespan() * (1 - 1e-9)
        assert min(known.by_levels(), known.polled(), sum(known.seconds.values())) >= best


def test_the_table_is_put_between_its_marks_and_nowhere_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{figures.BEGIN}old\n{figures.END}after\n")
    figures.write(page, [figures.Figure("speed", 2.5, 2.0, "×", at_least=True)], "Measured here:")
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "| speed | 2.5 × | ≥ 2 |" in text
    assert "old" not in text
    page.write_text("no marks")
    with pytest.raises(ValueError, match="no place for figures"):
        figures.write(page, [], "")


@pytest.mark.parametrize(
    ("given", "met"),
    [({"limit": 1.0}, False), ({"limit": 3.0}, True), ({"limit": 3.0, "at_least": True}, False), ({}, True)],
)
def test_a_figure_knows_whether_it_is_met(given: dict[str, Any], met: bool) -> None:
    assert figures.Figure("x", 2.0, **given).met is met
