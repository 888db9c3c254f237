"""StreamingPlanParser: read a plan while its planner is still writing it.

    parser = StreamingPlanParser(TASKS)
    for piece in stream:
        for task in parser.feed(piece):      # final: it may start now
            ...
    parser.finish()
    parser.errors                            # what only the planner can repair

The result is a valid plan for any text: ids are unique, each task comes after those it depends on, and
references point to tasks with an output of the required kind. Repairs are listed in `notes`. An emitted task
is never altered, and how the text is divided into pieces makes no difference.

Ids that the planner wrote are kept. A task without an id, or with a taken one, gets a new id from 100 up,
since the rest of the text may still use 3 or 4, but hardly 100.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from jarvis_agent.core.errors import PlanError
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Task
from jarvis_agent.llm.json_stream import JsonReader, ParsedValue, read_json
from jarvis_agent.planning.binding import bind
from jarvis_agent.planning.normalise import (
    MAX_TASKS,
    TaskNames,
    in_a_plan,
    is_task,
    read_draft,
    shorten,
    written_id,
)
from jarvis_agent.planning.pending import PendingTask, PendingTasks

_FIRST_FRESH_ID = 100
_AS_ID = re.compile(r"(?:task|node|step)?[-_ ]?[0-9]{1,3}", re.IGNORECASE)
"""A key that serves as the id of the task under it: {"1": {…}, "2": {…}}."""


@dataclass(frozen=True, slots=True)
class PlanParseError:
    """A part of a plan that only its planner can repair.

    Attributes:
        raw: the object or text as written.
        error: what is wrong with it.
    """

    raw: Any
    error: str


class StreamingPlanParser:
    """Reads a plan in pieces and returns each task as soon as it is final.

    A task is final when everything that it refers to is final. It waits for tasks that are not written yet,
    and for broken ones.
    """

    def __init__(
        self, specs: Mapping[str, TaskSpec], done: Iterable[Task] = (), taken: Iterable[int] = ()
    ) -> None:
        """Start a plan, or additions to one.

        Args:
            specs: the task types that the plan may use, by name.
            done: existing tasks that others may refer to; they are not returned.
            taken: ids that new tasks cannot get.
        """
        self._names = TaskNames(specs)
        self._reader = JsonReader()
        self._nodes = PendingTasks()
        self._tasks: list[Task] = []
        self._given_out = 0
        self._ids: set[int] = set()
        self._fresh_ids = itertools.count(_FIRST_FRESH_ID)
        self._notes: dict[str, None] = {}
        self._surplus = 0
        self._no_task: dict[str, Any] | None = None
        self._empty_on_purpose = False
        self._ended = False
        for task in done:
            self._add(task.model_dump(), "")
        self._given_out = len(self._tasks)
        self._ids.update(taken)

    def feed(self, piece: str) -> list[Task]:
        """Read a piece. Returns the tasks that became final."""
        for found in self._reader.feed(piece):
            self._take(found)
        return self._new()

    def finish(self) -> list[Task]:
        """The text has ended. Returns the rest of the tasks, but for those that need broken ones."""
        if not self._ended:
            for found in self._reader.close():
                self._take(found)
            self._ended = True
            self._settle()
        return self._new()

    @property
    def errors(self) -> list[PlanParseError]:
        """What the planner should write again; complete after `finish`."""
        if self._is_blank:
            return [PlanParseError(self._no_task or self._reader.prose, "it holds no JSON list of tasks")]
        return [PlanParseError(node.raw, node.error) for node in self._nodes.all if node.error]

    def apply_repair(self, reply: str) -> list[Task]:
        """Replace broken tasks by what the planner wrote instead. Returns the tasks that became final.

        Tasks are matched by id, and those without one by order. Valid tasks stay.
        """
        written = read_json(reply)
        if self._is_blank:
            self._ended = False
            for found in written:
                self._take(found)
            self._ended = True
        else:
            self._replace(
                [found.value for found in written if found.complete and isinstance(found.value, dict)]
            )
        self._settle()
        return self._new()

    def note(self, text: str) -> None:
        """Add a note to the plan."""
        self._notes[text] = None

    @property
    def tasks(self) -> list[Task]:
        """All tasks that are final so far."""
        return list(self._tasks)

    @property
    def notes(self) -> list[str]:
        """What was repaired and, after `finish`, what was left out."""
        return list(dict.fromkeys([*self._notes, *self._closing_notes()]))

    def _closing_notes(self) -> Iterator[str]:
        if self._reader.repairs:
            yield f"it was not valid JSON and was repaired: {', '.join(self._reader.repairs)}"
        if self._surplus:
            yield f"tasks left out: {self._surplus}, since a plan has at most {MAX_TASKS}"
        if self._is_blank:
            written = self._no_task or self._reader.prose
            yield f"the reply contains no plan: {f'“{shorten(written)}”' if written else '(no text)'}"
        elif self._no_task and self._nodes.all:
            yield f"this is not a task and was left out: {shorten(self._no_task)}"
        for node in self._nodes.all:
            if node.error:
                yield f"{node} was left out: {node.error}"
            elif node.is_blocked and self._ended:
                yield f"{node} was left out: it depends on a task that was left out"

    @property
    def _is_blank(self) -> bool:
        """Whether the text ended without tasks and without an empty list."""
        return self._ended and not self._nodes.all and not self._empty_on_purpose

    def _new(self) -> list[Task]:
        new = self._tasks[self._given_out :]
        self._given_out = len(self._tasks)
        return new

    def _take(self, found: ParsedValue) -> None:
        """Use a parsed value if it is a part of the plan."""
        value = found.value
        if not in_a_plan(found.path):
            return
        if not value:
            self._empty_on_purpose = self._empty_on_purpose or found.complete
        elif isinstance(value, dict) and is_task(value):
            key = found.path[-1] if found.path else ""
            if written_id(value) is None and _AS_ID.fullmatch(key):
                value = {"id": key, **value}
            self._add(value, "" if found.complete else "the text ends in the middle of it")
        elif isinstance(value, dict) and not (self._nodes.all and (self._no_task or _is_wrapper(value))):
            self._no_task = value

    def _add(self, raw: dict[str, Any], error: str) -> None:
        if self._surplus or self._room() < 1:
            self._surplus += 1
            return
        written = written_id(raw)
        if written is not None and any(node.raw == raw for node in self._nodes.labelled(written)):
            self.note(f"task {written} was written twice and is done once")
            return
        label = len(self._nodes.all) if written is None else written
        node = PendingTask(
            raw, label, self._fresh_id() if written is None or written in self._ids else written
        )
        self._ids.add(node.id)
        self._read(node, error)
        self._nodes.add(node)
        if node.id != written and not node.error:
            why = "it had no id" if written is None else f"its id {written} was taken"
            self.note(f"{node}: {why} and it got {node.id}")
        self._settle()

    def _replace(self, written: list[dict[str, Any]]) -> None:
        """Replace broken nodes by repaired ones."""
        broken = [node for node in self._nodes.all if node.error]
        pairs: list[tuple[PendingTask, dict[str, Any]]] = []
        unplaced = []
        for raw in (raw for raw in written if is_task(raw)):
            label = written_id(raw)
            own = next((node for node in broken if node.label == label), None)
            if own:
                broken.remove(own)
                pairs.append((own, raw))
            elif label is None or not self._nodes.labelled(label):
                unplaced.append(raw)
        for node, raw in [*pairs, *zip(broken, unplaced, strict=False)]:
            node.raw = raw
            self._read(node)
            self._nodes.renew(node)
            self.note(f"{node}: it was repaired by its planner")

    def _read(self, node: PendingTask, error: str = "") -> None:
        node.error, node.draft = error, None
        if not error:
            try:
                node.draft = read_draft(node.raw, self._names)
            except PlanError as wrong:
                node.error = str(wrong)

    def _settle(self) -> None:
        """Bind every task that can be bound."""
        while ready := self._nodes.ready(ended=self._ended):
            for node in ready:
                self._bind(node)

    def _bind(self, node: PendingTask) -> None:
        try:
            bound = bind(node, partial(self._nodes.meant, node), self._fresh_id, self._room() + 1)
        except PlanError as wrong:
            node.error = str(wrong)
            return
        node.tasks, node.needs = bound.tasks, bound.needs
        self._tasks.extend(bound.tasks)
        for note in bound.notes:
            self.note(f"{node}: {note}")

    def _room(self) -> int:
        """How many more tasks fit; each unbound node counts as one."""
        return MAX_TASKS - len(self._tasks) - sum(not node.tasks for node in self._nodes.all)

    def _fresh_id(self) -> int:
        fresh = next(i for i in self._fresh_ids if i not in self._ids)
        self._ids.add(fresh)
        return fresh


def _is_wrapper(value: Mapping[str, Any]) -> bool:
    return any(isinstance(part, list | dict) for part in value.values())
