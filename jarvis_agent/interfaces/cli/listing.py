"""What can be done here: the task types, and the models for one of them.

survey_tasks(settings)                         # every task type, and what here runs it
survey_models("object-detection", settings)    # its models, as the selection sees them
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pydantic import Field

from jarvis_agent.core.errors import JarvisError, NoCandidateError
from jarvis_agent.core.request import RunContext
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS, find_task, known_task
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate, Frozen, Task
from jarvis_agent.selection.registry import ModelRegistry

T = TypeVar("T")


class TaskLine(Frozen):
    """A task type. `available` says whether something here can run it, `how` what, or why not."""

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
    """A model that the selection would consider; `size` is in bytes, `runs_on` names the backend."""

    id: str
    source: str
    size: int | None
    downloads: int
    license: str | None
    local: bool
    runs_on: str
    description: str


class ModelList(Frozen):
    """The models for a task, the best first, and why others are left out, by id."""

    task: str
    models: list[ModelLine]
    rejected: dict[str, str] = Field(default_factory=dict)
    notes: list[str] = Field(default_factory=list)


def survey_tasks(settings: Settings) -> TaskList:
    """Every task type, and what here would run it."""
    return asyncio.run(_with_inventory(settings, Inventory.tasks))


def survey_models(name: str, settings: Settings) -> ModelList:
    """The models for a task, named in any spelling.

    Raises:
        ConfigError: there is no such task; the message names those that are close to it.
    """
    spec = known_task(name)
    return asyncio.run(_with_inventory(settings, lambda inventory: inventory.models(spec)))


async def _with_inventory(settings: Settings, ask: Callable[[Inventory], Awaitable[T]]) -> T:
    experts = ModelRegistry(settings)
    try:
        return await ask(Inventory(experts))
    finally:
        await experts.aclose()


class Inventory:
    """Asks sources and backends what they have. Nothing is loaded or downloaded."""

    def __init__(self, experts: ModelRegistry) -> None:
        self._experts = experts

    async def tasks(self) -> TaskList:
        """Every task type, and what here would run it."""
        offered = await self._experts.available_tasks()
        return TaskList(tasks=[await self._task(spec, spec.name in offered) for spec in TASKS.values()])

    async def models(self, spec: TaskSpec) -> ModelList:
        """The models for a task, the best first."""
        try:
            selection = await self._experts.selector.select(
                Task(task=spec.name, id=0), spec, RunContext(request="")
            )
        except NoCandidateError as error:
            return ModelList(task=spec.name, models=[], rejected=error.rejected, notes=[str(error)])
        done = find_task(selection.task) or spec
        return ModelList(
            task=spec.name,
            models=[self._model(candidate, done) for candidate in selection.candidates],
            rejected=selection.rejected,
            notes=[selection.note] if selection.note else [],
        )

    async def _task(self, spec: TaskSpec, available: bool) -> TaskLine:
        return TaskLine(
            name=spec.name,
            category=spec.category,
            takes=[arg.name if arg.required else f"[{arg.name}]" for arg in spec.inputs],
            makes=list(spec.outputs),
            description=spec.description,
            available=available,
            how=await self._how(spec, available),
        )

    async def _how(self, spec: TaskSpec, available: bool) -> str:
        """The model that is here for a task; else where one would come from, or what stands in the way."""
        reasons: list[str] = []
        for candidate in await self._candidates_here(spec):
            runner = self._runner(candidate, spec)
            if runner is not None:
                return f"{candidate.id} ({candidate.source})"
            reasons += self._reasons(candidate, spec)
        if available:
            return "a model of the Hub"
        if reasons:
            return reasons[0]
        if self._experts.settings.offline:
            return "no model here, and the Hub is not asked"
        any_model = Candidate(id="a model of the Hub", task=spec.name)
        missing = [reason for reason in self._reasons(any_model, spec) if "pip install" in reason]
        return next(iter(missing), "no backend here runs it")

    async def _candidates_here(self, spec: TaskSpec) -> list[Candidate]:
        """Those of the sources that answer without a network."""
        found: list[Candidate] = []
        for source in self._experts.sources:
            if source.name != "hub":
                try:
                    found += await source.candidates(spec, self._experts.settings.top_k)
                except JarvisError:
                    continue
        return found

    def _runner(self, candidate: Candidate, spec: TaskSpec) -> str | None:
        return next((name for name, reason in self._answers(candidate, spec) if reason is None), None)

    def _reasons(self, candidate: Candidate, spec: TaskSpec) -> list[str]:
        return [reason for _, reason in self._answers(candidate, spec) if reason is not None]

    def _answers(self, candidate: Candidate, spec: TaskSpec) -> list[tuple[str, str | None]]:
        """For each backend that may run the candidate, why it can not (None: it can)."""
        backends = self._experts.backends
        asked = [candidate.backend] if candidate.backend else list(backends)
        return [
            (name, backends[name].unsupported_reason(spec, candidate)) for name in asked if name in backends
        ]

    def _model(self, candidate: Candidate, spec: TaskSpec) -> ModelLine:
        return ModelLine(
            id=candidate.id,
            source=candidate.source,
            size=candidate.size,
            downloads=candidate.downloads,
            license=candidate.license,
            local=candidate.local,
            runs_on=self._runner(candidate, spec) or "",
            description=candidate.description,
        )
