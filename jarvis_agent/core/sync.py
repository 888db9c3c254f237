"""The sync face of an async core: one event loop in a thread of its own serves every sync call.

run = run_sync(agent.ainvoke, "…")          # works in a script and inside a notebook's running loop
for chunk in iterate_sync(agent.astream, "…"): ...

The thread is a daemon: at the end of the process what still runs is stopped, and what can not be stopped is
left alone.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from jarvis_agent.core.concurrency import limits

T = TypeVar("T")

_NAME = "jarvis-portal"


class _Call(Generic[T]):
    """A coroutine that runs in a loop, with the context variables of the caller; `done` when it has ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> None:
        self.done: Future[T] = Future()
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[T] | None = None
        loop.call_soon_threadsafe(self._begin)

    def cancel(self) -> None:
        """Cancel it, unless it has ended."""
        if not self.done.done():
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._cancel)

    def stop(self) -> None:
        """Cancel it, and wait until it has ended, `limits.SYNC_GRACE_S` seconds at most.

        An iterator that nobody closed may be collected anywhere: in the loop's own thread, where nothing
        can be waited for, or in one that holds a lock which the loop needs.
        """
        self.cancel()
        if threading.current_thread().name != _NAME:
            wait([self.done], limits.SYNC_GRACE_S)

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(self._end)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _end(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.done.set_exception(CancelledError())
        elif (error := task.exception()) is not None:
            self.done.set_exception(error)
        else:
            self.done.set_result(task.result())


class _Portal:
    """An event loop in a thread, and the calls that run there."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._calls: set[_Call[Any]] = set()
        self._thread = threading.Thread(target=self._serve, name=_NAME, daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, T]) -> _Call[T]:
        """Run a coroutine in the loop.

        Raises:
            RuntimeError: the caller is in the loop, which would wait for itself.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(
                "a sync call inside the event loop that serves sync calls would wait for itself; "
                "await the async method instead (ainvoke for invoke)"
            )
        call = _Call(self._loop, work)
        self._calls.add(call)
        call.done.add_done_callback(lambda _: self._calls.discard(call))
        return call

    def close(self) -> None:
        """Stop what runs, and end the thread."""
        running = list(self._calls)
        for call in running:
            call.cancel()
        wait([call.done for call in running], limits.SYNC_GRACE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(limits.SYNC_GRACE_S)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        stopped = False
        while not stopped:
            # A SystemExit or KeyboardInterrupt of a task leaves the loop, and is that task's result then.
            with suppress(SystemExit, KeyboardInterrupt):
                self._loop.run_forever()
                stopped = True
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


_lock = threading.Lock()
_portal: _Portal | None = None


def _shared() -> _Portal:
    global _portal
    with _lock:
        _portal = _portal or _Portal()
        return _portal


def close() -> None:
    """Stop the calls that run, `limits.SYNC_GRACE_S` seconds at most; a later call starts anew."""
    global _portal
    with _lock:
        portal, _portal = _portal, None
    if portal is not None:
        portal.close()


def _forget() -> None:
    """In a forked child the loop's thread is gone: the next call starts a new one."""
    global _portal, _lock
    _portal, _lock = None, threading.Lock()


def run_sync(function: Callable[..., Awaitable[T]], *args: object) -> T:
    """Await `function(*args)` in the portal's loop. An interrupt here stops it there.

    Raises:
        RuntimeError: it is called in that loop.
        Exception: what `function` raises.
    """

    async def work() -> T:
        return await function(*args)

    running = _shared().start(work())
    try:
        return running.done.result()
    finally:
        running.stop()


def iterate_sync(function: Callable[..., AsyncIterator[T]], *args: object) -> Iterator[T]:
    """Iterate over `function(*args)` in the portal's loop; closing this iterator cancels that one.

    One task of the loop runs the whole iteration, as async generators with time limits need.
    """
    items: SimpleQueue[T | None] = SimpleQueue()

    async def pump() -> None:
        async for item in function(*args):
            items.put(item)

    running = _shared().start(pump())
    running.done.add_done_callback(lambda _: items.put(None))
    try:
        while (item := items.get()) is not None:
            yield item
        running.done.result()
    finally:
        running.stop()


atexit.register(close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
