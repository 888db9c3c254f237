"""The JSON schema of plans made as the demonstrations are, for models that know tasks by these alone.

    demonstrated_schema(demonstrations, brief)
    # {"type": "object", "properties": {"tasks": {"type": "array", "items": {"anyOf": [
    #     {… "task": {"enum": ["image-to-text"]}, … "args": {"image": {"enum": ["puppy.jpg"]}}}, …

A task has the arguments that it has in a demonstration, in that order. Where a file stood, there is a file
of the request of that kind; where a quoted text stood, one that the request quotes; references stay.
Everything else may be anything of its type. A small model thus has little to write that can be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from jarvis_agent.core.references import refs_in, whole_ref
from jarvis_agent.core.request import RunContext
from jarvis_agent.core.tasks.registry import find_task
from jarvis_agent.core.tasks.spec import MEDIA, Modality
from jarvis_agent.core.types import Resource
from jarvis_agent.planning.example_selector import Demonstration
from jarvis_agent.planning.offline.masking import mask_entities

_LONGEST_LIST = 8


def demonstrated_schema(demonstrations: Sequence[Demonstration], brief: RunContext) -> dict[str, Any] | None:
    """The JSON schema of a plan of tasks such as these; None where the request can be given to none of them.

    Args:
        demonstrations: examples whose tasks are on offer under the names that stand there.
        brief: the request, with the files that arguments may name.
    """
    most = max([len(demo.plan) for demo in demonstrations] + [len(brief.files)], default=0)
    forms: list[dict[str, Any]] = []
    for demo in demonstrations:
        for task in demo.plan:
            form = _form(task, demo, brief, most)
            if form is not None and form not in forms:
                forms.append(form)
    if not forms:
        return None
    return _object({"tasks": {"type": "array", "items": {"anyOf": forms}, "maxItems": most}})


def _form(task: dict[str, Any], demo: Demonstration, brief: RunContext, most: int) -> dict[str, Any] | None:
    """The schema of tasks like this one; None where it takes a file that the request does not have."""
    spec = find_task(task["task"], brief.specs)
    args: dict[str, Any] = {}
    for name, value in task["args"].items():
        arg = spec.arg(name) if spec else None
        like = _like(value, arg.kind if arg else "any", demo, brief)
        if like is None:
            return None
        args[name] = like
    return _object(
        {
            "task": _one_of([task["task"]]),
            "id": {"type": "integer", "enum": list(range(most))},
            "dep": {
                "type": "array",
                "items": {"type": "integer", "enum": list(range(-1, most))},
                "maxItems": 2,
            },
            "args": _object(args),
        }
    )


def _like(
    value: Any, kind: Modality | Literal["any"], demo: Demonstration, brief: RunContext
) -> dict[str, Any] | None:
    """The schema of what may stand in the place of a demonstration's value; None: there is nothing."""
    if isinstance(value, list):
        items = {"type": "number"}
        if not all(isinstance(each, int | float) for each in value):
            items = _like(value[0], kind, demo, brief) or {}
        return {"type": "array", "items": items, "maxItems": _LONGEST_LIST} if items else None
    if not isinstance(value, str):
        return _OTHERS.get(type(value), {})
    if refs_in(value):
        return _one_of([value]) if whole_ref(value) is not None else _TEXT
    if value in [file.name for file in demo.files] or value in _made_before(demo):
        names = [*_names(brief.files, kind), *_names((r for t in brief.turns for r in t.resources), kind)]
        return _one_of(names) if names else None
    if value in _quoted(demo.request, demo.files) and (quoted := _quoted(brief.request, brief.files)):
        return _one_of(quoted)
    return _TEXT


_TEXT: dict[str, Any] = {"type": "string"}
_OTHERS: Mapping[type, dict[str, Any]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
}


def _names(files: Iterable[Resource], kind: str) -> list[str]:
    """The files that an argument of a kind may be given, as a plan names them."""
    kinds = {kind, "file", *(("video",) if kind == "audio" else ()), *(() if kind in MEDIA else ("table",))}
    fit = (file for file in files if (file.name or file.path) and file.kind in kinds)
    return list(dict.fromkeys(file.name or str(file.path) for file in fit))


def _made_before(demo: Demonstration) -> list[str]:
    return [str(made.path) for turn in demo.chat for made in turn.resources]


def _quoted(request: str, files: Iterable[Resource]) -> list[str]:
    marks = mask_entities(request, files).marks.values()
    return list(dict.fromkeys(each.value for each in marks if not each.is_file))


def _one_of(values: list[str]) -> dict[str, Any]:
    return {"type": "string", "enum": values}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
