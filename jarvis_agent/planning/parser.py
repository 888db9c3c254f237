"""StreamingPlanParser: read a plan while its planner is still writing it.

    parser = StreamingPlanParser(TASKS)
    tasks = [task for piece in stream for task in parser.feed(piece)]      # final: they may start now
    tasks += parser.finish()
    parser.errors                                                          # what only the planner can repair

The result is a valid plan for any text, however it is divided, and an emitted task is never altered. Ids
that the planner wrote are kept. A task without an id, or with a taken one, gets a new id from 100 up: the
text may still use 3 or 4.
"""

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from jarvis_agent.core.notes import Note
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.text import brief_text
from jarvis_agent.core.types import PREFERENCES, Preference, Task
from jarvis_agent.llm.replies import JsonPart, JsonReader, read_json
from jarvis_agent.planning.binding import PendingTask, bind
from jarvis_agent.planning.inputs import FileNames
from jarvis_agent.planning.normalise import MAX_TASKS, TaskNames, in_a_plan, is_task, written_id

_FIRST_FRESH_ID = 100
LEFT_OUT, _ABOUT_TASK = "{task} was left out: {reason}", "{task}: {text}"
_ID_KEY = re.compile(r"(?:task|node|step)?[-_ ]?[0-9]{1,3}", re.IGNORECASE)
"""A key that serves as the id of the task under it: {"1": {…}, "2": {…}}."""


class PlanParseError(NamedTuple):
    """A part of a plan, as written, that only its planner can repair, and what is wrong with it."""

    raw: Any
    error: str


class StreamingPlanParser:
    """Reads a plan in pieces and returns each task as soon as it is final.

    A task is final when everything that it refers to is final. One that refers to a later task waits for the
    end of the text, and one that refers to a broken task for its repair.
    """

    def __init__(
        self,
        specs: Mapping[str, TaskSpec],
        done: Iterable[Task] = (),
        taken: Iterable[int] = (),
        files: FileNames | None = None,
    ) -> None:
        """Start a plan that may use the task types `specs` and name the `files`; None: any.

        It may refer to tasks that are `done`, which are not returned. New tasks get no id that is `taken`.
        """
        self._names = TaskNames(specs)
        self._files: FileNames | None = None
        self._reader = JsonReader()
        self._pending: list[PendingTask] = []
        self._by_label: dict[int, list[PendingTask]] = {}
        self._tasks: list[Task] = []
        self._done = self._emitted = 0
        self._ids: set[int] = set()
        self._fresh_ids = itertools.count(_FIRST_FRESH_ID)
        self.preference: Preference | None = None
        self._notes: dict[str, None] = {}
        self._removed: dict[str, None] = {}
        self._dropped = 0
        self._other_object: dict[str, Any] | None = None
        self._has_empty_list = self._is_unwanted = self._ended = False
        for task in done:
            self._add(task.model_dump(), "")
        self._done = len(self._pending)
        self._notes.clear()
        self._emitted = len(self._tasks)
        self._ids.update(taken)
        self._files = files

    def feed(self, piece: str) -> list[Task]:
        """Read a piece. Returns the tasks that became final."""
        self._read(self._reader.feed(piece))
        return self._emit()

    def finish(self) -> list[Task]:
        """The text has ended. Returns the rest of the tasks, but for those that need broken ones."""
        if not self._ended:
            self._read(self._reader.close())
            self._ended = True
            self._bind_waiting()
        return self._emit()

    def apply_repair(self, reply: str) -> list[Task]:
        """Replace broken tasks by what the planner wrote instead. Returns the tasks that became final.

        Tasks are matched by id, and those without one by order. Valid tasks stay. After an empty list, the
        broken tasks beside them are not wanted: they are noted, but are nothing that the plan lacks.
        """
        parts = read_json(reply)
        if self._is_blank:
            self._ended = False
            self._read(parts)
            self._ended = True
        else:
            written = [part.value for part in parts if part.is_complete and isinstance(part.value, dict)]
            self._is_unwanted = bool(parts and self._tasks) and not any(map(is_task, written))
            self._replace(written)
        self._bind_waiting()
        return self._emit()

    def note(self, text: str, *, is_removal: bool = False) -> None:
        """Add a note to the plan; a removal is a note on what the plan lacks."""
        (self._removed if is_removal else self._notes)[text] = None

    @property
    def tasks(self) -> list[Task]:
        """All tasks that are final so far."""
        return list(self._tasks)

    @property
    def errors(self) -> list[PlanParseError]:
        """What the planner should write again; complete after `finish`."""
        if self._is_blank:
            written = self._other_object or self._reader.excerpt
            return [PlanParseError(written, "it holds no JSON list of tasks")]
        return [PlanParseError(task.raw, task.error) for task in self._new if task.error]

    @property
    def notes(self) -> list[str]:
        """What was repaired and, after `finish`, what was left out."""
        closing = [self._reader.note] if self._reader.note else []
        if self._other_object and self._pending:
            text = brief_text(str(self._other_object), 80)
            closing.append(Note("this is not a task and was left out: {text}", text=text))
        return list(dict.fromkeys([*self._notes, *closing, *self._removed, *self._removals()]))

    @property
    def removed(self) -> list[str]:
        """Those notes that are about what was left out."""
        return list(dict.fromkeys([*self._removed, *(() if self._is_unwanted else self._removals())]))

    def _removals(self) -> Iterator[str]:
        if self._dropped:
            dropped = "tasks left out: {number}, since a plan has at most {most}"
            yield Note(dropped, number=self._dropped, most=MAX_TASKS)
        if self._is_blank:
            written = self._other_object or self._reader.excerpt
            text = f"“{brief_text(str(written), 80)}”" if written else "(no text)"
            yield Note("the reply contains no plan: {text}", text=text)
        for task in self._new:
            if task.error:
                yield Note(LEFT_OUT, task=task.title, reason=task.error)
            elif task.is_blocked and self._ended:
                yield Note(LEFT_OUT, task=task.title, reason=Note("it depends on a task that was left out"))
            elif task.cut:
                yield Note(_ABOUT_TASK, task=task.title, text=task.cut)

    @property
    def _new(self) -> list[PendingTask]:
        """The tasks of the text, without those that existed."""
        return self._pending[self._done :]

    @property
    def _is_blank(self) -> bool:
        """Whether the text ended without tasks and without an empty list."""
        return self._ended and not self._new and not self._has_empty_list

    def _emit(self) -> list[Task]:
        new = self._tasks[self._emitted :]
        self._emitted = len(self._tasks)
        return new

    def _read(self, parts: Iterable[JsonPart]) -> None:
        """Add the parts that are tasks, and note the preference of the plan."""
        self._note_preference(self._reader.fields)
        for value, path, is_complete in parts:
            if not in_a_plan(path):
                continue
            self._note_preference(value)
            if not value:
                self._has_empty_list |= is_complete
            elif isinstance(value, dict) and is_task(value):
                has_key = path and written_id(value) is None and _ID_KEY.fullmatch(path[-1])
                raw = {"id": path[-1], **value} if has_key else value
                self._add(raw, "" if is_complete else Note("the text ends in the middle of it"))
            elif isinstance(value, dict):
                is_wrapper = any(isinstance(part, list | dict) for part in value.values())
                if not (self._pending and (self._other_object or is_wrapper)):
                    self._other_object = value

    def _note_preference(self, value: Any) -> None:
        if isinstance(value, dict) and value.get("preference") in PREFERENCES:
            self.preference = value["preference"]

    def _add(self, raw: dict[str, Any], error: str) -> None:
        if self._dropped or self._room() < 1:
            self._dropped += 1
            return
        written = written_id(raw)
        if written is not None and any(task.raw == raw for task in self._by_label.get(written, ())):
            self.note(Note("task {number} was written twice and is done once", number=written))
            return
        index = len(self._pending)
        label = index if written is None else written
        free = None if written in self._ids else written
        task = PendingTask(label, self._fresh_id() if free is None else free, index, self._by_label)
        self._ids.add(task.id)
        task.read(raw, self._names, error)
        self._pending.append(task)
        self._by_label.setdefault(label, []).append(task)
        if task.id != written and not task.error:
            got = (
                "it had no id and it got {id}"
                if written is None
                else "its id {taken} was taken and it got {id}"
            )
            self.note(Note(_ABOUT_TASK, task=task.title, text=Note(got, id=task.id, taken=written or 0)))
        self._bind_if_ready(task)

    def _replace(self, values: Iterable[dict[str, Any]]) -> None:
        """Replace broken tasks by repaired ones: those with their ids, then the others in order."""
        broken = [task for task in self._pending if task.error]
        pairs: list[tuple[PendingTask, dict[str, Any]]] = []
        unmatched: list[dict[str, Any]] = []
        for raw in filter(is_task, values):
            label = written_id(raw)
            if match := next((task for task in broken if task.label == label), None):
                broken.remove(match)
                pairs.append((match, raw))
            elif label is None or label not in self._by_label:
                unmatched.append(raw)
        for task, raw in [*pairs, *zip(broken, unmatched, strict=False)]:
            task.read(raw, self._names)
            self.note(Note(_ABOUT_TASK, task=task.title, text=Note("it was repaired by its planner")))

    def _targets(self, task: PendingTask) -> list[PendingTask | None]:
        """The tasks that a task refers to; None for ids without one."""
        mentions = task.draft.mentions if task.draft else ()
        return [task.target(label, kind) for label, kind in mentions]

    def _bind_if_ready(self, task: PendingTask, begun: Collection[PendingTask] = ()) -> None:
        """Bind a task if all that it refers to is final, or in `begun`."""
        targets = self._targets(task)
        is_final = (t.tasks or t in begun if t else self._ended for t in targets)
        if task.is_blocked and all(is_final):
            for note in bind(task, self._fresh_id, self._room() + 1, self._files):
                self.note(Note(_ABOUT_TASK, task=task.title, text=note))
            self._tasks.extend(task.tasks)

    def _bind_waiting(self) -> None:
        """Bind the tasks that waited for the end after what they refer to; of a circle, the last one last."""
        visited, begun = set[PendingTask](), set[PendingTask]()

        def visit(task: PendingTask) -> None:
            if not task.is_blocked or task in visited:
                return
            visited.add(task)
            begun.add(task)
            for target in filter(None, self._targets(task)):
                visit(target)
            self._bind_if_ready(task, begun)
            begun.remove(task)

        for task in self._pending:
            self._bind_if_ready(task)
        for task in reversed(self._pending):
            visit(task)

    def _room(self) -> int:
        """How many more tasks fit; each unbound one counts as one."""
        return MAX_TASKS - len(self._tasks) - sum(not task.tasks for task in self._pending)

    def _fresh_id(self) -> int:
        fresh = next(i for i in self._fresh_ids if i not in self._ids)
        self._ids.add(fresh)
        return fresh
