"""The JSON schema of a plan, for models with structured output.

It depends on the task types alone, so that providers can cache it. Which argument belongs to which task, and
which files and ids exist, is checked by the parser.
"""

from collections.abc import Mapping
from typing import Any

from jarvis_agent.core.tasks.spec import Arg, TaskSpec

_TEXT, _INTEGER = {"type": "string"}, {"type": "integer"}
_LIST = {"type": "array", "items": {"type": "string"}}
_DATA = {"type": ["string", "number", "array"], "items": {"type": "number"}}
"""A number, a list of them, or text: a reference, "left half"."""
_MAX_DEPS = 8
"""In an unlimited list, small models write -1 until their tokens are used up."""


def plan_schema(specs: Mapping[str, TaskSpec]) -> dict[str, Any]:
    """The JSON schema of a plan of these tasks; without tasks, of the empty plan.

    A task may have a purpose, and a preference for models may precede the tasks.
    """
    if not specs:
        return _object({"tasks": {"type": "array", "items": {"type": "null"}, "maxItems": 0}})
    args = {arg.name: _value(arg, specs) for spec in specs.values() for arg in spec.inputs}
    is_open = any(spec.is_open for spec in specs.values())
    task = {
        "task": {"type": "string", "enum": list(specs)},
        "id": _INTEGER,
        "dep": {"type": "array", "items": _INTEGER, "maxItems": _MAX_DEPS},
        "args": {"type": "object", "properties": args, "additionalProperties": is_open},
    }
    item = {**_object(task), "properties": {**task, "purpose": _TEXT}}
    plan = _object({"tasks": {"type": "array", "items": item}})
    return {**plan, "properties": {"preference": _TEXT, **plan["properties"]}, "$defs": {"data": _DATA}}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _value(arg: Arg, specs: Mapping[str, TaskSpec]) -> dict[str, Any]:
    """The type of an argument's values in all tasks that have one of this name."""
    same = [other for spec in specs.values() if (other := spec.arg(arg.name))]
    if any(other.kind == "any" for other in same):
        return {}
    if all(other.many for other in same):
        return _LIST
    if any(other.kind == "data" for other in same):
        return {"$ref": "#/$defs/data"}
    return {**_LIST, "type": ["string", "array"]} if any(other.many for other in same) else _TEXT
