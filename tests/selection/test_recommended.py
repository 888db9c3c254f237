"""docs/tasks.md lists every task type with its arguments, outputs and models."""

from __future__ import annotations

from pathlib import Path

from jarvis_agent.core.tasks.hub_tasks import NOT_CALLABLE
from jarvis_agent.core.tasks.registry import TASKS


def test_the_page_of_tasks_is_complete() -> None:
    page = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")
    rows = {line.split("`")[1]: line.split("|")[2:5] for line in page.splitlines() if line.startswith("| `")}
    for name, spec in TASKS.items():
        takes, makes, run_by = (cell.strip() for cell in rows[name])
        assert makes == ", ".join(spec.outputs), name
        assert all(arg.name in takes for arg in spec.inputs), name
        assert run_by, name
    assert all(f"| `{task}` | {why} |" in page for task, why in NOT_CALLABLE.items())
