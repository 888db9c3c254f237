"""One piece of work for all who want its result at the same time.

flight = SingleFlight[dict[str, TaskSpec]]()
offered = await flight.join(specs, lambda: ask(specs))     # a second caller waits for the first one's
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from jarvis_agent.deadline import stop

T = TypeVar("T")


@dataclass(slots=True)
class _Flight(Generic[T]):
    what: object
    running: asyncio.Task[T]
    waiting: int = 0


class SingleFlight(Generic[T]):
    """Runs one piece of work at a time in each event loop. Nothing is kept once it has ended."""

    def __init__(self) -> None:
        self._flights: dict[asyncio.AbstractEventLoop, _Flight[T]] = {}

    async def join(self, what: object, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of the work that is under way, or of `work`, which is begun.

        It goes on where a caller is cancelled, as long as another one waits for it. It sees nothing of the
        callers' context variables.

        Args:
            what: what is worked on; other work than that of the flight that is under way is done apart.
            work: begins it.

        Raises:
            Exception: what the work raises, for all who wait.
        """
        loop = asyncio.get_running_loop()
        flight = self._flights.get(loop)
        if flight is None or flight.what != what:
            flight = _Flight(what, loop.create_task(work(), context=Context()))
            self._flights[loop] = flight
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.running)
        finally:
            flight.waiting -= 1
            if not flight.waiting:
                if self._flights.get(loop) is flight:
                    del self._flights[loop]
                await stop([flight.running])
