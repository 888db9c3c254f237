"""Coverage: whether a plan uses all files of a request.

    coverage = Coverage(request.files)
    coverage.find_errors(tasks)   # [PlanParseError("b.jpg", "no task uses this image of the request; …")]

Empty plans, as of conversation, have no gaps.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jarvis_agent.core.types import Resource, Task
from jarvis_agent.planning.normalise import TaskDraft
from jarvis_agent.planning.parser import PlanParseError


@dataclass(frozen=True, slots=True)
class Coverage:
    """The files of a request."""

    files: Sequence[Resource] = ()

    def find_errors(self, tasks: Sequence[Task]) -> list[PlanParseError]:
        """The files that exist, have a known kind, and that no task uses."""
        if not tasks:
            return []
        add = f"add a task for it to the tasks {', '.join(f'{task.id} ({task.task})' for task in tasks)}"
        is_known = any(file.path for file in self.files)
        present = [
            f for f in self.files if f.kind != "file" and (f.path or not is_known or "://" in (f.name or ""))
        ]
        unused = [f for f in present if not any(_is_in(_names(f), task) for task in tasks)]
        return [PlanParseError(f.name, f"no task uses this {f.kind} of the request; {add}") for f in unused]

    def lacks(self, draft: TaskDraft, tasks: Sequence[Task]) -> bool:
        """Whether a task fills a gap of a plan."""
        task = Task(task=draft.spec.name, id=-1, dep=[], args=dict(draft.args))
        return len(self.find_errors([*tasks, task])) < len(self.find_errors(tasks))


def _names(file: Resource) -> list[str]:
    names = [name for name in (file.name, str(file.path or "")) if name]
    return [*dict.fromkeys([*names, *(name.rpartition("/")[2] or name for name in names)])]


def _is_in(names: Iterable[str], task: Task) -> bool:
    written = json.dumps(task.args, ensure_ascii=False)
    return any(json.dumps(name, ensure_ascii=False)[1:-1] in written for name in names)
