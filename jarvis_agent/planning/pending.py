"""Nodes: the tasks of a plan while it is being read, and what their ids mean.

    nodes = PendingTasks()
    nodes.add(node)
    nodes.meant(node, 0, "image")     # the node that `<resource>-0` means in an image argument of `node`
    nodes.ready(ended=False)          # the nodes that may be bound now

An id means the last task of that id that comes before the one that refers to it and, if there are several,
makes what the argument takes; if none comes before, the first that comes after. So what duplicate ids and
forward references mean does not depend on how much of the plan has been read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from jarvis_agent.planning.normalise import TaskDraft
from jarvis_agent.core.tasks.spec import MEDIA, TaskSpec
from jarvis_agent.core.types import Task


@dataclass(eq=False, slots=True)
class PendingTask:
    """A task of the plan on its way from a draft to final tasks.

    Attributes:
        raw: what its planner wrote.
        label: the id that other tasks know it by: what its planner wrote, or else its place in the plan.
        id: the id that it gets; the label wherever that is possible.
        draft: None while what was written can not be understood.
        error: why it is broken; "" if it is not.
        refused: ids that it can not refer to, each with the reason.
        ahead: what each id that it mentions means, by the kind of the argument; None where nothing has that
            id yet.
        needs: the nodes that it was bound to.
        tasks: empty until it is final; several if it fanned out.
        place: which one of the plan's nodes it is, counted from 0.
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
        return f"task {self.id} ({self.draft.spec.name})" if self.draft else f"task {self.id}"

    @property
    def ids(self) -> list[int]:
        """Ids of its final tasks."""
        return [task.id for task in self.tasks]

    @property
    def held(self) -> bool:
        """Whether it waits for others to become final."""
        return not self.tasks and not self.error

    def refuse(self, label: int, why: str) -> None:
        """Let an id mean nothing in this node."""
        self.refused[label] = why
        self.ahead.pop(label, None)

    def waits_for(self) -> Iterator[PendingTask | None]:
        """The nodes that it mentions; None for each id that means nothing yet."""
        return (other for kinds in self.ahead.values() for other in kinds.values())

    def makes(self, kind: str) -> bool:
        """Whether its result can stand in an argument of this kind."""
        return self.draft is not None and _makes(self.draft.spec, kind)


class PendingTasks:
    """The nodes of one plan, in the order in which they were written."""

    def __init__(self) -> None:
        self.all: list[PendingTask] = []
        self._by_label: dict[int, list[PendingTask]] = {}
        self._awaited: dict[int, list[tuple[PendingTask, str]]] = {}

    def add(self, node: PendingTask) -> None:
        """Append a node. What it writes about itself and about circles that it closes is refused."""
        node.place = len(self.all)
        if not self.labelled(node.label):
            node.refused[node.label] = "means the task itself"
        self.all.append(node)
        self._by_label.setdefault(node.label, []).append(node)
        self._link(node)
        waiting = self._awaited.pop(node.label, [])
        for earlier, kind in waiting:
            earlier.ahead[node.label][kind] = node
        self._break_circles(node, [earlier for earlier, _ in waiting])

    def renew(self, node: PendingTask) -> None:
        """Take in a node that was read again, with the circles that it closes now."""
        self._link(node)
        waiting = []
        for other in (other for other in self.all if other.held and node.label in other.ahead):
            meant = {kind: self.meant(other, node.label, kind) for kind in other.ahead[node.label]}
            other.ahead[node.label] = meant
            waiting += [other] if node in meant.values() else []
        self._break_circles(node, waiting)

    def labelled(self, label: int) -> list[PendingTask]:
        """The nodes of that label."""
        return self._by_label.get(label, [])

    def meant(self, node: PendingTask, label: int, kind: str) -> PendingTask | None:
        """The node that an id means in an argument of this kind of `node`; None if there is none yet."""
        if label in node.refused:
            return None
        others = self.labelled(label)
        before = [other for other in others if other.place < node.place]
        if before:
            fitting = (other for other in reversed(before) if other.draft is None or other.makes(kind))
            return next(fitting, before[-1])
        return next((other for other in others if other is not node), None)

    def ready(self, *, ended: bool) -> list[PendingTask]:
        """The nodes that are held and refer to final ones only; or to none at all, if the plan has ended."""
        return [node for node in self.all if node.held and self._is_ready(node, ended)]

    def _link(self, node: PendingTask) -> None:
        """Find what a node's mentions mean; what means nothing yet is looked for in what is added."""
        mentions = node.draft.mentions if node.draft else ()
        node.ahead = {}
        for label, kind in mentions:
            if label in node.refused:
                continue
            other = node.ahead.setdefault(label, {})[kind] = self.meant(node, label, kind)
            if other is None:
                self._awaited.setdefault(label, []).append((node, kind))

    def _break_circles(self, node: PendingTask, waiting: Iterable[PendingTask]) -> None:
        """Refuse the references to later nodes by which `node` comes to wait for itself.

        `waiting` are the nodes that refer to it.
        """
        earlier = {other for other in waiting if other.held and other.place < node.place}
        later = {other for other in node.waits_for() if other and other.place > node.place}
        for other in earlier and earlier & _reached(node, _ahead):
            other.refuse(node.label, f"means {node}, which needs this task in turn")
        for other in later and later & _reached(node, self._behind().__getitem__):
            node.refuse(other.label, f"means {other}, which needs this task in turn")

    def _behind(self) -> Mapping[PendingTask, list[PendingTask]]:
        """The nodes that wait for each node."""
        behind: dict[PendingTask, list[PendingTask]] = {node: [] for node in self.all}
        for node in self.all:
            for other in _ahead(node):
                behind[other].append(node)
        return behind

    def _is_ready(self, node: PendingTask, ended: bool) -> bool:
        return all(ended if other is None else other.tasks for other in node.waits_for())


def _ahead(node: PendingTask) -> list[PendingTask]:
    """The nodes that a node waits for and that are not final."""
    return [other for other in node.waits_for() if other and not other.tasks]


def _reached(start: PendingTask, further: Callable[[PendingTask], Iterable[PendingTask]]) -> set[PendingTask]:
    """`start`, and all that one comes to from it."""
    seen, stack = {start}, [start]
    while stack:
        new = set(further(stack.pop())) - seen
        seen |= new
        stack.extend(new)
    return seen


def _makes(spec: TaskSpec, kind: str) -> bool:
    """A tool that does not say what it makes may make any kind."""
    if kind == "any" or not spec.outputs or spec.makes(kind):
        return True
    return kind == "file" and not MEDIA.isdisjoint(spec.outputs)
