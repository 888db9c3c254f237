"""Print what is desirable for task types and missing: make task-report

A task type requires only its row and an example for the planners (CONTRIBUTING.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import yaml

from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.evaluation.requests import read_requests
from jarvis_agent.selection.advice import recommended

DATA = Path(__file__).parent / "data"


def missing(specs: Iterable[TaskSpec]) -> dict[str, list[str]]:
    """The names of the task types that lack something, by what they lack."""
    cases = yaml.safe_load((DATA / "task_cases.yaml").read_text(encoding="utf-8"))
    plain = json.loads((DATA / "offline_requests.json").read_text(encoding="utf-8"))
    evaluated = {task.task for request in read_requests() for task in request.plan}
    planned = {task for request in plain for task, _ in request["plan"]}
    lists: dict[str, list[str]] = {}
    for spec in specs:
        name, rows = spec.name, cases.get(spec.name, [])
        for thing, there in {
            "a case in tests/data/task_cases.yaml": rows,
            "a tiny model in tests/data/tiny_models.yaml": not spec.needs_model
            or any("models" in row for row in rows),
            "a request in jarvis_agent/evaluation/data/requests.jsonl": name in evaluated,
            "a request in tests/data/offline_requests.json": name in planned,
            "a model in jarvis_agent/selection/recommended.csv": not spec.needs_model or recommended(spec),
        }.items():
            if not there:
                lists.setdefault(thing, []).append(name)
    return lists


if __name__ == "__main__":
    for thing, names in missing(TASKS.values()).items():
        print(f"without {thing}: {', '.join(names)}")
