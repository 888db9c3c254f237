"""Circuit breaker: a provider or model that fails repeatedly is not called for a while, in the whole process.

After `MAX_FAILURES` failures without a success in between, calls are refused for `PAUSE_S` seconds. Then one
trial call is let through every `PAUSE_S` seconds until one succeeds. Which errors count is decided by
`core.errors.ErrorPolicy`. Concurrent calls that fail together count as one failure.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from jarvis_agent.core.errors import CircuitOpenError, JarvisError, policy_for
from jarvis_agent.core.forks import fork_safe

Key = tuple[str, str]
"""A backend, and a provider or model of it."""

MAX_FAILURES = 5
PAUSE_S = 30.0
_MAX_KEYS = 1024


@dataclass(slots=True)
class _Record:
    """Failures since the last success, and the time of the last one or of the trial after it."""

    failures: int = 0
    last: float = 0.0


class CircuitBreaker:
    """Counts failures by key. Thread-safe."""

    def __init__(
        self,
        max_failures: int = MAX_FAILURES,
        pause: float = PAUSE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`pause` is in seconds; `clock` returns seconds."""
        self.max_failures, self.pause = max_failures, pause
        self._clock = clock
        self._lock = fork_safe(threading.Lock())
        self._records: OrderedDict[Key, _Record] = OrderedDict()

    @asynccontextmanager
    async def call(self, key: Key) -> AsyncIterator[None]:
        """Count how the block ends, unless it is cancelled. CircuitOpenError: the call was refused."""
        with self._lock:
            record, began = self._records.get(key), self._clock()
            if record and record.failures >= self.max_failures:
                if left := max(0.0, record.last + self.pause - began):
                    failed = f"it failed {record.failures} times in a row"
                    raise CircuitOpenError(f"{key[1]} is not called for another {left:.0f} s: {failed}")
                record.last = began  # a trial
        try:
            yield
        except JarvisError as error:
            if policy_for(error).trips_breaker:
                with self._lock:
                    record = self._records.setdefault(key, _Record())
                    if not record.failures or began >= record.last:
                        record.failures, record.last = record.failures + 1, self._clock()
                        self._records.move_to_end(key)
                        while len(self._records) > _MAX_KEYS:
                            self._records.popitem(last=False)
            raise
        else:
            with self._lock:
                self._records.pop(key, None)

    def reset(self) -> None:
        """Forget every failure."""
        with self._lock:
            self._records.clear()


shared = CircuitBreaker()
"""The circuit breaker of this process."""
