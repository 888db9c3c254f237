"""Input binding: a task's arguments with references replaced and files opened.

inputs = await bind_inputs(task, spec, results, store)
inputs["image"], inputs["text"]        # a Resource, and the text of task 0
call = TaskCall(task, inputs, context, new_path, clock, settings)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jarvis_agent.core.context import RunContext
from jarvis_agent.core.errors import InputError
from jarvis_agent.core.references import refs_in, substitute
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import MEDIA, Arg, TaskSpec
from jarvis_agent.core.types import Attempt, Resource, Task, TaskResult
from jarvis_agent.media.store import ResourceStore


@dataclass(frozen=True, slots=True)
class TaskCall:
    """A task whose inputs are bound.

    Attributes:
        task: the task of the plan, with references.
        inputs: its arguments with references replaced: a `Resource` for media, text, or plain JSON.
        new_path: returns an output path for a suffix.
        clock: seconds since the run began.
        attempts: every attempt is appended here, also of a task that is cancelled.
    """

    task: Task
    inputs: Mapping[str, Any]
    context: RunContext
    new_path: Callable[[str], Path]
    clock: Callable[[], float]
    settings: Settings
    attempts: list[Attempt] = field(default_factory=list)


async def bind_inputs(
    task: Task, spec: TaskSpec, results: Mapping[int, TaskResult], store: ResourceStore
) -> dict[str, Any]:
    """The task's arguments by name, bound to files and to the results of other tasks.

    Without results, as in a tool that is called alone, nothing is a reference.

    Raises:
        InputError: a file is missing or of the wrong kind, or a result lacks the kind that is needed.
    """
    unknown = Arg("", "any")
    return {
        name: await _bind(value, spec.arg(name) or unknown, results, store)
        for name, value in task.args.items()
    }


async def _bind(value: Any, arg: Arg, results: Mapping[int, TaskResult], store: ResourceStore) -> Any:
    if isinstance(value, list):
        return [await _bind(item, arg, results, store) for item in value]
    if arg.kind in MEDIA:
        refs = refs_in(value) if results else []
        return await store.resolve(_resource(results[refs[0]], arg.kind) if refs else value, arg.kind)  # type: ignore[arg-type]
    if isinstance(value, dict):
        return {key: await _bind(item, arg, results, store) for key, item in value.items()}
    if not isinstance(value, str):
        return value
    if not results or not refs_in(value):
        return await store.text_of(value) if arg.kind == "text" else await store.path_of(value)
    values = {i: await _referenced(results[i], arg.kind, store) for i in refs_in(value)}
    return substitute(value, values.__getitem__)


async def _referenced(result: TaskResult, kind: str, store: ResourceStore) -> Any:
    """The value of a reference in an argument that is not a file."""
    if kind == "data":
        return _resource(result, "data").data
    if kind == "text":
        return await store.text_of(_resource(result, "text"))
    first = next(iter(result.resources), None)
    if first is None:
        return "" if result.output is None else result.output
    return str(first.path) if first.path is not None else first.as_text()


def _resource(result: TaskResult, kind: str) -> Resource:
    resource = result.resource(kind)
    if resource is None:
        kinds = ", ".join(r.kind for r in result.resources) or "nothing"
        raise InputError(
            f"task {result.task.id} ({result.task.task}) produced {kinds}; its {kind} is needed here"
        )
    return resource
