"""Circuit breaker: a provider or model that fails repeatedly is not called for a while, in the whole process.

After `MAX_FAILURES` failures in a row, calls are refused until `PAUSE_S` seconds after the last one. Calls
that fail together count once. Which errors count is decided by `core.errors.ErrorPolicy`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

from jarvis_agent.core.errors import CircuitOpenError, JarvisError, policy_for

Key = tuple[str, str]
"""A backend, and a provider or model of it."""

MAX_FAILURES = 5
PAUSE_S = 30.0
_MAX_KEYS = 1024

_failures: dict[Key, tuple[int, float]] = {}
"""How often each has failed since its last success, and when the last counted; the latest is the last."""


@asynccontextmanager
async def count_failures(key: Key) -> AsyncIterator[None]:
    """Count how the block ends, unless it is cancelled. CircuitOpenError: the call was refused."""
    began = monotonic()
    count, last = _failures.get(key, (0, 0.0))
    left = last + PAUSE_S - began
    if count >= MAX_FAILURES and left > 0:
        failed = f"it failed {count} times in a row"
        raise CircuitOpenError(f"{key[1]} is not called for another {left:.0f} s: {failed}")
    try:
        yield
    except JarvisError as error:
        count, last = _failures.get(key, (0, 0.0))
        if policy_for(error).trips_breaker and began >= last:
            _failures.pop(key, None)
            _failures[key] = count + 1, monotonic()
            if len(_failures) > _MAX_KEYS:
                _failures.pop(next(iter(_failures)), None)
        raise
    else:
        _failures.pop(key, None)
