"""What goes into a task: its arguments with references replaced and files opened.

inputs = await inputs_of(task, spec, results, store)
inputs["image"], inputs["text"]        # a Resource, and the text that task 0 made
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jarvis_agent.core.errors import InputError
from jarvis_agent.core.references import refs_in, substitute
from jarvis_agent.media.store import ResourceStore
from jarvis_agent.core.tasks.spec import MEDIA, Arg, TaskSpec
from jarvis_agent.core.types import Resource, Task, TaskResult


async def inputs_of(
    task: Task, spec: TaskSpec, results: Mapping[int, TaskResult], store: ResourceStore
) -> dict[str, Any]:
    """The task's arguments with references replaced and files opened.

    Raises:
        InputError: a file is not there or of the wrong kind, or a result is not of the kind that is needed.
    """
    unknown = Arg("", "any")
    return {
        name: await _input(value, spec.arg(name) or unknown, results, store)
        for name, value in task.args.items()
    }


async def _input(value: Any, arg: Arg, results: Mapping[int, TaskResult], store: ResourceStore) -> Any:
    if isinstance(value, list):
        return [await _input(item, arg, results, store) for item in value]
    if arg.kind in MEDIA:
        refs = refs_in(value)
        return await store.resolve(_made(results[refs[0]], arg.kind) if refs else value, arg.kind)  # type: ignore[arg-type]
    if isinstance(value, dict):
        return {key: await _input(item, arg, results, store) for key, item in value.items()}
    if not isinstance(value, str):
        return value
    if not refs_in(value):
        return await store.text_of(value) if arg.kind == "text" else await store.path_of(value)
    return substitute(value, lambda i: _put(results[i], arg.kind))


def _put(result: TaskResult, kind: str) -> Any:
    """What a reference stands for in an argument that is not a file."""
    if kind == "data":
        return _made(result, "data").data
    if kind == "text":
        return _made(result, "text").as_text()
    first = next(iter(result.resources), None)
    if first is None:
        return "" if result.output is None else result.output
    return str(first.path) if first.path is not None else first.as_text()


def _made(result: TaskResult, kind: str) -> Resource:
    resource = result.resource(kind)
    if resource is None:
        made = ", ".join(r.kind for r in result.resources) or "nothing"
        raise InputError(f"task {result.task.id} ({result.task.task}) made {made}, and its {kind} is needed")
    return resource
