"""Threads of their own for code that blocks and may never return: libraries, tools, servers that went silent.

    done = in_daemon(work, 1, 2)                   # a concurrent.futures.Future
    result = await in_thread(work, 1, 2)           # the same for coroutines
    crew = Crew(8, "models")                       # a few threads that stay for the next work
    done = crew.start(work, 1, 2)
    crew.stop(10.0)
    plan = await run_cpu_bound(work, 1, 2)               # for work that keeps the processor busy
    check_cancelled()                                        # such work says so between its steps

They are daemons, so that neither a cancelled call nor the end of the process waits for them without a limit;
those of `run_cpu_bound` are not, for their work ends by itself. Those of `in_daemon` are in no pool, so that one
which hangs takes nobody's place.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from jarvis_agent.core import sync as portal

T = TypeVar("T")

_NAME = "jarvis-own"
_AT_EXIT = 10.0
"""Seconds for which the end of the process waits for a crew."""


def _two_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(2, "jarvis-busy")


_busy = _two_threads()
"""Starts its threads when there is work for them."""

_left: ContextVar[threading.Event | None] = ContextVar("jarvis_left", default=None)
"""Tells work of `run_cpu_bound` that whoever waited for it has left."""


def _renew() -> None:
    """In a forked child the threads are gone, and the executor would wait for them."""
    global _busy
    _busy = _two_threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def in_daemon(work: Callable[..., T], *args: Any) -> Future[T]:
    """Start `work(*args)` in a daemon thread, with the context variables of the caller.

    Whatever it raises is in the future; what would end an event loop (SystemExit, StopIteration, …) as a
    RuntimeError.
    """
    run, done = _prepared(copy_context().run, work, *args)
    threading.Thread(target=run, name=_NAME, daemon=True).start()
    return done


async def in_thread(work: Callable[..., T], *args: Any) -> T:
    """As `in_daemon`, and wait for it. Cancelled, it waits no longer, and the result is thrown away."""
    return await asyncio.wrap_future(in_daemon(work, *args))


async def run_cpu_bound(work: Callable[..., T], *args: Any) -> T:
    """As `asyncio.to_thread`, for work that keeps the processor busy: two at a time in the whole process.

    In asyncio's own few threads a thousand such would stand before every small thing that waits for a disk.
    """
    context, left = copy_context(), threading.Event()
    context.run(_left.set, left)
    loop = asyncio.get_running_loop()
    try:
        return await loop.run_in_executor(_busy, partial(context.run, work, *args))
    finally:
        left.set()


def check_cancelled() -> None:
    """A place between two steps of the work of `run_cpu_bound`, where it ends if nobody waits for it any more.

    Raises:
        concurrent.futures.CancelledError: nobody does.
    """
    left = _left.get()
    if left is not None and left.is_set():
        raise CancelledError


class Crew:
    """Threads that do one piece of work after the other; for a caller that starts one at a time.

    They stay, since libraries keep much by thread. At the end of the process work that is under way is waited
    for a little, since a library may crash that is torn down beneath it.
    """

    def __init__(self, size: int, name: str) -> None:
        """`size`: how many there are at most. `name`: what their names begin with."""
        self._size = size
        self._name = name
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._unfinished = 0
        atexit.register(self._end)

    def start(self, work: Callable[..., T], *args: Any) -> Future[T]:
        """Do `work(*args)` as soon as a thread is free. What it raises is told as by `in_daemon`."""
        run, done = _prepared(self._counted, work, *args)
        with self._lock:
            self._unfinished += 1
            grows = len(self._threads) < min(self._unfinished, self._size)
        self._work.put(run)
        if grows:
            name = f"{self._name}-{len(self._threads)}"
            thread = threading.Thread(target=self._serve, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        return done

    def stop(self, seconds: float) -> None:
        """End the threads when they have done their work, and wait for that, `seconds` at most."""
        atexit.unregister(self._end)
        for _ in self._threads:
            self._work.put(None)
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _end(self) -> None:
        portal.close()  # the calls that wait for the work are stopped, and tell it to stop
        self.stop(_AT_EXIT)

    def _counted(self, work: Callable[..., T], *args: Any) -> T:
        try:
            return work(*args)
        finally:
            with self._lock:
                self._unfinished -= 1

    def _serve(self) -> None:
        while (run := self._work.get()) is not None:
            run()
            del run


def _prepared(work: Callable[..., T], *args: Any) -> tuple[Callable[[], None], Future[T]]:
    """The work as a call that raises nothing, and the future in which its outcome will be."""
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = work(*args)
        except BaseException as error:
            done.set_exception(_harmless(error))
        else:
            done.set_result(result)

    return run, done


def _harmless(error: BaseException) -> BaseException:
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError(f"{type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
