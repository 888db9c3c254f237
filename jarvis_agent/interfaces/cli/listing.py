"""`jarvis tasks` and `jarvis models TASK`: what can be run here, as data and as tables."""

from collections import defaultdict
from contextlib import suppress

from pydantic import Field
from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from jarvis_agent.core.context import RunContext
from jarvis_agent.core.errors import NoCandidateError
from jarvis_agent.core.notes import Note, template_of
from jarvis_agent.core.tasks.registry import TASKS, find_task, known_task
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.text import brief_text
from jarvis_agent.core.types import Candidate, Frozen, Task
from jarvis_agent.selection.advice import LISTS_ALL
from jarvis_agent.selection.model_registry import ModelRegistry
from jarvis_agent.selection.placement import answers_of
from jarvis_agent.selection.selector import SHOWN
from jarvis_agent.selection.sources.base import RemoteSource, list_candidates
from jarvis_agent.selection.store import open_store


class TaskLine(Frozen):
    """A task type, and what would run it.

    `where` is the source of a model on this machine, "Hub" for one that is downloaded when needed, or
    "hosted"; "" if nothing runs the task. `how` is the model's id, or says why there is none.
    """

    name: str
    category: str
    takes: list[str]
    makes: list[str]
    description: str
    available: bool
    where: str
    how: str


class TaskList(Frozen):
    """Task types, and notes on what limits them."""

    tasks: list[TaskLine]
    notes: list[str] = Field(default_factory=list)


class ModelLine(Frozen):
    """A candidate model; `size` is in bytes, `runs_on` names the backend, `factors` are points by name.

    `experience` says how its calls went: "12 calls, 92 % ok, 1.3 s, +3".
    """

    id: str
    source: str
    size: int | None
    downloads: int
    license: str | None
    local: bool
    runs_on: str
    factors: dict[str, float] = Field(default_factory=dict)
    experience: str = ""


class ModelList(Frozen):
    """The models for a task, best first, and the reason of each rejected model by id.

    `reason` says why the first model is first for a purpose.
    """

    task: str
    reason: str = ""
    models: list[ModelLine]
    rejected: dict[str, str] = Field(default_factory=dict)
    notes: list[str] = Field(default_factory=list)


async def list_tasks(registry: ModelRegistry, name: str | None = None) -> TaskList:
    """Return every task type, or one, with what would run it. ConfigError: there is no such task."""
    available = await registry.available_tasks()
    lines = []
    for spec in TASKS.values() if name is None else [known_task(name)]:
        where, how = await _place(registry, spec, spec.name in available)
        line = TaskLine(
            name=spec.name,
            category=spec.category,
            takes=[arg.name if arg.required else f"[{arg.name}]" for arg in spec.inputs],
            makes=list(spec.outputs),
            description=spec.description,
            available=spec.name in available,
            where=where,
            how=how,
        )
        lines.append(line)
    return TaskList(tasks=lines)


async def list_models(name: str, registry: ModelRegistry, purpose: str = "") -> ModelList:
    """Return the models for a task in any known spelling, best first for a purpose ("chest X-rays")."""
    spec = known_task(name)
    task, context = Task(task=spec.name, id=0, purpose=purpose), RunContext(request=purpose)
    try:
        selection = await registry.selector.select(task, spec, context)
    except NoCandidateError as error:
        helps = [text for text in error.note.advice if template_of(text) != LISTS_ALL]
        note = Note("{reason}", reason=error.message, advice=helps)
        return ModelList(task=spec.name, models=[], rejected=error.rejected, notes=[note])
    selected = find_task(selection.task) or spec
    experience, models = open_store().experience(selected.name), []
    for candidate in selection.candidates:
        facts = candidate.model_dump(include=set(ModelLine.model_fields))
        facts |= {"factors": selection.factors.get(candidate.id, {}), "runs_on": candidate.backend or ""}
        models.append(ModelLine(**facts, experience=str(experience.get(candidate.id, ""))))
    return ModelList(
        task=spec.name,
        reason=selection.reason if purpose else "",
        models=models,
        rejected=selection.rejected,
        notes=[selection.note] if selection.note else [],
    )


async def _place(registry: ModelRegistry, spec: TaskSpec, available: bool) -> tuple[str, str]:
    """The `where` and `how` of a TaskLine. A source that fails is skipped."""
    reasons, backends = list[str](), registry.backends.values()
    for source in registry.sources:
        candidates: list[Candidate] = []
        if not isinstance(source, RemoteSource):
            with suppress(Exception):
                candidates = await list_candidates(source, spec, SHOWN, registry.settings)
        for candidate in candidates:
            for _, reason in answers_of(candidate, spec, backends):
                if reason is None:
                    return candidate.source, candidate.id
                reasons.append(reason)
    of_hub = Candidate(id="a model of the Hub", task=spec.name, source="hub", providers=("any",))
    answers = list(answers_of(of_hub, spec, backends))
    if available:
        here = any(backend.local for backend, reason in answers if reason is None)
        return ("Hub", "downloaded when needed") if here else ("hosted", "a model of the Hub")
    if not reasons and registry.settings.offline:
        reasons = ["no model installed, Hub not available"]
    reasons += [reason for _, reason in answers if reason and "pip install" in reason]
    return "", next(iter(reasons), "no backend here runs it")


def task_table(listing: TaskList) -> RenderableType:
    """Return the task types that can be run here, and below, the others by the reason why not."""
    table, others = _table("", "task", "where", "model"), defaultdict[str, list[str]](list)
    for line in listing.tasks:
        if line.available:
            table.add_row(_cell(line.name), _cell(line.where), _cell(line.how))
        else:
            others[line.how].append(line.name)
    total = f"{table.row_count} of {len(listing.tasks)} task types can be run here."
    reasons = [f"Not here ({reason}): {', '.join(names)}" for reason, names in others.items()]
    lines = [f"{total} `jarvis tasks TASK` says more.", *reasons, *listing.notes]
    return Group(table, *(_cell(line, 2000) for line in lines))


def task_details(listing: TaskList) -> RenderableType:
    """Return what is known about each of a few task types."""
    table = Table.grid(padding=(0, 2))
    for line in listing.tasks:
        how = f"{line.how} ({line.where})" if line.available else f"no: {line.how}"
        rows = {
            "task": line.name,
            "does": line.description,
            "takes": ", ".join(line.takes),
            "makes": ", ".join(line.makes),
            "runs here": how,
            "candidates": f"jarvis models {line.name}",
        }
        for name, text in rows.items():
            table.add_row(Text(name, "dim"), _cell(text))
    return Group(table, *(_cell(note, 2000) for note in listing.notes))


def model_table(listing: ModelList) -> RenderableType:
    """Return the models in the order in which they are tried.

    For a purpose, they have the points of each factor, and the first one its reason. Otherwise the rejected
    models follow.
    """
    table = _table(f"Models for {listing.task}", "model", "points" if listing.reason else "about", "runs on")
    for rank, line in enumerate(listing.models, start=1):
        about = _points(line) if listing.reason else _facts(line)
        place = f"{line.runs_on or 'nothing here'}{', installed' if line.local else ''}"
        table.add_row(_cell(f"{rank}  {line.id}"), _cell(about), _cell(place))
    rejected = _table("Rejected", "model", "reason")
    lines = [f"{line.id}: {line.experience}." for line in listing.models if line.experience]
    if listing.reason:
        lines.insert(0, f"{listing.models[0].id}: {listing.reason}.")
        if listing.rejected:
            lines.append(f"{len(listing.rejected)} rejected: `jarvis models {listing.task}` lists them.")
    else:
        for model, reason in listing.rejected.items():
            rejected.add_row(_cell(model), _cell(reason))
    tables = [each for each in (table, rejected) if each.row_count]
    return Group(*tables, *(_cell(line, 2000) for line in [*lines, *listing.notes]))


def _facts(line: ModelLine) -> str:
    size = decimal(line.size) if line.size is not None else "size unknown"
    downloads = f"{line.downloads:,} downloads" if line.downloads else ""
    return ", ".join(filter(None, (line.source, size, line.license or "licence unknown", downloads)))


def _points(line: ModelLine) -> str:
    """The sum of the points, and what gave them."""
    factors = [f"{name} {points:+.1f}" for name, points in line.factors.items() if abs(points) >= 0.05]
    return f"{sum(line.factors.values()):+.1f}: {', '.join(factors)}"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=_cell(title) if title else None, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        # What can be copied is not wrapped.
        table.add_column(column, overflow="fold", no_wrap=column in ("task", "model"), header_style="dim")
    return table


def _cell(text: str, length: int = 300) -> Text:
    return Text(brief_text(text, length))
