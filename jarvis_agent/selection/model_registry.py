"""The model registry: sources, backends and the ModelSelector that an agent or a set of tools shares."""

import asyncio
import copy
import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

from jarvis_agent.backends.base import Backend
from jarvis_agent.backends.chat_model import ChatModelBackend
from jarvis_agent.backends.hosted.gradio_spaces import SpacesBackend
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.backends.registry import Factory, make_backends
from jarvis_agent.core.errors import ConfigError, FallbackOn
from jarvis_agent.core.forks import fork_safe
from jarvis_agent.core.plugins import check_plugin
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate
from jarvis_agent.llm.chat_model import is_small
from jarvis_agent.llm.client import LLMClient
from jarvis_agent.selection.placement import answers_of
from jarvis_agent.selection.selector import SHOWN, ModelSelector
from jarvis_agent.selection.sources import default_sources
from jarvis_agent.selection.sources.base import ModelSource, RemoteSource, list_candidates
from jarvis_agent.selection.sources.language_model import LanguageModelSource

logger = logging.getLogger(__name__)

AVAILABLE_TTL_S = 60.0
"""Seconds for which the answer to `available_tasks` is reused; models may be added while a server runs."""

_lock = fork_safe(threading.Lock())
_pool: ModelPool | None = None
_users = 0


def _lease_pool(settings: Settings) -> ModelPool:
    """Return the process's pool of loaded models; the settings of its first user give its memory limit."""
    global _pool, _users
    with _lock:
        _pool = _pool or ModelPool(settings.memory_limit)
        _users += 1
        return _pool


def _return_pool() -> ModelPool | None:
    """End a lease. Returns the pool, which the caller closes, if it was the last lease."""
    global _pool, _users
    with _lock:
        _users -= 1
        if _users:
            return None
        pool, _pool = _pool, None
        return pool


def loaded_models() -> Sequence[object]:
    """The models that are in this process's memory, least recently used first."""
    return list(_pool.loaded) if _pool is not None else []


class ModelRegistry:
    """Sources, backends and selector; the settings give those that are not passed.

    Without `sources`, the `llm` as an expert comes before the default ones. `selector`, `llm` and `pins` are
    as for `ModelSelector`, `fallback_on` is as for `JarvisAgent`. Raises ConfigError if one is invalid.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        sources: Iterable[ModelSource] | None = None,
        backends: Iterable[Backend | Factory] | None = None,
        selector: Any = None,
        llm: LLMClient | None = None,
        pins: Mapping[str, str] | None = None,
        fallback_on: FallbackOn | None = None,
    ) -> None:
        kinds = fallback_on if isinstance(fallback_on, tuple) else (fallback_on,)
        if not (fallback_on is None or all(map(callable, kinds))):
            raise ConfigError(f"fallback_on takes error classes or a function, not {fallback_on!r}")
        self.settings = settings
        self.fallback_on = fallback_on
        self._closed = False
        self._available: tuple[Sequence[TaskSpec], float, Mapping[str, TaskSpec]] | None = None
        own = [] if llm is None else [LanguageModelSource(llm.model)]
        given = [*own, *default_sources(settings)] if sources is None else sources
        self.sources = [check_plugin(source, ModelSource, "a source") for source in given]
        pool = _lease_pool(settings)
        try:
            instances = make_backends(settings, pool, backends)
            self.backends: dict[str, Backend] = {backend.name: backend for backend in instances}
            for backend in instances:
                if isinstance(backend, ChatModelBackend) or (
                    isinstance(backend, SpacesBackend) and llm and not is_small(llm.model)
                ):
                    backend.own = llm
            self.selector = ModelSelector(self.sources, instances, settings, selector, llm=llm, pins=pins)
            if llm and (local := getattr(getattr(llm.model, "bound", llm.model), "llama", None)):
                pool.leave_room(local)
        except BaseException:
            # A pool without another lease has loaded nothing yet, so it need not be closed.
            _return_pool()
            raise

    def copy(self, settings: Settings | None, pins: Mapping[str, str], *, paths: bool = True) -> Self:
        """Return a copy with other settings and further pins, which shares the models of this one."""
        twin = copy.copy(self)
        twin.settings = settings or self.settings
        twin.selector = self.selector.copy(twin.settings, pins, paths=paths)
        return twin

    async def available_tasks(self) -> Mapping[str, TaskSpec]:
        """Return the task types that a local or hosted model can run, by name."""
        specs, now = tuple(TASKS.values()), time.monotonic()
        if self._available is not None:
            known, expires, runnable = self._available
            if known == specs and now < expires:
                return runnable
        answers = await asyncio.gather(*(self._runnable(source, specs) for source in self.sources))
        names = self.selector.pins.keys() | set().union(*(names for names, _ in answers))
        runnable = MappingProxyType({spec.name: spec for spec in specs if spec.name in names})
        if all(complete for _, complete in answers):
            self._available = specs, now + AVAILABLE_TTL_S, runnable
        return runnable

    async def _runnable(self, source: ModelSource, specs: Sequence[TaskSpec]) -> tuple[set[str], bool]:
        """Return the tasks for which a source lists a model that runs, and whether it answered for all."""

        async def ask(spec: TaskSpec) -> list[Candidate]:
            if not isinstance(source, RemoteSource):
                return await list_candidates(source, spec, SHOWN, self.settings)
            shared = source.estimate(TASKS[spec.models_of]) if spec.models_of else []
            return [*source.estimate(spec), *shared]

        def runs(spec: TaskSpec, candidate: Candidate) -> bool:
            answers = answers_of(candidate, spec, self.backends.values())
            return any(reason is None for _, reason in answers)

        lists = await asyncio.gather(*map(ask, specs), return_exceptions=True)
        answered = {
            spec: models for spec, models in zip(specs, lists, strict=True) if isinstance(models, list)
        }
        if failed := next((answer for answer in lists if isinstance(answer, BaseException)), None):
            # The selector asks again and records the error.
            logger.warning("the model source %s failed: %s", source.name, failed)

        def names() -> set[str]:
            return {spec.name for spec, models in answered.items() if any(runs(spec, m) for m in models)}

        return await asyncio.to_thread(names), failed is None  # backends look for weights on the disk

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
