"""Nodes: the tasks of a plan while it is being read, and what their ids mean.

    nodes = Nodes()
    nodes.add(node)
    nodes.meant(node, 0, "image")     # the node that `<resource>-0` means in an image argument of `node`
    nodes.ready(ended=False)          # the nodes that may be bound now

An id means the last task of that id that comes before the one that refers to it and, if there are several,
makes what the argument takes; if none comes before, the first that comes after. So what duplicate ids and
forward references mean does not depend on how much of the plan has been read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jarvis_agent.parsing.draft import Draft
from jarvis_agent.tools.spec import MEDIA, TaskSpec
from jarvis_agent.types import Task


@dataclass(eq=False, slots=True)
class Node:
    """A task of the plan on its way from a draft to final tasks.

    Attributes:
        raw: what its planner wrote.
        label: the id that other tasks know it by: what its planner wrote, or else its place in the plan.
        id: the id that it gets; the label wherever that is possible.
        draft: None while what was written can not be understood.
        error: why it is broken; "" if it is not.
        refused: ids that it can not refer to, each with the reason.
        needs: the nodes that it was bound to.
        tasks: empty until it is final; several if it fanned out.
        place: which one of the plan's nodes it is, counted from 0.
    """

    raw: dict[str, Any]
    label: int
    id: int
    draft: Draft | None = None
    error: str = ""
    refused: dict[int, str] = field(default_factory=dict)
    needs: tuple[Node, ...] = ()
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

    @property
    def mentions(self) -> tuple[tuple[int, str], ...]:
        """The ids that it refers to and may refer to, with the kinds of the arguments."""
        return tuple(m for m in self.draft.mentions if m[0] not in self.refused) if self.draft else ()

    def makes(self, kind: str) -> bool:
        """Whether its result can stand in an argument of this kind."""
        return self.draft is not None and _makes(self.draft.spec, kind)


class Nodes:
    """The nodes of one plan, in the order in which they were written."""

    def __init__(self) -> None:
        self.all: list[Node] = []
        self._by_label: dict[int, list[Node]] = {}

    def add(self, node: Node) -> None:
        """Append a node. What it writes about itself and about circles that it closes is refused."""
        node.place = len(self.all)
        if not self.labelled(node.label):
            node.refused[node.label] = "means the task itself"
        self.all.append(node)
        self._by_label.setdefault(node.label, []).append(node)
        self.break_circles(node)

    def labelled(self, label: int) -> list[Node]:
        """The nodes of that label."""
        return self._by_label.get(label, [])

    def meant(self, node: Node, label: int, kind: str) -> Node | None:
        """The node that an id means in an argument of this kind of `node`; None if there is none yet."""
        if label in node.refused:
            return None
        others = self.labelled(label)
        before = [other for other in others if other.place < node.place]
        if before:
            fitting = (other for other in reversed(before) if other.draft is None or other.makes(kind))
            return next(fitting, before[-1])
        return next((other for other in others if other is not node), None)

    def ready(self, *, ended: bool) -> list[Node]:
        """The nodes that are held and refer to final ones only; or to none at all, if the plan has ended."""
        return [node for node in self.all if node.held and self._is_ready(node, ended)]

    def break_circles(self, node: Node) -> None:
        """Refuse the references to later nodes by which `node` would come to wait for itself."""
        for earlier in self.all[: node.place]:
            for label, kind in earlier.mentions if earlier.held else ():
                if self.meant(earlier, label, kind) is node and self._reaches(node, earlier):
                    earlier.refused[label] = f"means {node}, which needs this task in turn"
        for label, kind in node.mentions:
            later = self.meant(node, label, kind)
            if later and later.place > node.place and self._reaches(later, node):
                node.refused[label] = f"means {later}, which needs this task in turn"

    def _is_ready(self, node: Node, ended: bool) -> bool:
        meant = (self.meant(node, label, kind) for label, kind in node.mentions)
        return all(ended if other is None else other.tasks for other in meant)

    def _reaches(self, start: Node, goal: Node) -> bool:
        """Whether `start` waits for `goal`, be it through others."""
        seen, stack = {start}, [start]
        while stack:
            node = stack.pop()
            if node is goal:
                return True
            meant = (self.meant(node, label, kind) for label, kind in node.mentions)
            ahead = {other for other in meant if other and not other.tasks} - seen
            seen |= ahead
            stack.extend(ahead)
        return False


def _makes(spec: TaskSpec, kind: str) -> bool:
    """A tool that does not say what it makes may make any kind."""
    if kind == "any" or not spec.outputs or spec.makes(kind):
        return True
    return kind == "file" and not MEDIA.isdisjoint(spec.outputs)
