"""Binding: turn a draft into tasks once everything that it refers to is known.

- A reference must point to a task with an output of the argument's kind. Otherwise it is replaced by the
  nearest task with one: the task's dependencies first, then their ancestors.
- A missing required argument is taken from the only dependency that makes its kind and has no other use.
- A list in an argument that takes one value fans out into separate tasks. A reference to such a task means
  all of them. Lists of the same length are zipped; others are combined.
- `dep` is what the planner wrote, united with the references in the arguments.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jarvis_agent.core.errors import PlanError
from jarvis_agent.core.file_mentions import LONGEST_PATH, is_name
from jarvis_agent.core.notes import Note
from jarvis_agent.core.references import listed_refs, ref, refs_in, substitute
from jarvis_agent.core.tasks.spec import MEDIA, Arg, split_kind
from jarvis_agent.core.text import SENTENCE_SEPARATORS, SEPARATORS, split_list
from jarvis_agent.core.types import Task
from jarvis_agent.media.detect import kind_by_name
from jarvis_agent.planning.inputs import FileNames
from jarvis_agent.planning.normalise import TaskDraft, TaskNames, kind_of, listing, read_draft

MAX_FAN_OUT = 64
"""Maximum number of tasks that one task fans out into, in the plan or while it runs."""

_KINDS = (*sorted(MEDIA), "text", "data", "any")
_FILES = MEDIA - {"table"}
"""The kinds whose values are never objects. In a table, {"url": …} may be a column."""
_LISTED = re.compile(r"[,;]|\band\b")


def bind(task: PendingTask, fresh_id: Callable[[], int], room: int, files: FileNames | None) -> list[str]:
    """Set the final tasks of a valid task, at most `room`, and those that it needs. Returns notes on repairs.

    If a reference cannot be repaired, a required argument is missing or a file does not exist, set its error.
    What it refers to is final, or needs it. Where a list fans out, further tasks get a `fresh_id`.
    """
    binding, limit = _Binding(task, files), min(room, MAX_FAN_OUT)
    try:
        rows = list(fan_out(binding.choices(), limit + 1))
    except PlanError as wrong:
        task.error = wrong.note
        return []
    if len(rows) > limit:
        task.cut = Note("its lists make more than {n} tasks; only the first {n} were kept", n=limit)
    ids = [task.id, *(fresh_id() for _ in rows[1:limit])]
    if len(ids) > 1:
        note, numbers = "its lists made {count} tasks of it: {numbers}", ", ".join(map(str, ids))
        binding.notes.append(Note(note, count=len(ids), numbers=numbers))
    deps, spec, purpose = binding.other_deps(set(refs_in(rows[:limit]))), binding.spec, binding.draft.purpose
    for i, args in zip(ids, rows, strict=False):
        dep = sorted({*refs_in(args), *deps}) or [-1]
        task.tasks.append(Task(task=spec.name, id=i, dep=dep, args=args, purpose=purpose))
    task.needs = [*binding.deps.values(), *binding.targets.values(), *binding.replaced.values()]
    return binding.notes


class _Binding:
    """What the references and dependencies of one draft mean."""

    def __init__(self, task: PendingTask, files: FileNames | None) -> None:
        assert task.draft is not None
        self.draft, self.spec, self.notes = task.draft, task.draft.spec, list(task.draft.notes)
        self._task, self._files = task, files
        self.deps: dict[int, PendingTask] = {}
        self.targets: dict[tuple[int, str], PendingTask] = {}
        self.replaced: dict[tuple[int, str], PendingTask] = {}
        for i in self.draft.deps:
            if target := self._resolve(i, "any"):
                self.deps[i] = target
            else:
                lost = "its dependency on {number} was left out: it {reason}"
                self.notes.append(Note(lost, number=i, reason=self._reason(i)))
        for name, value in self.draft.args.items():
            for i in refs_in(value):
                self._well_typed(i, kind_of(name, self.spec))

    def other_deps(self, referenced: set[int]) -> set[int]:
        """The ids in `dep`, each with all tasks that it fanned out into, unless an argument refers to it."""
        targets: dict[int, set[int]] = {}
        for (label, _), task in self.targets.items():
            targets.setdefault(label, set()).update(bound.id for bound in task.tasks)
        deps = (targets.get(label, {bound.id for bound in task.tasks}) for label, task in self.deps.items())
        return {i for ids in deps if referenced.isdisjoint(ids) for i in ids}

    def choices(self) -> dict[str, list[Any]]:
        """The values of each argument; several where the task fans out. Raises PlanError."""
        args: dict[str, list[Any]] = {}
        for name, value in self.draft.args.items():
            arg = self.spec.arg(name)
            if values := self._values(value, arg) if arg else [self._substitute(value, "any")]:
                args[name] = values
        self._assign(args)
        for arg in self.spec.inputs:
            if arg.required and arg.name not in args:
                args[arg.name] = self._values(self._missing(arg), arg)
        return {
            name: [self._named(value, self.spec.arg(name)) for value in values]
            for name, values in args.items()
        }

    def _named(self, value: Any, arg: Arg | None) -> Any:
        """The value with the names of available files. Raises PlanError if there is no such file."""
        if isinstance(value, list):
            return [self._named(item, arg) for item in value]
        if not isinstance(value, str) or self._files is None or arg is None or refs_in(value):
            return value
        is_text = arg.kind == "text" and self.spec.category != "tool"
        if arg.kind not in MEDIA and not (is_text and is_name(value)):
            return value
        file = self._files.find(value, arg.kind)
        if file != value:
            meant = '"{value}" was taken as its {name} "{file}"'
            self.notes.append(Note(meant, value=value, name=arg.name, file=file))
        return file

    def _values(self, value: Any, arg: Arg) -> list[Any]:
        """The value of an argument; several if it fans out, none if it is empty."""
        items = value if isinstance(value, list) else [value]
        are_texts = all(isinstance(item, str) for item in items)
        are_refs = are_texts and all(map(listed_refs, items))
        is_one_value = {
            "any": not are_refs,
            "data": not (arg.many or are_refs or isinstance(value, str)),
            "table": not (arg.many or are_texts),
        }
        if is_one_value.get(arg.kind):
            is_wrapped = arg.kind == "data" and len(items) == 1
            return [self._substitute(items[0] if is_wrapped else value, arg.kind)]
        if not arg.many:
            return list(self._items(items, arg))
        if isinstance(value, str) and not refs_in(value):
            parts = split_list(value, SENTENCE_SEPARATORS if arg.kind == "text" else SEPARATORS)
            items = parts if all(arg.kind in {"data", *self._kinds(part)} for part in parts) else items
        return [whole] if (whole := list(self._items(items, arg))) else []

    def _items(self, items: Iterable[Any], arg: Arg) -> Iterator[Any]:
        """The values in a list, with nested lists, listed references and objects around files flattened."""
        for item in items:
            if item is None or item == "":
                continue
            if isinstance(item, list):
                yield from self._items(item, arg)
            elif isinstance(item, dict) and arg.kind in _FILES and (len(item) == 1 or refs_in(item)):
                yield from self._items(item.values() if len(item) == 1 else map(ref, refs_in(item)), arg)
            elif not isinstance(item, str):
                bound = self._substitute(item, arg.kind)
                yield bound if arg.kind == "data" else _as_text(bound)
            elif listed := listed_refs(item):
                yield from self._refs(listed, arg.kind)
            elif parts := _listed(item, arg):
                for part in parts:
                    yield from self._refs(ids, arg.kind) if (ids := refs_in(part)) else [part]
            else:
                yield self._substitute(item.strip() if arg.many else item, arg.kind)

    def _refs(self, ids: Iterable[int], kind: str) -> Iterator[str]:
        return (ref(task.id) for n in dict.fromkeys(ids) for task in self._target(n, kind).tasks)

    def _substitute(self, value: Any, kind: str) -> Any:
        """The value with each reference replaced by the ids that it means."""
        return substitute(value, lambda n: ", ".join(self._refs([n], kind)))

    def _target(self, n: int, kind: str) -> PendingTask:
        """The task that a reference means. Raises PlanError if neither it nor an ancestor makes the kind."""
        if target := self._well_typed(n, kind) or self.replaced.get((n, kind)):
            return target
        wrong = Note("makes no {kind}", kind=kind) if self._resolve(n, kind) else self._reason(n)
        values = {"reference": ref(n), "kind": kind, "reason": wrong}
        nearest = self._nearest(kind)
        if nearest is None:
            raise PlanError("{reference} cannot be its {kind}: it {reason}", **values)
        instead = "{reference} {reason}; the {kind} of {task} was taken instead"
        self.notes.append(Note(instead, task=nearest.title, **values))
        self.replaced[n, kind] = nearest
        return nearest

    def _well_typed(self, n: int, kind: str) -> PendingTask | None:
        """The task that an id means, if it makes this kind."""
        target = self._resolve(n, kind)
        return self.targets.setdefault((n, kind), target) if target and target.makes(kind) else None

    def _nearest(self, kind: str) -> PendingTask | None:
        """The nearest ancestor that makes a kind; those that no argument uses yet come first."""
        used = set(self.targets.values())
        mentioned = (self._resolve(i, "any") for i, _ in self.draft.mentions)
        level = list(dict.fromkeys(other for other in mentioned if other))
        seen = set(level)
        while level:
            level.sort(key=lambda other: (other in used, -other.index))
            if target := next((other for other in level if other.makes(kind)), None):
                return target
            above = dict.fromkeys(further for other in level for further in other.needs)
            level = [other for other in above if other not in seen]
            seen.update(level)
        return None

    def _assign(self, args: dict[str, list[Any]]) -> None:
        """Give values without a known name to missing arguments of their kind.

        A value with another name is only used for a required argument.
        """
        left_out: list[Any] = []
        for name, value in self.draft.unassigned:
            kinds = self._kinds(value)
            free = [arg for arg in self.spec.inputs if arg.name not in args]
            fitting = [
                arg
                for arg in free
                if not kinds.isdisjoint(split_kind(arg.kind)) and (arg.required or not name)
            ]
            target = min(fitting, key=lambda arg: not arg.required, default=None)
            if target and (values := self._values(value, target)):
                args[target.name] = values
                taken = '{value} was taken as its "{name}"'
                self.notes.append(Note(taken, value=listing([name or value]), name=target.name))
            else:
                left_out.append(name or value)
        if left_out:
            self.notes.append(Note("unknown arguments were left out: {names}", names=listing(left_out)))

    def _kinds(self, value: Any) -> frozenset[str]:
        if isinstance(value, list) and value:
            return self._kinds(value[0]) | {"data"}
        if not isinstance(value, str):
            return frozenset({"data", "any"})
        if refs := refs_in(value):
            target = self._resolve(refs[0], "any")
            return frozenset(kind for kind in _KINDS if target and target.makes(kind))
        kind = kind_by_name(value[-LONGEST_PATH:].strip())
        if kind in MEDIA - {"file"}:
            return frozenset({kind, "file", "any", *(["text"] if " " in value.strip() else [])})
        return frozenset(_KINDS if "://" in value[:8] else ("text", "any"))

    def _missing(self, arg: Arg) -> str:
        """A reference for a missing argument. Raises PlanError unless one dependency fits."""
        used = [*self.targets.values(), *self.replaced.values()]
        makers = [i for i, task in self.deps.items() if task not in used and task.makes(arg.kind)]
        if len(makers) != 1:
            raise PlanError("its argument {name} is missing", name=f'"{arg.name}"')
        self.targets[makers[0], arg.kind] = self.deps[makers[0]]
        taken = 'its missing "{name}" was taken from {source}'
        self.notes.append(Note(taken, name=arg.name, source=self.deps[makers[0]].title))
        return ref(makers[0])

    def _resolve(self, n: int, kind: str) -> PendingTask | None:
        """The task that an id means, if it is final."""
        target = self._task.target(n, kind)
        return target if target and target.tasks else None

    def _reason(self, n: int) -> Note:
        """Why an id means no final task."""
        target = self._task.target(n, "any")
        if target is None:
            return Note("means no task of the plan")
        if target is self._task:
            return Note("means the task itself")
        return Note("means {task}, which depends on this task", task=target.title)


def _listed(text: str, arg: Arg) -> list[str]:
    """The parts of a list of files or references: "a.jpg and b.jpg", "<resource>-0, b.jpg"; [] for a text."""
    if arg.kind in MEDIA and refs_in(text):
        return [part.strip() for part in text.split(",") if part.strip()]
    if arg.kind not in MEDIA or len(text) > LONGEST_PATH:
        return []
    parts = [part.strip() for part in _LISTED.split(text)]
    return parts if len(parts) > 1 and {*map(kind_by_name, parts)} <= {*split_kind(arg.kind)} else []


def _as_text(value: Any) -> str:
    """JSON for a value where text is required. Raises PlanError if a key of it is a reference."""
    text = json.dumps(value, ensure_ascii=False)
    if unbound := set(refs_in(text)) - set(refs_in(value)):
        raise PlanError("{reference} is used as a key of an object", reference=ref(min(unbound)))
    return text


def fan_out(choices: Mapping[str, list[Any]], room: int) -> Iterator[dict[str, Any]]:
    """The arguments of each task, at most `room`, from the values of each argument."""
    lists = {name: values for name, values in choices.items() if len(values) > 1}
    in_step = len({len(values) for values in lists.values()}) == 1
    rows = zip(*lists.values(), strict=True) if in_step else itertools.product(*lists.values())
    for row in itertools.islice(rows, room):
        picked = dict(zip(lists, row, strict=True))
        yield {name: picked.get(name, values[0]) for name, values in choices.items()}


@dataclass(eq=False, slots=True)
class PendingTask:
    """A task of the plan that is not final yet, or its final tasks.

    Attributes:
        label: the id that other tasks use for it: the written one, or else its index.
        id: its final id; the label unless that is taken.
        index: its place in the text of the plan, whose tasks are in `plan` by label, in this order.
        raw: the object that the planner wrote, and `draft` what was read; None if it is invalid.
        error: why it is invalid, or cannot be bound.
        tasks: empty until it is final; several if it fanned out. `needs` are those that it was bound to.
        cut: which of the tasks that its lists make were left out, or "".
    """

    label: int
    id: int
    index: int
    plan: Mapping[int, Sequence[PendingTask]]
    raw: dict[str, Any] = field(default_factory=dict)
    draft: TaskDraft | None = None
    error: str = ""
    tasks: list[Task] = field(default_factory=list)
    needs: list[PendingTask] = field(default_factory=list)
    cut: str = ""

    @property
    def title(self) -> Note:
        """Its number and its task type."""
        if self.draft:
            return Task(id=self.id, task=self.draft.spec.name).title
        if self.id == self.label:
            return Note("task {number}", number=self.id)
        return Note("task number {number}", number=self.index + 1)

    def read(self, raw: dict[str, Any], names: TaskNames, error: str = "") -> None:
        """Take what the planner wrote, unless it has an error already."""
        self.raw, self.draft, self.error = raw, None, error
        if not error:
            try:
                self.draft = read_draft(raw, names)
            except PlanError as wrong:
                self.error = wrong.note

    @property
    def is_blocked(self) -> bool:
        """Whether it is valid and not final."""
        return not self.tasks and not self.error

    def makes(self, kind: str) -> bool:
        """Whether its output can be used in an argument of this kind. Tools without outputs make any."""
        if self.draft is None:
            return False
        if kind == "any" or not self.draft.spec.outputs:
            return True
        return any(map(self.draft.spec.makes, (*MEDIA, "text") if kind == "file" else (kind,)))

    def target(self, label: int, kind: str) -> PendingTask | None:
        """The task that an id means in an argument of this kind.

        It is the last earlier one; among several, the last that makes the kind. Without an earlier one, it is
        this task itself or the first later one.
        """
        same = self.plan.get(label, ())
        if earlier := [other for other in same if other.index < self.index]:
            fitting = (other for other in reversed(earlier) if other.draft is None or other.makes(kind))
            return next(fitting, earlier[-1])
        return same[0] if same else None
