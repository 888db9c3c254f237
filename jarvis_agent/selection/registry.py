"""What tools share: the sources that list models, the backends that run them, and the selector between them.

experts = ModelRegistry(settings, controller=controller)
selection = await experts.selector.select(task, spec, brief)
experts.backends["transformers"]
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from jarvis_agent.backends.base import Backend
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.backends.registry import Factory, make_backends
from jarvis_agent.core.concurrency import run_with_timeout
from jarvis_agent.core.plugins import checked
from jarvis_agent.core.request import RunContext
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.single_flight import SingleFlight
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate, Selection, Task
from jarvis_agent.selection.pins import read_pins
from jarvis_agent.selection.placement import unsupported_reason
from jarvis_agent.selection.sources.base import ModelSource, RemoteSource, candidates_of
from jarvis_agent.selection.sources.builtin import default_sources

if TYPE_CHECKING:
    from jarvis_agent.llm.client import LLMClient
    from jarvis_agent.llm.prompt_set import PromptSet


logger = logging.getLogger(__name__)

OFFER_FRESH = 60.0
"""Seconds for which the answer to what can be run is good: models may come while a server runs."""


class ModelSelector(Protocol):
    """Chooses the model of a task. `JarvisAgent(selector=…)` takes anything of this form."""

    async def select(self, task: Task, spec: TaskSpec, brief: RunContext) -> Selection:
        """The ladder of candidates for a task. Raises NoCandidateError if there is none."""
        ...


_lock = threading.Lock()
_pool: ModelPool | None = None
_users = 0


def _lease_pool(settings: Settings) -> ModelPool:
    """The process's one pool of loaded models; its first user's settings give its limit."""
    global _pool, _users
    with _lock:
        _pool = _pool or ModelPool(settings.memory_limit)
        _users += 1
        return _pool


def _return_pool() -> ModelPool | None:
    """End a lease. Returns the pool if that was the last one, for its models to be freed."""
    global _pool, _users
    with _lock:
        _users -= 1
        if _users:
            return None
        pool, _pool = _pool, None
        return pool


@dataclass(frozen=True, slots=True)
class _Offer:
    """Which of some task types can be run, and when that was asked."""

    asked_for: Sequence[TaskSpec]
    asked_at: float
    runnable: Mapping[str, TaskSpec]


class ModelRegistry:
    """Sources, backends and selector, made from the settings where they are not given.

    Raises:
        ConfigError: one of them lacks something or can not be made, or a pinned model can not be used.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        sources: Iterable[ModelSource] | None = None,
        backends: Iterable[Backend | Factory] | None = None,
        selector: ModelSelector | None = None,
        controller: LLMClient | None = None,
        prompts: PromptSet | None = None,
        pins: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        from jarvis_agent.selection.selector import Selector

        self.settings = settings
        self._closed = False
        self._clock = clock
        self._offer: _Offer | None = None
        self._asking = SingleFlight[Mapping[str, TaskSpec]]()
        self._pinned = read_pins(pins or {}).keys()
        asked = default_sources(settings) if sources is None else sources
        self.sources: Sequence[ModelSource] = [checked(one, ModelSource, "a source") for one in asked]
        if selector is not None:
            checked(selector, ModelSelector, "the selector")
        pool = _lease_pool(settings)
        try:
            made = make_backends(settings, pool, backends)
            self.backends: dict[str, Backend] = {backend.name: backend for backend in made}
            self.selector: ModelSelector = selector or Selector(
                self.sources, list(self.backends.values()), settings, controller, prompts, pins
            )
        except BaseException:
            # A pool that nobody else leases has not run anything yet, so there is nothing in it to free.
            _return_pool()
            raise

    async def offered(self) -> Mapping[str, TaskSpec]:
        """The task types that something here can run, by name: with a model of this machine or of the Hub."""
        specs, known = tuple(TASKS.values()), self._offer
        if known and known.asked_for == specs and self._clock() - known.asked_at < OFFER_FRESH:
            return known.runnable
        return await self._asking.join(specs, lambda: self._ask(specs))

    async def _ask(self, specs: Sequence[TaskSpec]) -> Mapping[str, TaskSpec]:
        now = self._clock()
        found = await asyncio.gather(*(self._runnable(source, specs) for source in self.sources))
        names = self._pinned | set().union(*(names for names, _ in found))
        runnable = MappingProxyType({spec.name: spec for spec in specs if spec.name in names})
        if all(complete for _, complete in found):
            self._offer = _Offer(specs, now, runnable)
        return runnable

    async def _runnable(self, source: ModelSource, specs: Sequence[TaskSpec]) -> tuple[set[str], bool]:
        """Names of the tasks for which a source lists a model that runs here, and whether it told all."""
        lists = await asyncio.gather(*(self._listed(source, spec) for spec in specs), return_exceptions=True)
        failed = next((listed for listed in lists if isinstance(listed, BaseException)), None)
        if failed:
            # The selection asks again, and records there what is wrong.
            logger.warning("the model source %s could not be asked: %s", source.name, failed)
        listed = {
            spec.name: (spec, found)
            for spec, found in zip(specs, lists, strict=True)
            if isinstance(found, list)
        }
        return await asyncio.to_thread(self._able, listed), failed is None

    async def _listed(self, source: ModelSource, spec: TaskSpec) -> list[Candidate]:
        """What a source lists for a task; of a distant one, which is not asked, what it would list."""
        if isinstance(source, RemoteSource):
            return await run_with_timeout(
                self.settings.run_timeout, _likely(source, spec), f"the source {source.name}"
            )
        return await candidates_of(source, spec, self.settings.top_k, self.settings)

    def _able(self, listed: Mapping[str, tuple[TaskSpec, list[Candidate]]]) -> set[str]:
        """Names of the tasks of which a candidate runs here; blocks while it looks for weights."""
        return {
            name
            for name, (spec, found) in listed.items()
            if any(self._runs(spec, candidate) for candidate in found)
        }

    def _runs(self, spec: TaskSpec, candidate: Candidate) -> bool:
        named = self.backends.get(candidate.backend or "")
        backends = [named] if named else self.backends.values() if candidate.backend is None else []
        return any(unsupported_reason(backend, spec, candidate) is None for backend in backends)

    async def aclose(self) -> None:
        """Free models, threads and connections. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        for backend in self.backends.values():
            await backend.close()
        pool = _return_pool()
        if pool is not None:
            await pool.close()


async def _likely(source: RemoteSource, spec: TaskSpec) -> list[Candidate]:
    """What a distant source would list for a task, and for the one whose models do it too."""
    others = source.likely(TASKS[spec.models_of]) if spec.models_of else []
    return [*source.likely(spec), *others]
