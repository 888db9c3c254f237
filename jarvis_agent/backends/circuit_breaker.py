"""A circuit breaker: what failed again and again is left alone for a while, by every run of the process.

    with shared.call(("hf-inference", "org/model")):     # UnavailableError while it is left alone
        ...                                                        # what is raised here is counted

A key is counted from one success to the next. After `FAILURES` failures in a row it is left
alone for `PAUSE_S` seconds; then one call may try whether it works again, and the others are
refused until that is known. Only failures that say "not now" count (see `core.errors.ErrorPolicy.counts`):
who refuses an input is well. Calls that run side by side and fail together count as one failure.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from jarvis_agent.core.errors import CircuitOpenError, JarvisError, policy_for

Key = tuple[str, str]
"""A backend, and a provider or model of it."""

FAILURES, PAUSE_S = 5, 30.0
"""Failures in a row that open the breaker, and the seconds it stays open."""

_MOST_KEYS = 1024


@dataclass(slots=True)
class _Record:
    """Failures since the last success, when the last of them was, and whether a trial is under way."""

    failures: int = 0
    last: float = 0.0
    trial: bool = False


class Breaker:
    """Counts by key. Threads and event loops may share it; nobody waits under its lock."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, failures: int = FAILURES, pause: float = PAUSE_S
    ) -> None:
        """`clock` gives seconds; `failures` in a row open the breaker for `pause` seconds."""
        self.failures, self.pause = failures, pause
        self._clock = clock
        self._lock = threading.Lock()
        self._records: OrderedDict[Key, _Record] = OrderedDict()

    @contextmanager
    def call(self, key: Key) -> Iterator[None]:
        """Make a call, which is counted by how it ends. One that is cancelled says nothing.

        Raises:
            UnavailableError: the key is left alone; the call was not made.
        """
        trial = self._admit(key)
        began = self._clock()
        try:
            yield
        except JarvisError as error:
            if policy_for(error).counts:
                self._failed(key, began)
            raise
        else:
            with self._lock:
                self._records.pop(key, None)
        finally:
            with self._lock:
                if trial and (record := self._records.get(key)):
                    record.trial = False

    def reset(self) -> None:
        """Forget every failure."""
        with self._lock:
            self._records.clear()

    def _admit(self, key: Key) -> bool:
        """Let a call through, or raise UnavailableError. Returns whether it is the trial."""
        with self._lock:
            record = self._records.get(key)
            if not record or record.failures < self.failures:
                return False
            since = self._clock() - record.last
            if since >= self.pause and not record.trial:
                record.trial = True
                return True
            left = max(0.0, self.pause - since)
            then = f"for another {left:.0f} s" if left else "until a call that tries it again has ended"
            raise CircuitOpenError(
                f"{key[1]} is not asked {then}: it failed {record.failures} times in a row"
            )

    def _failed(self, key: Key, began: float) -> None:
        with self._lock:
            record = self._records.setdefault(key, _Record())
            if record.failures and began < record.last:
                return
            self._records.move_to_end(key)
            record.failures += 1
            record.last = self._clock()
            while len(self._records) > _MOST_KEYS:
                self._records.popitem(last=False)


shared = Breaker()
"""The breaker of this process."""
