"""Threads of their own for code that blocks and may never return: libraries, tools, servers that went silent.

    done = in_daemon(work, 1, 2)                   # a concurrent.futures.Future
    result = await in_thread(work, 1, 2)           # the same for coroutines

They are daemons, so that neither a cancelled call nor the end of the process waits for them, and no pool has
them, so that one which hangs takes nobody's place.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import Any, TypeVar

T = TypeVar("T")

_NAME = "jarvis-own"


def in_daemon(work: Callable[..., T], *args: Any) -> Future[T]:
    """Start `work(*args)` in a daemon thread, with the context variables of the caller.

    Whatever it raises is in the future; what would end an event loop (SystemExit, StopIteration, …) as a
    RuntimeError.
    """
    done: Future[T] = Future()
    context = copy_context()

    def run() -> None:
        try:
            result = context.run(work, *args)
        except BaseException as error:
            done.set_exception(_harmless(error))
        else:
            done.set_result(result)

    done.set_running_or_notify_cancel()
    threading.Thread(target=run, name=_NAME, daemon=True).start()
    return done


async def in_thread(work: Callable[..., T], *args: Any) -> T:
    """As `in_daemon`, and wait for it. Cancelled, it waits no longer, and the result is thrown away."""
    return await asyncio.wrap_future(in_daemon(work, *args))


def _harmless(error: BaseException) -> BaseException:
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError(f"{type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
