"""The models to begin with are for tasks that there are, and every task can be run by something."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jarvis_agent.core.tasks.hub_tasks import NOT_CALLABLE
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.selection.sources.recommended import recommended, recommended_models

PAGE = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")


def test_each_is_for_a_task_with_models_of_its_own_and_has_an_id_of_the_hub() -> None:
    assert all(TASKS[task].needs_model and not TASKS[task].models_of for task in recommended_models())
    assert all(
        re.fullmatch(r"[\w.-]+/[\w.-]+", model.id) and model.license
        for model in recommended_models().values()
    )


def test_a_task_that_others_models_do_begins_with_theirs() -> None:
    assert recommended(TASKS["openpose-control"]) == recommended(TASKS["keypoint-detection"]) is not None
    assert recommended(TASKS["crop-image"]) is None


@pytest.mark.parametrize("task", TASKS)
def test_the_page_says_of_every_task_what_runs_it(task: str) -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{task}` |"))
    takes, makes, run_by = (cell.strip() for cell in row.split("|")[2:5])
    assert makes == ", ".join(TASKS[task].outputs)
    assert all(arg.name in takes for arg in TASKS[task].inputs)
    assert run_by


def test_the_page_says_why_the_others_can_not_be_run() -> None:
    assert all(f"| `{task}` | {why} |" in PAGE for task, why in NOT_CALLABLE.items())
