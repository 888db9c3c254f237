"""Input binding: a task's arguments with references replaced and files opened."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jarvis_agent.core.context import RunContext
from jarvis_agent.core.errors import InputError
from jarvis_agent.core.references import ref, refs_in, split_refs
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import MEDIA, Arg, TaskSpec
from jarvis_agent.core.types import Attempt, Resource, Task, TaskResult
from jarvis_agent.media.store import ResourceStore
from jarvis_agent.planning.binding import MAX_FAN_OUT, fan_out

_UNKNOWN = Arg("", "any")

_SEEDS_PER_TURN = 100_000


@dataclass(frozen=True, slots=True)
class TaskCall:
    """A task of the plan, with references, whose inputs are bound."""

    task: Task
    inputs: Mapping[str, Any]
    """Its arguments with references replaced: a `Resource` for media, text, or plain JSON."""
    context: RunContext
    new_path: Callable[[str], Path]
    """Returns an output path for a suffix."""
    settings: Settings
    attempts: list[Attempt] = field(default_factory=list)
    """Every attempt is appended here, also of a task that is cancelled."""

    @property
    def seed(self) -> int:
        """Another number for each task, run of a task and turn of the chat; the first has the settings'."""
        return self.settings.seed + (self.context.turn_number - 1) * _SEEDS_PER_TURN + self.task.id


def runs_of(
    task: Task, spec: TaskSpec, results: Mapping[int, Sequence[TaskResult]]
) -> tuple[list[Task], bool]:
    """The task once for each result, where it takes one of several; else the task alone.

    Where it takes all of them, as in a list or inside a text, its arguments name each. Failed results are
    left out, and so are those that belong to them in other arguments. Returns at most `MAX_FAN_OUT` tasks,
    all with the same id, and whether there were more; [] if each would use a failed result.
    """
    failed = {run.task.id for runs in results.values() for run in runs if run.status != "ok"}
    choices: dict[str, list[Any]] = {}
    for name, value in task.args.items():
        arg = spec.arg(name) or _UNKNOWN
        names = _named_results(value, arg.kind, results, failed)
        whole = [reference for reference in names if failed.isdisjoint(refs_in(reference))]
        choices[name] = [whole] if arg.many and len(names) > 1 else names
    rows = [row for row in fan_out(choices, MAX_FAN_OUT + 1) if failed.isdisjoint(refs_in(row))]
    if rows == [task.args]:
        return [task], False
    named = {i for name, value in task.args.items() if choices[name] != [value] for i in refs_in(value)}
    dep = {i for i in task.deps if i not in named}
    tasks = [task.model_copy(update={"args": args, "dep": sorted({*dep, *refs_in(args)})}) for args in rows]
    return tasks[:MAX_FAN_OUT], len(tasks) > MAX_FAN_OUT


def _named_results(
    value: Any, kind: str, results: Mapping[int, Sequence[TaskResult]], failed: Collection[int]
) -> list[Any]:
    """The value with a reference for each result that it means; several values if it is only a reference.

    In a list or a text, results of `failed` runs are left out.
    """
    if isinstance(value, list):
        items = [name for item in value for name in _named_results(item, kind, results, failed)]
        return [[name for name in items if not set(failed) & {*refs_in(name)}]]
    if isinstance(value, dict):
        fields = {key: _named_results(item, kind, results, failed) for key, item in value.items()}
        return [{key: items[0] if len(items) == 1 else items for key, items in fields.items()}]
    if not isinstance(value, str):
        return [value]
    parts = split_refs(value)
    named = [_refs_of(*part, kind, results) if isinstance(part, tuple) else [part] for part in parts]
    chosen = [
        name for part, names in zip(parts, named, strict=True) if isinstance(part, tuple) for name in names
    ]
    if chosen and (kind in MEDIA or len(parts) == 1):
        return chosen
    return ["".join("\n".join(n for n in names if not set(failed) & {*refs_in(n)}) for names in named)]


def _refs_of(task_id: int, place: int, kind: str, results: Mapping[int, Sequence[TaskResult]]) -> list[str]:
    """A reference to each result that one reference means. A result that lacks the kind counts as one."""
    if place:
        return [ref(task_id, place)]
    counts = {result.task.id: max(1, len(resources_for(result, kind))) for result in results[task_id]}
    if counts == {task_id: 1}:
        return [ref(task_id)]
    return [ref(i, number) for i, count in counts.items() for number in range(1, count + 1)]


def resources_for(result: TaskResult, kind: str) -> list[Resource]:
    """What a result has for an argument of a kind; several of a tool, or of a task that makes several.

    The masks of a segmentation are no results of their own. "any" is the kind of the first resource.
    """
    main = next((resource.kind for resource in result.resources), kind)
    resources = result.resources_of(main if kind == "any" else kind)
    spec = TASKS.get(result.task.task)  # None: it is a tool
    makes_several = spec is None or (spec.several and main == spec.outputs[0])
    return resources if makes_several else resources[:1]


async def bind_inputs(
    task: Task, spec: TaskSpec, results: Mapping[int, TaskResult], store: ResourceStore, notes: list[str]
) -> dict[str, Any]:
    """The task's arguments by name, bound to files and to the results of other tasks.

    The names of text files in a text are replaced by their contents, unless another argument is that file.
    Without results, as in a tool that is called alone, nothing is a reference. Notes on texts that were read
    are added to `notes`.

    Raises:
        InputError: a file is missing or of the wrong kind, or a result lacks the kind that is needed.
    """
    texts = {name: value for name, value in task.args.items() if isinstance(value, str)}
    bound = {}
    for name, value in task.args.items():
        others = [text for other, text in texts.items() if other != name]
        arg = spec.arg(name) or _UNKNOWN
        bound[name] = await _Binder(arg.kind, results, store, others, notes, arg.is_text).bind(value)
    return bound


@dataclass(frozen=True, slots=True)
class _Binder:
    """Binds an argument of one kind; `given` are the task's other arguments."""

    kind: str
    results: Mapping[int, TaskResult]
    store: ResourceStore
    given: Sequence[str]
    notes: list[str]
    is_text: bool = False

    async def bind(self, value: Any) -> Any:
        if isinstance(value, list):
            return [await self.bind(item) for item in value]
        if isinstance(value, dict) and self.kind not in MEDIA:
            return {key: await self.bind(item) for key, item in value.items()}
        parts = split_refs(value) if self.results and isinstance(value, str) else [value]
        if self.kind in MEDIA:
            named = next((self._resource(*part) for part in parts if isinstance(part, tuple)), value)
            return await self.store.resolve(named, self.kind, self.notes)  # type: ignore[arg-type]
        bound, is_whole = [], len(parts) == 1
        for part in parts:
            if isinstance(part, tuple):
                part = await self._referenced(*part)
            elif isinstance(part, str) and self.kind == "text":
                read = self.store.text_of if is_whole else self.store.with_contents
                part = await read(part, self.given, self.notes)
            elif isinstance(part, str) and is_whole:
                part = await self.store.path_of(part, or_text=self.is_text, notes=self.notes)
            bound.append(part)
        return bound[0] if is_whole else "".join(map(str, bound))

    async def _referenced(self, task_id: int, place: int) -> Any:
        """The value of a reference in an argument that is not a file."""
        result = self.results[task_id]
        if self.kind == "any" and not result.resources:
            return "" if result.output is None else result.output
        if self.is_text and not place and (made := result.resource("text")):
            return made.text
        resource = self._resource(task_id, place)
        if self.kind == "data":
            return resource.data
        if self.kind == "text":
            if not (text := await self.store.text_of(resource, notes=self.notes)):
                raise InputError("{task} found no text, which is needed here", task=result.task.title)
            return text
        return str(resource.path) if resource.path is not None else resource.as_text()

    def _resource(self, task_id: int, place: int) -> Resource:
        result = self.results[task_id]
        resources = resources_for(result, self.kind)
        if place > len(resources) or not resources:
            kinds = ", ".join(r.kind for r in result.resources) or "nothing"
            wanted = f"{self.kind} number {place}" if resources else self.kind
            form = "{task} produced {made}; its {kind} is needed here"
            raise InputError(form, task=result.task.title, made=kinds, kind=wanted)
        return resources[max(0, place - 1)]
