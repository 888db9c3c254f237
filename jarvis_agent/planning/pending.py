"""PendingTasks: the tasks of a plan while it is being read, and which task an id refers to.

    pending = PendingTasks()
    pending.add(task)
    pending.resolve(task, 0, "image")    # the task that `<resource>-0` means in an image argument of `task`
    pending.ready(ended=False)           # the tasks that can be bound now

An id means the last earlier task with that id; among several, the last that makes the argument's kind.
Without an earlier one, it means the first later task. So duplicate ids and forward references are resolved
independently of chunking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from jarvis_agent.core.tasks.spec import MEDIA
from jarvis_agent.core.types import Task
from jarvis_agent.planning.normalise import TaskDraft


@dataclass(eq=False, slots=True)
class PendingTask:
    """A task of the plan that is not final yet, or its final tasks.

    Attributes:
        raw: the object that the planner wrote.
        label: the id that other tasks use for it: the written one, or else its index.
        id: its final id; the label unless that is taken.
        draft: None if `raw` is invalid.
        error: why it is invalid, or "".
        invalid_refs: ids that it cannot refer to, with the reasons.
        targets: by id and kind of argument, the task that it refers to; None while unknown.
        needs: the tasks that it was bound to.
        tasks: empty until it is final; several if it fanned out.
        index: its place in the plan.
        cut: which of the tasks that its lists make were left out, or "".
    """

    raw: dict[str, Any]
    label: int
    id: int
    draft: TaskDraft | None = None
    error: str = ""
    invalid_refs: dict[int, str] = field(default_factory=dict)
    targets: dict[int, dict[str, PendingTask | None]] = field(default_factory=dict)
    needs: tuple[PendingTask, ...] = ()
    tasks: tuple[Task, ...] = ()
    index: int = -1
    cut: str = ""

    def __str__(self) -> str:
        if self.draft:
            return f"task {self.id} ({self.draft.spec.name})"
        return f"task {self.id}" if self.id == self.label else f"task number {self.index + 1}"

    @property
    def ids(self) -> list[int]:
        return [task.id for task in self.tasks]

    @property
    def is_blocked(self) -> bool:
        """Whether it is valid and not final."""
        return not self.tasks and not self.error

    def makes(self, kind: str) -> bool:
        """Whether its output can be used in an argument of this kind. Tools without outputs make any."""
        if self.draft is None:
            return False
        spec = self.draft.spec
        if kind == "any" or not spec.outputs or spec.makes(kind):
            return True
        return kind == "file" and not {*MEDIA, "text"}.isdisjoint(spec.outputs)

    def all_targets(self) -> Iterator[PendingTask | None]:
        return (target for by_kind in self.targets.values() for target in by_kind.values())

    def invalidate(self, label: int, reason: str) -> None:
        """Make an id meaningless in this task."""
        self.invalid_refs[label] = reason
        self.targets.pop(label, None)


class PendingTasks:
    """The tasks of one plan, in the order of the text."""

    def __init__(self) -> None:
        self.all: list[PendingTask] = []
        self._by_label: dict[int, list[PendingTask]] = {}

    def add(self, task: PendingTask) -> None:
        """Append a task. References to itself are invalid, and so are those that close a cycle."""
        task.index = len(self.all)
        if not self.with_label(task.label):
            task.invalid_refs[task.label] = "means the task itself"
        self.all.append(task)
        self._by_label.setdefault(task.label, []).append(task)
        self.update(task)

    def update(self, task: PendingTask) -> None:
        """Resolve the references of a task that was read, and those of others to its id."""
        task.targets = {}
        for label, kind in task.draft.mentions if task.draft else ():
            if label not in task.invalid_refs:
                task.targets.setdefault(label, {})[kind] = self.resolve(task, label, kind)
        referrers = []
        for other in self.all:
            if other.is_blocked and task.label in other.targets:
                targets = {kind: self.resolve(other, task.label, kind) for kind in other.targets[task.label]}
                other.targets[task.label] = targets
                if task in targets.values():
                    referrers.append(other)
        self._break_cycles(task, referrers)

    def with_label(self, label: int) -> list[PendingTask]:
        return self._by_label.get(label, [])

    def resolve(self, task: PendingTask, label: int, kind: str) -> PendingTask | None:
        """The task that an id means in an argument of `task` of this kind; None while unknown."""
        if label in task.invalid_refs:
            return None
        others = self.with_label(label)
        earlier = [other for other in others if other.index < task.index]
        if earlier:
            fitting = (other for other in reversed(earlier) if other.draft is None or other.makes(kind))
            return next(fitting, earlier[-1])
        return next((other for other in others if other is not task), None)

    def ready(self, *, ended: bool) -> list[PendingTask]:
        """The blocked tasks with final targets; once the plan has `ended`, unknown ids do not block."""
        return [task for task in self.all if task.is_blocked and _is_ready(task, ended)]

    def _break_cycles(self, task: PendingTask, referrers: Iterable[PendingTask]) -> None:
        """Invalidate the forward references that would make a task wait for itself."""
        earlier = {other for other in referrers if other.index < task.index}
        later = {other for other in task.all_targets() if other and other.index > task.index}
        for other in earlier and earlier & _reachable(task, _awaited):
            other.invalidate(task.label, f"means {task}, which depends on this task")
        for other in later and later & _reachable(task, self._dependants().__getitem__):
            task.invalidate(other.label, f"means {other}, which depends on this task")

    def _dependants(self) -> dict[PendingTask, list[PendingTask]]:
        dependants: dict[PendingTask, list[PendingTask]] = {task: [] for task in self.all}
        for task in self.all:
            for other in _awaited(task):
                dependants[other].append(task)
        return dependants


def _is_ready(task: PendingTask, ended: bool) -> bool:
    return all(ended if target is None else target.tasks for target in task.all_targets())


def _awaited(task: PendingTask) -> list[PendingTask]:
    return [target for target in task.all_targets() if target and not target.tasks]


def _reachable(
    start: PendingTask, neighbours: Callable[[PendingTask], Iterable[PendingTask]]
) -> set[PendingTask]:
    seen, stack = {start}, [start]
    while stack:
        new = set(neighbours(stack.pop())) - seen
        seen |= new
        stack.extend(new)
    return seen
