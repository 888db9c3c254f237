"""A clock for the tests: its time passes when a test says so.

clock = Clock(100.0)
breaker = Breaker(clock)
clock.now += 10
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Clock:
    """`now` is what it tells, in seconds."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now
