"""Print what is desirable for task types and missing: make task-report

A task type requires only its row and an example for the planners (CONTRIBUTING.md).
"""

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
    evaluated = {task.task for request in read_requests() for task in request.plan}
    files = (DATA.parents[1] / "training" / "requests").glob("*.txt")
    learned = {line.partition(" ")[0] for file in files for line in file.read_text("utf-8").splitlines()}
    lists: dict[str, list[str]] = {}
    for spec in specs:
        name, rows = spec.name, cases.get(spec.name, [])
        for thing, there in {
            "a case in tests/data/task_cases.yaml": rows,
            "a tiny model in tests/data/tiny_models.yaml": not spec.needs_model
            or any("models" in row for row in rows),
            "a request in jarvis_agent/evaluation/data/requests.jsonl": name in evaluated,
            "a request in training/requests/": name in learned,
            "a model in jarvis_agent/selection/recommended.csv": not spec.needs_model or recommended(spec),
        }.items():
            if not there:
                lists.setdefault(thing, []).append(name)
    return lists


if __name__ == "__main__":
    for thing, names in missing(TASKS.values()).items():
        print(f"without {thing}: {', '.join(names)}")
