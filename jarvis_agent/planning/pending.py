"""PendingTasks: the tasks of a plan while it is being read, and what their ids mean.

    nodes = PendingTasks()
    nodes.add(node)
    nodes.meant(node, 0, "image")     # the node that `<resource>-0` means in an image argument of `node`
    nodes.ready(ended=False)          # the nodes that can be bound now

An id means the last earlier task with that id; among several, the last that makes the argument's kind.
Without an earlier one, it means the first later task. So the meaning of duplicate ids and forward references
does not depend on chunking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from jarvis_agent.core.tasks.spec import MEDIA, TaskSpec
from jarvis_agent.core.types import Task
from jarvis_agent.planning.normalise import TaskDraft


@dataclass(eq=False, slots=True)
class PendingTask:
    """A task of the plan that is not final yet, or its final tasks.

    Attributes:
        raw: the object that the planner wrote.
        label: the id that other tasks use for it: the written one, or else its place.
        id: its final id; the label unless that is taken.
        draft: None if `raw` is invalid.
        error: why it is invalid, or "".
        refused: ids that it cannot refer to, with the reasons.
        ahead: the node that each mentioned id means, by the kind of the argument; None while unknown.
        needs: the nodes that it was bound to.
        tasks: empty until it is final; several if it fanned out.
        place: its index in the plan.
    """

    raw: dict[str, Any]
    label: int
    id: int
    draft: TaskDraft | None = None
    error: str = ""
    refused: dict[int, str] = field(default_factory=dict)
    ahead: dict[int, dict[str, PendingTask | None]] = field(default_factory=dict)
    needs: tuple[PendingTask, ...] = ()
    tasks: tuple[Task, ...] = ()
    place: int = -1

    def __str__(self) -> str:
        if self.draft:
            return f"task {self.id} ({self.draft.spec.name})"
        return f"task {self.id}" if self.id == self.label else f"task number {self.place + 1}"

    @property
    def ids(self) -> list[int]:
        return [task.id for task in self.tasks]

    @property
    def is_blocked(self) -> bool:
        """Whether it waits for other nodes."""
        return not self.tasks and not self.error

    def refuse(self, label: int, why: str) -> None:
        """Make an id meaningless in this node."""
        self.refused[label] = why
        self.ahead.pop(label, None)

    def waits_for(self) -> Iterator[PendingTask | None]:
        """The nodes that it mentions; None for unknown ids."""
        return (other for kinds in self.ahead.values() for other in kinds.values())

    def makes(self, kind: str) -> bool:
        """Whether its output can be used in an argument of this kind."""
        return self.draft is not None and _makes(self.draft.spec, kind)


class PendingTasks:
    """The nodes of one plan, in the order of the text."""

    def __init__(self) -> None:
        self.all: list[PendingTask] = []
        self._by_label: dict[int, list[PendingTask]] = {}
        self._awaited: dict[int, list[tuple[PendingTask, str]]] = {}

    def add(self, node: PendingTask) -> None:
        """Append a node. References to itself and those that close a cycle are refused."""
        node.place = len(self.all)
        if not self.labelled(node.label):
            node.refused[node.label] = "means the task itself"
        self.all.append(node)
        self._by_label.setdefault(node.label, []).append(node)
        self._link(node)
        waiting = self._awaited.pop(node.label, [])
        for earlier, kind in waiting:
            earlier.ahead[node.label][kind] = node
        self._break_cycles(node, [earlier for earlier, _ in waiting])

    def renew(self, node: PendingTask) -> None:
        """Update a node that was read again, and refuse the cycles that it closes."""
        self._link(node)
        waiting = []
        for other in (other for other in self.all if other.is_blocked and node.label in other.ahead):
            meant = {kind: self.meant(other, node.label, kind) for kind in other.ahead[node.label]}
            other.ahead[node.label] = meant
            waiting += [other] if node in meant.values() else []
        self._break_cycles(node, waiting)

    def labelled(self, label: int) -> list[PendingTask]:
        """The nodes with this label."""
        return self._by_label.get(label, [])

    def meant(self, node: PendingTask, label: int, kind: str) -> PendingTask | None:
        """The node that an id means in an argument of `node` of this kind; None while unknown."""
        if label in node.refused:
            return None
        others = self.labelled(label)
        before = [other for other in others if other.place < node.place]
        if before:
            fitting = (other for other in reversed(before) if other.draft is None or other.makes(kind))
            return next(fitting, before[-1])
        return next((other for other in others if other is not node), None)

    def ready(self, *, ended: bool) -> list[PendingTask]:
        """Blocked nodes whose mentions are final; once the plan has `ended`, unknown ids do not block."""
        return [node for node in self.all if node.is_blocked and self._is_ready(node, ended)]

    def _link(self, node: PendingTask) -> None:
        mentions = node.draft.mentions if node.draft else ()
        node.ahead = {}
        for label, kind in mentions:
            if label in node.refused:
                continue
            other = node.ahead.setdefault(label, {})[kind] = self.meant(node, label, kind)
            if other is None:
                self._awaited.setdefault(label, []).append((node, kind))

    def _break_cycles(self, node: PendingTask, waiting: Iterable[PendingTask]) -> None:
        """Refuse forward references that make `node` wait for itself; `waiting` refer to it."""
        earlier = {other for other in waiting if other.is_blocked and other.place < node.place}
        later = {other for other in node.waits_for() if other and other.place > node.place}
        for other in earlier and earlier & _reached(node, _ahead):
            other.refuse(node.label, f"means {node}, which depends on this task")
        for other in later and later & _reached(node, self._behind().__getitem__):
            node.refuse(other.label, f"means {other}, which depends on this task")

    def _behind(self) -> Mapping[PendingTask, list[PendingTask]]:
        behind: dict[PendingTask, list[PendingTask]] = {node: [] for node in self.all}
        for node in self.all:
            for other in _ahead(node):
                behind[other].append(node)
        return behind

    def _is_ready(self, node: PendingTask, ended: bool) -> bool:
        return all(ended if other is None else other.tasks for other in node.waits_for())


def _ahead(node: PendingTask) -> list[PendingTask]:
    return [other for other in node.waits_for() if other and not other.tasks]


def _reached(start: PendingTask, further: Callable[[PendingTask], Iterable[PendingTask]]) -> set[PendingTask]:
    seen, stack = {start}, [start]
    while stack:
        new = set(further(stack.pop())) - seen
        seen |= new
        stack.extend(new)
    return seen


def _makes(spec: TaskSpec, kind: str) -> bool:
    """Whether a task makes a kind. Tools without declared outputs may make any."""
    if kind == "any" or not spec.outputs or spec.makes(kind):
        return True
    return kind == "file" and not MEDIA.isdisjoint(spec.outputs)
