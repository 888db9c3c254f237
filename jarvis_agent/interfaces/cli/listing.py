"""`jarvis tasks` and `jarvis models TASK`: what can be run here, as data and as tables.

console.print(task_table(await list_tasks(registry)))
console.print(model_table(await list_models("object-detection", registry)))
"""

from __future__ import annotations

from contextlib import suppress

from pydantic import Field
from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from jarvis_agent.core.context import RunContext
from jarvis_agent.core.errors import JarvisError, NoCandidateError
from jarvis_agent.core.tasks.registry import TASKS, find_task, known_task
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate, Frozen, Task
from jarvis_agent.interfaces.cli.progress import shorten
from jarvis_agent.selection.model_registry import ModelRegistry

_COPIED_COLUMNS = {"task", "model"}
"""Columns that are not wrapped in a narrow terminal, so that their words can be copied."""


class TaskLine(Frozen):
    """A task type. `how` names what runs it, or says why nothing does."""

    name: str
    category: str
    takes: list[str]
    makes: list[str]
    description: str
    available: bool
    how: str


class TaskList(Frozen):
    """Every task type."""

    tasks: list[TaskLine]


class ModelLine(Frozen):
    """A candidate model; `size` is in bytes, `runs_on` names the backend."""

    id: str
    source: str
    size: int | None
    downloads: int
    license: str | None
    local: bool
    runs_on: str


class ModelList(Frozen):
    """The models for a task, best first, and the reason of each rejected model by id."""

    task: str
    models: list[ModelLine]
    rejected: dict[str, str] = Field(default_factory=dict)
    notes: list[str] = Field(default_factory=list)


async def list_tasks(registry: ModelRegistry) -> TaskList:
    """Return every task type with what would run it. Nothing is loaded or downloaded."""
    available = await registry.available_tasks()
    lines = [
        TaskLine(
            name=spec.name,
            category=spec.category,
            takes=[arg.name if arg.required else f"[{arg.name}]" for arg in spec.inputs],
            makes=list(spec.outputs),
            description=spec.description,
            available=spec.name in available,
            how=await _how(registry, spec, spec.name in available),
        )
        for spec in TASKS.values()
    ]
    return TaskList(tasks=lines)


async def list_models(name: str, registry: ModelRegistry) -> ModelList:
    """Return the models for a task, best first. Its name may be any known spelling.

    Raises:
        ConfigError: there is no such task; the message suggests similar names.
    """
    spec = known_task(name)
    try:
        selection = await registry.selector.select(Task(task=spec.name, id=0), spec, RunContext(request=""))
    except NoCandidateError as error:
        return ModelList(task=spec.name, models=[], rejected=error.rejected, notes=[str(error)])
    selected = find_task(selection.task) or spec
    return ModelList(
        task=spec.name,
        models=[_model(registry, candidate, selected) for candidate in selection.candidates],
        rejected=selection.rejected,
        notes=[selection.note] if selection.note else [],
    )


async def _how(registry: ModelRegistry, spec: TaskSpec, available: bool) -> str:
    """The local model for a task; otherwise where one would come from, or why there is none."""
    reasons: list[str] = []
    for candidate in await _local_candidates(registry, spec):
        answers = _answers(registry, candidate, spec)
        if None in answers.values():
            return f"{candidate.id} ({candidate.source})"
        reasons += filter(None, answers.values())
    if available:
        return "a model of the Hub"
    if reasons:
        return reasons[0]
    if registry.settings.offline:
        return "no model is installed, and the Hub is not used"
    answers = _answers(registry, Candidate(id="a model of the Hub", task=spec.name), spec)
    missing = (reason for reason in answers.values() if reason and "pip install" in reason)
    return next(missing, "no backend here runs it")


async def _local_candidates(registry: ModelRegistry, spec: TaskSpec) -> list[Candidate]:
    """The candidates of all sources but the Hub; a source that fails is skipped."""
    found: list[Candidate] = []
    for source in registry.sources:
        if source.name != "hub":
            with suppress(JarvisError):
                found += await source.candidates(spec, registry.settings.top_k)
    return found


def _answers(registry: ModelRegistry, candidate: Candidate, spec: TaskSpec) -> dict[str, str | None]:
    """By backend, why it cannot run the candidate; None: it can."""
    backends = registry.backends
    names = [candidate.backend] if candidate.backend else list(backends)
    return {n: backends[n].unsupported_reason(spec, candidate) for n in names if n in backends}


def _model(registry: ModelRegistry, candidate: Candidate, spec: TaskSpec) -> ModelLine:
    able = (name for name, reason in _answers(registry, candidate, spec).items() if reason is None)
    return ModelLine(**candidate.model_dump(include=set(ModelLine.model_fields)), runs_on=next(able, ""))


def task_table(listing: TaskList) -> RenderableType:
    """Return the task types, one table per category."""
    tables: dict[str, Table] = {}
    for line in listing.tasks:
        table = tables.setdefault(
            line.category, _table(line.category, "task", "takes", "makes", "description", "runs here")
        )
        mark = Text("✓ " if line.available else "✗ ", "green" if line.available else "red")
        cells = (line.name, ", ".join(line.takes), ", ".join(line.makes), line.description)
        table.add_row(*map(_cell, cells), mark + _cell(line.how))
    count = sum(line.available for line in listing.tasks)
    return Group(*tables.values(), Text(f"{count} of {len(listing.tasks)} task types can be run here."))


def model_table(listing: ModelList) -> RenderableType:
    """Return the models in the order in which they are tried, then the rejected ones."""
    title = f"Models for {listing.task}"
    table = _table(title, "", "model", "source", "size", "licence", "runs on", "downloads")
    for rank, line in enumerate(listing.models, start=1):
        size = decimal(line.size) if line.size is not None else "?"
        place = f"{line.runs_on or 'nothing here'}{', installed' if line.local else ''}"
        cells = (str(rank), line.id, line.source, size, line.license or "?", place, str(line.downloads or ""))
        table.add_row(*map(_cell, cells))
    rejected = _table("Rejected", "model", "reason")
    for model, reason in listing.rejected.items():
        rejected.add_row(_cell(model), _cell(reason))
    tables = [one for one in (table, rejected) if one.row_count]
    return Group(*tables, *(Text(shorten(note, 1000)) for note in listing.notes))


def _table(title: str, *columns: str) -> Table:
    table = Table(title=_cell(title), title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in _COPIED_COLUMNS, header_style="dim")
    return table


def _cell(text: str) -> Text:
    return Text(shorten(text, 300))
