"""Model sources: the interface, and how the selector asks one.

A source is a class with a `name` and one method, `candidates`. It is passed as `JarvisAgent(sources=[...])`
or found through the entry-point group `jarvis_agent.model_sources` and called with the settings.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

from jarvis_agent.core.concurrency import run_with_timeout
from jarvis_agent.core.notes import limit_of
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import known_task
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate, Task

T = TypeVar("T")


@runtime_checkable
class ModelSource(Protocol):
    """Lists models."""

    name: ClassVar[str]

    async def candidates(self, spec: TaskSpec, limit: int) -> list[Candidate]:
        """Return at most `limit` models for the task, the most downloaded first.

        Several runs may call it at the same time.

        Raises:
            JarvisError: the source cannot be asked. The selector records it and asks the other sources.
        """
        ...


@runtime_checkable
class RemoteSource(ModelSource, Protocol):
    """A source behind a network: its lists are short, and asking for all tasks at once would be slow."""

    def estimate(self, spec: TaskSpec) -> list[Candidate]:
        """Return placeholders for what it would list, without a request; [] if it would list nothing."""
        ...

    async def find(self, spec: TaskSpec, model_id: str, revision: str | None) -> Candidate | None:
        """Return the model with that id, or None. Raises what `candidates` raises."""
        return None

    async def describe(self, candidate: Candidate) -> str:
        """Return the first paragraph of the model card; "" if there is none."""
        return ""


@runtime_checkable
class SearchableSource(ModelSource, Protocol):
    """A source that knows more models than it lists, and finds those for the purpose of a task."""

    async def search(self, spec: TaskSpec, task: Task, limit: int) -> list[Candidate]:
        """Return at most `limit` models for each query it makes; [] instead of an error."""
        ...


async def list_candidates(
    source: ModelSource, spec: TaskSpec, limit: int, settings: Settings, task: Task | None = None
) -> list[Candidate]:
    """Return the models of a source for a task, and for the task whose models it shares (`models_of`).

    A SearchableSource is also searched for the purpose of `task`, at the same time. Raises as `ask_source`,
    and TypeError if the source returned something other than Candidates.
    """

    async def ask_for(of: TaskSpec) -> list[Candidate]:
        calls = [source.candidates(of, limit)]
        if task and isinstance(source, SearchableSource):
            calls.append(source.search(of, task, limit))
        return [candidate for listed in await asyncio.gather(*calls) for candidate in listed]

    async def ask() -> list[Candidate]:
        candidates = await ask_for(spec)
        for candidate in candidates:
            if not isinstance(candidate, Candidate):
                raise TypeError(f"it lists something that is not a Candidate: {candidate!r}")
        if spec.models_of:
            shared = await ask_for(known_task(spec.models_of))
            candidates += [candidate.model_copy(update={"task": spec.name}) for candidate in shared]
        return candidates

    return await ask_source(source, ask(), settings)


async def ask_source(source: ModelSource, work: Coroutine[Any, Any, T], settings: Settings) -> T:
    """Await the answer of a source for at most half of `settings.llm_timeout`, then raise DeadlineError."""
    limit = limit_of("JARVIS_LLM_TIMEOUT")
    return await run_with_timeout(settings.llm_timeout / 2, work, f"the source {source.name}", limit)
