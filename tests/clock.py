"""Clocks for tests: time passes without waiting.

clock = Clock(100.0)
context = RunContext(request="", clock=clock)
clock.now += 10

async def test_a_limit(loop_time):          # a fixture of conftest.py
    await asyncio.sleep(3600)               # ends at once
"""

import asyncio
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pytest
from anyio import to_thread


@dataclass
class Clock:
    """`now` is what it tells, in seconds."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


class LoopTime:
    """The time of the running event loop: it jumps to the next timer instead of waiting for it.

    While a thread works for the loop, the loop waits as usual. Tests of time limits can use long ones, and do
    not depend on the load of the machine. `skip` passes time by hand, for tests of blocked threads.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        loop: Any = asyncio.get_running_loop()
        self._loop, self._real_time, self._real_select = loop, loop.time, loop._selector.select
        self._skipped = 0.0
        self._in_threads: list[asyncio.Future[Any]] = []
        patch.setattr(loop, "time", lambda: self._real_time() + self._skipped)
        patch.setattr("jarvis_agent.core.context.perf_counter", loop.time)
        patch.setattr(loop._selector, "select", self._select)
        wrap, run_sync = asyncio.wrap_future, to_thread.run_sync

        def wrap_future(future: Future[Any] | asyncio.Future[Any], **options: Any) -> asyncio.Future[Any]:
            self._in_threads.append(wrap(future, **options))
            return self._in_threads[-1]

        async def run(*args: Any, **options: Any) -> Any:
            self._in_threads.append(running := loop.create_future())
            try:
                return await run_sync(*args, **options)
            finally:
                running.cancel()

        patch.setattr(asyncio, "wrap_future", wrap_future)
        patch.setattr(asyncio.futures, "wrap_future", wrap_future)
        patch.setattr(to_thread, "run_sync", run)

    def skip(self, seconds: float) -> None:
        """Pass time, from any thread."""
        self._skipped += seconds
        self._loop.call_soon_threadsafe(lambda: None)

    def _select(self, timeout: float | None) -> Any:
        self._in_threads = [future for future in self._in_threads if not future.done()]
        if self._in_threads or not timeout:
            return self._real_select(timeout)
        if not (ready := self._real_select(0)):
            self._skipped += timeout
        return ready
