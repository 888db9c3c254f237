"""How many runs an owner may start in a minute, and have at once.

    limits = RunLimits(settings)
    router = APIRouter(dependencies=[Depends(limits.check)])     # each POST is a run, each batch several
    with limits.hold(request.state.owner): ...                   # a run that outlives its request

What is above a limit is answered with 429 and `Retry-After`. Each process of a server counts for itself.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http import HTTPStatus

from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter
from starlette.exceptions import HTTPException
from starlette.requests import Request

from jarvis_agent.interfaces.common.settings import ServerSettings

_RUN_ENDS_S = 5
"""When to try again after a run had no free place: when one ends is unknown."""


class RunLimits:
    """Counts the runs of each owner."""

    def __init__(self, settings: ServerSettings) -> None:
        self._at_once = settings.max_concurrent_runs
        self._per_minute = RateLimitItemPerMinute(settings.runs_per_minute)
        self._started = MovingWindowRateLimiter(MemoryStorage())
        self._running: Counter[str] = Counter()

    async def check(self, request: Request) -> AsyncIterator[None]:
        """FastAPI dependency: the runs of a POST count from now until the response was sent.

        Raises:
            HTTPException: 429, there are too many.
        """
        if request.method != "POST":
            yield
            return
        with self.hold(request.state.owner, await _count(request)):
            yield

    @contextmanager
    def hold(self, owner: str, runs: int = 1) -> Iterator[None]:
        """Count runs of an owner inside the `with` statement.

        Raises:
            HTTPException: 429, there are too many.
        """
        if self._running[owner] + runs > self._at_once:
            raise _too_many(f"at most {self._at_once} runs at once", _RUN_ENDS_S)
        if not self._started.hit(self._per_minute, owner, cost=runs):
            reset = self._started.get_window_stats(self._per_minute, owner).reset_time
            raise _too_many(f"at most {self._per_minute.amount} runs a minute", reset - time.time())
        self._running[owner] += runs
        try:
            yield
        finally:
            self._running[owner] -= runs


async def _count(request: Request) -> int:
    """The runs that a request starts: a batch of LangServe's has several."""
    if not request.url.path.endswith("/batch"):
        return 1
    body = await request.json()
    inputs = body.get("inputs") if isinstance(body, dict) else None
    return len(inputs) if isinstance(inputs, list) and inputs else 1


def _too_many(limit: str, seconds: float) -> HTTPException:
    """The answer to a request above a limit that may be tried again after some seconds."""
    wait = max(1, math.ceil(seconds))
    return HTTPException(
        HTTPStatus.TOO_MANY_REQUESTS,
        f"{limit} are allowed for each client; try again in {wait} s",
        {"Retry-After": str(wait)},
    )
