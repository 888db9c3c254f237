"""One piece of work for all who want its result at the same time.

flight = SingleFlight[Mapping[str, TaskSpec]]()
offered = await flight.join(specs, lambda: ask(specs))     # a second caller waits for the first one's
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from jarvis_agent.core.concurrency import stop

T = TypeVar("T")


@dataclass(slots=True)
class _Flight(Generic[T]):
    running: asyncio.Task[T]
    waiting: int = 0


class SingleFlight(Generic[T]):
    """Does the same work once at a time in each event loop. Nothing is kept once it has ended."""

    def __init__(self) -> None:
        self._flights: dict[tuple[asyncio.AbstractEventLoop, Hashable], _Flight[T]] = {}

    async def join(self, what: Hashable, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of the work that is under way, or of `work`, which is begun.

        It goes on where a caller is cancelled, as long as another one waits for it. It sees nothing of the
        callers' context variables.

        Args:
            what: tells the same work from other work, which is done apart.
            work: begins it.

        Raises:
            Exception: what the work raises, for all who wait.
        """
        key = asyncio.get_running_loop(), what
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.create_task(work(), context=Context()))
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.running)
        finally:
            flight.waiting -= 1
            if not flight.waiting:
                del self._flights[key]
                await stop([flight.running])
