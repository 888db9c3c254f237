"""Binding: a draft becomes tasks, once everything that it refers to is known.

    bound = bind(node, find, fresh_id, room)
    bound.tasks      # one task; several where a list fans out
    bound.notes      # what was mended on the way

- A reference must point at a task that makes the kind of thing that the argument takes. If it does not, it
  is mended to the nearest task that does: first among the task's dependencies, then among their ancestors.
- A missing required argument is taken from the one dependency that makes its kind and has no other use.
- A list in an argument that takes one thing fans out into tasks of their own, and a reference to such a task
  means all of them. Lists of one length in several arguments go in step; others are combined.
- An object around a file ({"url": "<resource>-0"}) is taken off.
- A task's `dep` is what its planner wrote, together with what its arguments refer to.
"""

from __future__ import annotations

import itertools
import json
import mimetypes
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jarvis_agent.core.errors import PlanError
from jarvis_agent.planning.normalise import TaskDraft, kind_of, listing
from jarvis_agent.planning.pending import PendingTask
from jarvis_agent.core.references import listed_refs, ref, refs_in, substitute
from jarvis_agent.core.tasks.spec import MEDIA, Arg
from jarvis_agent.core.types import Task

MAX_FAN_OUT = 64
"""Tasks that one task with lists in its arguments may become."""

_LONGEST_NAME = 1000
_KINDS = (*sorted(MEDIA), "text", "data", "any")
_FILES = MEDIA - {"table"}
"""The kinds of which no value is an object: {"url": …} means the file; in a table it may be a column."""

_URL = re.compile(r"https?://", re.IGNORECASE)
_LISTED = re.compile(r"[,;]|\band\b")


Find = Callable[[int, str], PendingTask | None]
"""Gives the final node that an id means in an argument of a kind; None if there is none."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What a draft became: its tasks, the nodes that they need, and what was mended."""

    tasks: tuple[Task, ...]
    needs: tuple[PendingTask, ...]
    notes: tuple[str, ...]


def bind(node: PendingTask, find: Find, fresh_id: Callable[[], int], room: int) -> Bound:
    """Turn a node's draft into tasks.

    Args:
        node: its draft is there, and what it mentions is final or will never be.
        find: the nodes that ids mean for it.
        fresh_id: gives ids for further tasks where a list fans out.
        room: how many tasks there is room for; at least 1.

    Raises:
        PlanError: a reference can not be mended, or a required argument is missing.
    """
    assert node.draft is not None
    binding = _Binding(node, node.draft, find)
    limit = min(room, MAX_FAN_OUT)
    rows = list(_fanned(binding.choices(), limit + 1))
    if len(rows) > limit:
        binding.notes.append(f"its lists make more than {limit} tasks; only the first {limit} were kept")
    ids = [node.id, *(fresh_id() for _ in rows[1:limit])]
    if len(ids) > 1:
        binding.notes.append(f"its lists made {len(ids)} tasks of it: {', '.join(map(str, ids))}")
    further = binding.further_deps(set(refs_in(rows[:limit])))
    tasks = tuple(
        Task(task=node.draft.spec.name, id=i, dep=sorted({*refs_in(args), *further}) or [-1], args=args)
        for i, args in zip(ids, rows, strict=False)
    )
    return Bound(tasks, binding.needs, tuple(binding.notes))


class _Binding:
    """The binding of one draft: what its references and dependencies mean."""

    def __init__(self, node: PendingTask, draft: TaskDraft, find: Find) -> None:
        self.notes = list(draft.notes)
        self._node = node
        self._draft = draft
        self._find = find
        self._written: dict[int, PendingTask] = {}
        self._meant: dict[tuple[int, str], PendingTask] = {}
        self._mended: dict[tuple[int, str], PendingTask] = {}
        for i in draft.deps:
            if found := find(i, "any"):
                self._written[i] = found
            else:
                self.notes.append(f"its dependency on {i} was left out: it {self._why_not(i)}")
        for name, value in draft.args.items():
            for i in refs_in(value):
                self._well_typed(i, kind_of(name, draft.spec))

    @property
    def needs(self) -> tuple[PendingTask, ...]:
        """Every node that it was bound to."""
        return tuple(dict.fromkeys((*self._written.values(), *self._meant.values(), *self._mended.values())))

    def further_deps(self, taken: set[int]) -> set[int]:
        """What its tasks depend on beside what their arguments refer to; `taken` are the ids in any of these.

        An id that the planner wrote means every task that it fanned out into, unless some argument takes it:
        then it is a dependency of those that have this argument alone.
        """
        meant: dict[int, set[int]] = {}
        for (label, _), node in self._meant.items():
            meant.setdefault(label, set()).update(node.ids)
        theirs = (meant.get(label, set(node.ids)) for label, node in self._written.items())
        return {task_id for ids in theirs if taken.isdisjoint(ids) for task_id in ids}

    def choices(self) -> dict[str, list[Any]]:
        """For each argument the values that it takes: several where the task is to fan out.

        Raises:
            PlanError: a reference can not be mended, or a required argument is missing.
        """
        spec = self._draft.spec
        args: dict[str, list[Any]] = {}
        for name, value in self._draft.args.items():
            arg = spec.arg(name)
            if values := self._values(value, arg) if arg else [self._inside(value, "any")]:
                args[name] = values
        self._place(args)
        for arg in spec.inputs:
            if arg.required and arg.name not in args:
                args[arg.name] = self._values(self._missing(arg), arg)
        return args

    def _values(self, value: Any, arg: Arg) -> list[Any]:
        """The value of an argument; several if it fans out into them, none if there is nothing in it."""
        items = value if isinstance(value, list) else [value]
        texts = all(isinstance(item, str) for item in items)
        if arg.kind == "any" and not (texts and all(map(listed_refs, items))):
            return [self._inside(value, arg.kind)]
        if arg.kind == "data" and not arg.many and isinstance(value, list) and not all(map(_is_ref, items)):
            return [self._inside(items[0] if len(items) == 1 else value, arg.kind)]
        if arg.kind in ("data", "table") and not arg.many and not texts:
            return [self._inside(value, arg.kind)]
        if not arg.many:
            return list(self._items(items, arg))
        if isinstance(value, str) and not refs_in(value):
            parts = value.split(",")
            items = parts if all(arg.kind in {"data", *self._kinds(part)} for part in parts) else items
        whole = list(self._items(items, arg))
        return [whole] if whole else []

    def _items(self, items: Iterable[Any], arg: Arg) -> Iterator[Any]:
        """The single values in a list: nested lists, listed references, and objects around files taken apart.

        Raises:
            PlanError: a reference can not be mended, or stands for a name in an object.
        """
        for item in items:
            if item is None or item == "":
                continue
            if isinstance(item, list):
                yield from self._items(item, arg)
            elif isinstance(item, str) and (listed := listed_refs(item)):
                yield from (ref(i) for n in dict.fromkeys(listed) for i in self._target(n, arg.kind).ids)
            elif isinstance(item, str) and arg.kind in MEDIA and refs_in(item):
                yield from self._files(item, arg)
            elif isinstance(item, str):
                values = _listed_files(item, arg) or [item.strip() if arg.many else item]
                yield from (self._inside(value, arg.kind) for value in values)
            elif isinstance(item, dict) and arg.kind in _FILES and len(item) == 1:
                yield from self._items(item.values(), arg)
            elif isinstance(item, dict) and arg.kind in _FILES and refs_in(item):
                yield from self._items(map(ref, refs_in(item)), arg)
            else:
                bound = self._inside(item, arg.kind)
                yield bound if arg.kind == "data" else _as_text(bound)

    def _files(self, text: str, arg: Arg) -> Iterator[str]:
        """References and files in one text: "<resource>-0, b.jpg". Words around a reference are no file."""
        for part in text.split(","):
            found = refs_in(part)
            yield from (ref(i) for n in found for i in self._target(n, arg.kind).ids)
            if not found and part.strip():
                yield part.strip()

    def _inside(self, value: Any, kind: str) -> Any:
        """The value with each reference in it put as the ids that it means."""

        def put(n: int) -> str:
            return ", ".join(ref(i) for i in self._target(n, kind).ids)

        return substitute(value, put)

    def _target(self, n: int, kind: str) -> PendingTask:
        """The node that a reference in an argument of this kind means.

        Raises:
            PlanError: it makes no such thing, and neither does any task before this one.
        """
        known = self._well_typed(n, kind) or self._mended.get((n, kind))
        if known:
            return known
        wrong = f"makes no {kind}" if self._find(n, kind) else self._why_not(n)
        nearest = self._nearest(kind)
        if nearest is None:
            raise PlanError(f"{ref(n)} can not be its {kind}: it {wrong}")
        self.notes.append(f"{ref(n)} {wrong}; the {kind} of {nearest} was taken instead")
        self._mended[n, kind] = nearest
        return nearest

    def _well_typed(self, n: int, kind: str) -> PendingTask | None:
        """The node that an id means, if it makes this kind."""
        found = self._find(n, kind)
        if found is None or not found.makes(kind):
            return None
        return self._meant.setdefault((n, kind), found)

    def _nearest(self, kind: str) -> PendingTask | None:
        """The nearest node before this one that makes a kind; those that no argument uses yet come first."""
        used = set(self._meant.values())
        mentioned = (self._find(i, "any") for i, _ in self._draft.mentions)
        level = list(dict.fromkeys(other for other in mentioned if other))
        seen = set(level)
        while level:
            level.sort(key=lambda other: (other in used, -other.place))
            found = next((other for other in level if other.makes(kind)), None)
            if found:
                return found
            above = dict.fromkeys(further for other in level for further in other.needs)
            level = [other for other in above if other not in seen]
            seen.update(level)
        return None

    def _place(self, args: dict[str, list[Any]]) -> None:
        """Give values without a known name to the arguments that are missing, by their kind.

        One with a name of its own is taken only for an argument that must be there.
        """
        left_out: list[Any] = []
        for name, value in self._draft.loose:
            kinds = self._kinds(value)
            free = [arg for arg in self._draft.spec.inputs if arg.name not in args]
            fitting = [arg for arg in free if arg.kind in kinds and (arg.required or not name)]
            target = min(fitting, key=lambda arg: not arg.required, default=None)
            if target is None:
                left_out.append(name or value)
                continue
            args[target.name] = self._values(value, target)
            self.notes.append(f'{listing([name or value])} was taken as its "{target.name}"')
        if left_out:
            self.notes.append(f"what it has no place for was left out: {listing(left_out)}")

    def _kinds(self, value: Any) -> frozenset[str]:
        """The kinds that a value may be of."""
        if isinstance(value, list) and value:
            return self._kinds(value[0]) | {"data"}
        if not isinstance(value, str):
            return frozenset({"data", "any"})
        if refs := refs_in(value):
            made = self._find(refs[0], "any")
            return frozenset(kind for kind in _KINDS if made and made.makes(kind))
        kind = (mimetypes.guess_type(value[-_LONGEST_NAME:].strip())[0] or "").partition("/")[0]
        if kind in MEDIA:
            return frozenset({kind, "file", "any", *(["text"] if " " in value.strip() else [])})
        return frozenset(_KINDS if _URL.match(value) else ("text", "any"))

    def _missing(self, arg: Arg) -> str:
        """A reference for a required argument that was not given.

        Raises:
            PlanError: there is not exactly one dependency that it can come from.
        """
        used = {*self._meant.values(), *self._mended.values()}
        makers = [i for i, node in self._written.items() if node not in used and node.makes(arg.kind)]
        if len(makers) != 1:
            raise PlanError(f'its argument "{arg.name}" is missing')
        self._meant[makers[0], arg.kind] = self._written[makers[0]]
        self.notes.append(f'its missing "{arg.name}" was taken from {self._written[makers[0]]}')
        return ref(makers[0])

    def _why_not(self, n: int) -> str:
        return self._node.refused.get(n, "means no task of the plan")


def _listed_files(text: str, arg: Arg) -> list[str]:
    """The files in a text that is nothing but their names: "a.jpg, b.jpg". [] if it is anything else."""
    if arg.kind not in MEDIA or len(text) > _LONGEST_NAME:
        return []
    parts = [part.strip() for part in _LISTED.split(text)]
    kinds = {(mimetypes.guess_type(part)[0] or "").partition("/")[0] for part in parts}
    return parts if len(parts) > 1 and kinds == {arg.kind} else []


def _is_ref(item: Any) -> bool:
    return isinstance(item, str) and bool(listed_refs(item))


def _as_text(value: Any) -> str:
    """A value that is no text where a text is taken: its JSON.

    Raises:
        PlanError: it refers to a task by a name in an object, which binding leaves as it is.
    """
    text = json.dumps(value, ensure_ascii=False)
    unbound = set(refs_in(text)) - set(refs_in(value))
    if unbound:
        raise PlanError(f"{ref(min(unbound))} stands where a name in an object belongs")
    return text


def _fanned(choices: Mapping[str, list[Any]], room: int) -> Iterator[dict[str, Any]]:
    """The arguments of each task that the lists make."""
    lists = {name: values for name, values in choices.items() if len(values) > 1}
    in_step = len({len(values) for values in lists.values()}) == 1
    rows = zip(*lists.values(), strict=True) if in_step else itertools.product(*lists.values())
    for row in itertools.islice(rows, room):
        picked = dict(zip(lists, row, strict=True))
        yield {name: picked.get(name, values[0]) for name, values in choices.items()}
