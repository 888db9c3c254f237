"""The sync face of an async core: one event loop in a thread of its own serves every sync call.

run = portal.call(agent.ainvoke, "…")          # works in a script and inside a notebook's running loop
for chunk in portal.iterate(agent.astream, "…"): ...
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, suppress
from queue import SimpleQueue
from typing import TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

T = TypeVar("T")

_NAME = "jarvis-portal"
_GRACE = 10.0
"""Seconds for which a closed iterator waits for the end of the one in the loop."""

_lock = threading.Lock()
_stack = ExitStack()
_portal: BlockingPortal | None = None


def _shared() -> BlockingPortal:
    global _portal
    with _lock:
        if _portal is None:
            _portal = _stack.enter_context(start_blocking_portal(name=_NAME))
        return _portal


def _forget() -> None:
    """In a forked child the loop's thread is gone: the next call starts a new one."""
    global _portal, _stack, _lock
    _portal, _stack, _lock = None, ExitStack(), threading.Lock()


def call(function: Callable[..., Awaitable[T]], *args: object) -> T:
    """Await `function(*args)` in the portal's loop. An interrupt here cancels it there."""
    future = _shared().start_task_soon(function, *args)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def iterate(function: Callable[..., AsyncIterator[T]], *args: object) -> Iterator[T]:
    """Iterate over `function(*args)` in the portal's loop; closing this iterator cancels that one.

    One task of the loop runs the whole iteration, as async generators with time limits need.
    """
    items: SimpleQueue[T | None] = SimpleQueue()
    left, ended = threading.Event(), threading.Event()
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[None] | None]] = []

    async def pump() -> None:
        running.append((asyncio.get_running_loop(), asyncio.current_task()))
        try:
            if not left.is_set():
                async for item in function(*args):
                    items.put(item)
        finally:
            ended.set()
            items.put(None)

    future = _shared().start_task_soon(pump)
    try:
        while (item := items.get()) is not None:
            yield item
        future.result()
    finally:
        # An iterator that nobody closed may be collected anywhere: in the loop's own thread, or in one that
        # holds a lock which the loop needs. So nothing here waits without a limit, as `future.cancel` would.
        left.set()
        for loop, task in running:
            if task is not None and not ended.is_set():
                with suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(task.cancel)
        if threading.current_thread().name != _NAME:
            ended.wait(_GRACE)


atexit.register(lambda: _stack.close())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
