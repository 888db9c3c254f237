"""The JSON schema of a plan, for models with structured output.

    plan_schema(specs, files={"image": ["a.jpg"]})
    # {"type": "object", "properties": {"tasks": …}, "$defs": {"image": {"enum": ["a.jpg", "<resource>-0", …

Each task allows only its own arguments. With files, a file argument is one of the files of its kind or
`<resource>-0`, `<resource>-1`, …. The schema uses only what OpenAI's strict mode and llama.cpp's grammars
support: objects, arrays, `enum`, `anyOf`, `$defs`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from jarvis_agent.core.references import ref
from jarvis_agent.core.tasks.spec import MEDIA, Arg, Modality, TaskSpec
from jarvis_agent.planning.inputs import PlanRequest

MIN_IDS = 16
"""Minimum number of ids in a schema with files; there are four per file."""

_MAX_DEPS = 8
"""In an unlimited list, small models write -1 until their tokens are used up."""

_OPTIONAL_TEXT = {"anyOf": [{"type": "string"}, {"type": "null"}]}

_ALSO: Mapping[str, tuple[str, ...]] = {"audio": ("video",)}
"""Other kinds of files that an argument of a kind accepts."""


def plan_schema(
    specs: Mapping[str, TaskSpec],
    files: Mapping[str, Sequence[str]] | None = None,
    *,
    has_purpose: bool = False,
) -> dict[str, Any]:
    """The JSON schema of a plan of these tasks; without tasks, of the empty plan.

    Tasks with the same arguments share one form. As strict mode requires, objects are closed and all
    arguments required (optional ones may be null), unless a tool takes unknown arguments.

    Args:
        specs: the available tasks by name.
        files: names of the files by kind; None: any name.
        has_purpose: whether a task has a purpose, which may be null.
    """
    if not specs:
        return _object({"tasks": {"type": "array", "items": {"type": "null"}, "maxItems": 0}}, closed=True)
    closed = not any(spec.is_open or any(arg.kind == "any" for arg in spec.inputs) for spec in specs.values())
    shared = {} if files is None else _shared(files)
    forms: dict[str, tuple[list[str], dict[str, Any]]] = {}
    for spec in specs.values():
        args = {arg.name: _value(arg, shared) for arg in spec.inputs}
        forms.setdefault(json.dumps(args), ([], args))[0].append(spec.name)
    more = {"purpose": _OPTIONAL_TEXT} if has_purpose else {}
    tasks = [_task(names, args, shared, closed, more) for names, args in forms.values()]
    listed: dict[str, Any] = {"type": "array", "items": {"anyOf": tasks}}
    if not shared:
        return _object({"tasks": listed}, closed)
    most = len(shared["id"]["enum"])
    return {**_object({"tasks": {**listed, "maxItems": most}}, closed), "$defs": shared}


def files_by_kind(request: PlanRequest) -> dict[str, list[str]]:
    """The files of a request and its chat by kind, as a plan names them; "file" is an unknown kind."""
    found: dict[str, list[str]] = {kind: [] for kind in get_args(Modality)}
    earlier = [(made.kind, str(made.path)) for turn in request.turns for made in turn.resources if made.path]
    for kind, name in [*((file.kind, file.name or str(file.path)) for file in request.files), *earlier]:
        if kind in found and name not in found[kind]:
            found[kind].append(name)
    return found


def _shared(files: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Shared definitions: ids, and the values of each kind of file."""
    count = max(MIN_IDS, 4 * sum(map(len, files.values())))
    refs = [ref(i) for i in range(count)]

    def values(kind: str) -> list[str]:
        kinds = files if kind == "file" else (kind, "file", *_ALSO.get(kind, ()))
        names = (name for accepted in kinds for name in files.get(accepted, ()))
        return [*dict.fromkeys(names), *refs]

    return {
        "id": {"type": "integer", "enum": list(range(count))},
        "dep": {"type": "integer", "enum": list(range(-1, count))},
        **{kind: {"type": "string", "enum": values(kind)} for kind in sorted(MEDIA)},
    }


def _task(
    names: list[str],
    args: dict[str, Any],
    shared: Mapping[str, Any],
    closed: bool,
    more: Mapping[str, Any],
) -> dict[str, Any]:
    number = {"type": "integer"}
    dep = _the("dep") if shared else number
    task = {
        "task": {"type": "string", "enum": names},
        "id": _the("id") if shared else number,
        "dep": {"type": "array", "items": dep, "maxItems": _MAX_DEPS},
        "args": _object(args, closed, optional=not closed),
        **more,
    }
    return _object(task, closed)


def _object(properties: dict[str, Any], closed: bool, optional: bool = False) -> dict[str, Any]:
    required = [] if optional else list(properties)
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        **({"additionalProperties": False} if closed else {}),
    }


def _value(arg: Arg, shared: Mapping[str, Any]) -> dict[str, Any]:
    if arg.kind == "any":
        return {}
    text = _the(arg.kind) if arg.kind in shared else {"type": "string"}
    if arg.many:
        forms: list[dict[str, Any]] = [{"type": "array", "items": text}]
    elif arg.kind == "data":
        numbers = {"type": "array", "items": {"type": "number"}}
        forms = [{"type": "number"}, {"type": "string"}, numbers]
    else:
        forms = [text]
    if not arg.required:
        forms.append({"type": "null"})
    return forms[0] if len(forms) == 1 else {"anyOf": forms}


def _the(name: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{name}"}
