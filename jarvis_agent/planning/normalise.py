"""Normalise one task of a plan: canonical names of keys, tasks, arguments and references.

read_draft({"tool": "ASR", "task_id": "task_3", "parameters": {"speech": "a.wav"}}, TaskNames(TASKS))
# TaskDraft(spec=TASKS["automatic-speech-recognition"], deps=(), args={"audio": "a.wav"}, …)
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from jarvis_agent.core.errors import PlanError
from jarvis_agent.core.notes import Note
from jarvis_agent.core.references import is_nameless, normalise_references, refs_in
from jarvis_agent.core.tasks.registry import canonical, find_task
from jarvis_agent.core.tasks.spec import ARG_ALIASES, TaskSpec
from jarvis_agent.core.tasks.table import NOT_CALLABLE
from jarvis_agent.core.text import brief_text
from jarvis_agent.llm.replies import read_json

MAX_TASKS = 256
"""Maximum number of tasks of a plan; the rest is left out."""

WHAT_IT_NEEDS = "`jarvis tasks` says what it needs"
"""Advice on a task type that exists and is not available."""

_TASK_KEYS = ("task", "tool", "taskname", "toolname", "tasktype")
_NAME_KEYS = (*_TASK_KEYS, "name", "action", "function", "type")
_ID_KEYS = ("id", "taskid", "nodeid", "step", "stepid")
_DEP_KEYS = ("dep", "deps", "dependson", "dependencies", "dependency", "depend")
_INPUT_KEYS = ("input", "inputs", "actioninput", "toolinput")
_ARG_KEYS = ("args", "arguments", "parameters", "params", "kwargs", *_INPUT_KEYS)
_KEYS = frozenset({*_NAME_KEYS, *_ID_KEYS, *_DEP_KEYS, *_ARG_KEYS})

_READERS = frozenset({"ocr", "optical-character-recognition"})
"""Names of image-to-text that ask for the text of the image."""

_LONGEST_ID, _MAX_PURPOSE_CHARS = 9, 200
_SIMILAR, _MISSPELT = 0.5, 0.9
_NO_DEP = frozenset({"", "none", "null", "n/a", "[]"})


@dataclass(frozen=True, slots=True)
class TaskDraft:
    """A task with canonical names whose references are not bound yet.

    `unassigned` are values without a known name, each with its written name or "". `mentions` are the ids
    that it refers to, with the kind of the argument ("any" for `deps`).
    """

    spec: TaskSpec
    deps: tuple[int, ...]
    args: Mapping[str, Any]
    unassigned: tuple[tuple[str, Any], ...]
    mentions: tuple[tuple[int, str], ...]
    notes: tuple[str, ...]
    purpose: str = ""


class TaskNames:
    """Finds available task types by name, alias or misspelt name."""

    def __init__(self, specs: Mapping[str, TaskSpec]) -> None:
        aliases = {canonical(alias): spec for spec in specs.values() for alias in spec.aliases}
        self._specs = specs
        self._spellings = aliases | {canonical(name): spec for name, spec in specs.items()}

    def find(self, name: str) -> TaskSpec | None:
        """The task type with this name, alias or similar name; None if there is none."""
        if found := self._specs.get(name) or self._spellings.get(canonical(name)):
            return found
        if find_task(name) or canonical(name) in NOT_CALLABLE:
            return None  # A known task that is not available is not a misspelling of another.
        return next(iter(self.resembling(name, _MISSPELT)), None)

    def resembling(self, name: str, least: float = _SIMILAR) -> list[TaskSpec]:
        """Up to three task types with similar names, the closest first."""
        close = difflib.get_close_matches(canonical(name), self._spellings, 3, least)
        return list(dict.fromkeys(self._spellings[spelling] for spelling in close))


def in_a_plan(path: tuple[str, ...]) -> bool:
    """Whether a value under these keys may be a task or a list of tasks, and not a part of a task."""
    return not any(_plain_key(key) in _ARG_KEYS or _plain_key(key) in _DEP_KEYS for key in path)


def is_task(raw: Mapping[str, Any]) -> bool:
    """Whether an object is a task, and not for example a wrapper around tasks."""
    has_args, has_place = (_field(raw, keys) is not None for keys in (_ARG_KEYS, (*_ID_KEYS, *_DEP_KEYS)))
    meant = isinstance(_field(raw, _NAME_KEYS if has_args else _TASK_KEYS), str) or (has_args and has_place)
    return meant and not any(
        isinstance(item, dict) and is_task(item)
        for key, value in raw.items()
        if isinstance(value, list) and _plain_key(key) not in _ARG_KEYS
        for item in value
    )


def written_id(raw: Mapping[str, Any]) -> int | None:
    """The id of a written task; None if it is missing or invalid."""
    value = _field(raw, _ID_KEYS)
    numbers = _numbers(value[-40:] if isinstance(value, str) else value)
    return numbers[-1] if numbers and numbers[-1] >= 0 else None


def read_draft(raw: Mapping[str, Any], names: TaskNames) -> TaskDraft:
    """Normalise a written task. Raises PlanError: no available task type, or too many references."""
    notes: list[str] = []
    spec = _spec(raw, names, notes)
    deps = _deps(_field(raw, _DEP_KEYS), notes)
    args, unassigned = _args(raw, spec, notes)
    if spec.name == "image-to-text" and canonical(str(_field(raw, _NAME_KEYS))) in _READERS:
        args.setdefault("text", "read")
    mentions: list[tuple[int, str]] = [(i, "any") for i in deps]
    mentions += [(i, kind_of(name, spec)) for name, value in args.items() for i in refs_in(value)]
    mentions += [(i, "any") for _, value in unassigned for i in refs_in(value)]
    if len({i for i, _ in mentions}) > MAX_TASKS:
        raise PlanError("it refers to more tasks than the {number} that a plan may have", number=MAX_TASKS)
    purpose = _field(raw, ("purpose",)) if spec.needs_model and not spec.arg("purpose") else None
    purpose = brief_text(purpose, _MAX_PURPOSE_CHARS - len(" …")) if isinstance(purpose, str) else ""
    return TaskDraft(spec, deps, args, unassigned, tuple(dict.fromkeys(mentions)), tuple(notes), purpose)


def kind_of(name: str, spec: TaskSpec) -> str:
    """The kind of an argument; "any" if the task has no such argument."""
    arg = spec.arg(name)
    return arg.kind if arg else "any"


def _field(raw: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    """The value under the first of these keys."""
    plain = {_plain_key(key): value for key, value in raw.items()}
    return next((plain[key] for key in keys if key in plain), None)


def _plain_key(key: str) -> str:
    """A key in the form of the tables above: "taskName" and "Task_name" → "taskname"."""
    if key.isalpha() and key.islower():  # Most are, and few lines are executed as often.
        return key
    return "".join(key.replace("_", " ").replace("-", " ").split()).lower()


def _spec(raw: Mapping[str, Any], names: TaskNames, notes: list[str]) -> TaskSpec:
    name = _field(raw, _NAME_KEYS)
    if not isinstance(name, str) or not name.strip():
        raise PlanError('it names no task: "task" is missing')
    spec = names.find(name)
    if spec is None and (reason := NOT_CALLABLE.get(canonical(name))):
        raise PlanError('"{name}" cannot be run: {reason}', name=canonical(name), reason=reason)
    if spec is None:
        near = ", ".join(similar.name for similar in names.resembling(name))
        unknown = '"{name}" is not an available task'
        if near:
            unknown = '"{name}" is not an available task; similar ones are {names}'
        helps = WHAT_IT_NEEDS if find_task(name) else ()
        raise PlanError(unknown, name=brief_text(name, 80), names=near, advice=helps)
    if name != spec.name and canonical(name) not in map(canonical, (spec.name, *spec.aliases)):
        notes.append(Note('"{name}" was taken as {task}', name=brief_text(name, 80), task=spec.name))
    return spec


def _deps(value: Any, notes: list[str]) -> tuple[int, ...]:
    deps: dict[int, None] = {}
    unread: list[Any] = []
    for item in _flatten(value):
        numbers = _numbers(item)
        deps |= dict.fromkeys(number for number in numbers if number >= 0)
        if not numbers and str(item).strip().lower() not in _NO_DEP:
            unread.append(item)
    if unread:
        notes.append(Note("invalid dependencies were left out: {values}", values=listing(unread)))
    return tuple(deps)


def _numbers(item: Any) -> list[int]:
    """The ids in an id or an item of `dep`, -1 for none: 0, "0", "task_0", "<resource>-0", "0, 1"."""
    if isinstance(item, str):
        digits = rf"(?<![\w>-])-[0-9]{{1,{_LONGEST_ID}}}(?![0-9])|(?<![0-9])[0-9]{{1,{_LONGEST_ID}}}(?![0-9])"
        return [int(number) for number in re.findall(digits, normalise_references(item))]
    is_number = isinstance(item, int | float) and not isinstance(item, bool)
    return [int(item)] if is_number and -1 <= item < 10**_LONGEST_ID and item == int(item) else []


def _flatten(value: Any) -> list[Any]:
    return [leaf for item in value for leaf in _flatten(item)] if isinstance(value, list) else [value]


def _args(
    raw: Mapping[str, Any], spec: TaskSpec, notes: list[str]
) -> tuple[dict[str, Any], tuple[tuple[str, Any], ...]]:
    """Arguments by canonical name, and values without one."""
    written: dict[str, list[Any]] = {}
    for name, value in _written_args(raw, spec):
        is_blank = isinstance(value, str) and (not value.strip() or is_nameless(value))
        if not is_blank and value is not None and value not in ([], {}):
            written.setdefault(name, []).append(normalise_references(value))
    args: dict[str, Any] = {}
    unassigned: list[tuple[str, Any]] = []

    def rank(item: tuple[str, Any]) -> int:  # "question" is more specific than "text"
        return 0 if item[0].lower() in ("question", "query") else 1 if spec.arg(item[0]) else 2

    for name, values in sorted(written.items(), key=rank):
        target = arg_name(name, spec)
        if target is None or target in args:
            unassigned += [(name, value) for value in values]
        else:
            args[target] = values if len(values) > 1 else values[0]
    if unassigned and spec.is_open:
        nameless = listing(value for _, value in unassigned)
        notes.append(Note("values without a name were left out: {values}", values=nameless))
        unassigned = []
    return args, tuple(unassigned)


def arg_name(name: str, spec: TaskSpec) -> str | None:
    """The canonical name of an argument; None if the task has none. Open tools take any."""
    if spec.arg(name) or (name and spec.is_open):
        return name
    plain = re.sub(r"[\s-]+", "_", name.strip().lower())
    alias = ARG_ALIASES.get(plain, plain)
    return next((arg.name for arg in spec.inputs if arg.name.lower() in (plain, alias)), None)


def _written_args(raw: Mapping[str, Any], spec: TaskSpec) -> Iterator[tuple[str, Any]]:
    """Written names ("" for none) and values, from all usual forms."""
    value = _field(raw, _ARG_KEYS)
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        parsed = read_json(value)
        value = parsed[-1].value if parsed else value
    if not isinstance(value, dict):
        others = ((key, item) for key, item in raw.items() if _plain_key(key) not in _KEYS)
        yield from ((key, item) for key, item in others if arg_name(key, spec))
    for part in value if isinstance(value, list) else [value]:
        if not isinstance(part, dict):
            yield "", part
        elif isinstance(part.get("name"), str) and "value" in part:
            yield part["name"], part["value"]
        else:
            yield from part.items()


def listing(values: Iterable[Any]) -> str:
    """Values for a note, shortened."""
    return brief_text(", ".join(f'"{brief_text(str(value), 40)}"' for value in islice(values, 10)), 120)
