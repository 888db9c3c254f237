"""Sync calls of async functions: one event loop in a daemon thread serves all of them.

run = run_sync(agent.ainvoke, "…")          # works in a script and inside a notebook's running loop
for chunk in iterate_sync(agent.astream, "…"): ...

A call is cancelled when it is interrupted, and at the process's exit. It is abandoned after twice
`limits.CANCEL_GRACE_S`.

`anyio.from_thread.BlockingPortal` is not used: it cancels a task again at each await of its cleanup, and a
SystemExit of one call ends the others.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial, reduce
from operator import add
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from langchain_core.runnables import Runnable, RunnableConfig

from jarvis_agent.core.concurrency import cancel_and_wait, limits, start_daemon_thread
from jarvis_agent.core.forks import fork_safe

T = TypeVar("T")

_THREAD_NAME = "jarvis-sync"
_lock = fork_safe(threading.Lock())
_loop: asyncio.AbstractEventLoop | None = None


class _DaemonThreads(ThreadPoolExecutor):
    """Runs each call of `asyncio.to_thread` in a daemon thread, so that none blocks the process's exit."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return start_daemon_thread(partial(fn, *args, **kwargs))


def _shared_loop() -> asyncio.AbstractEventLoop:
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            _loop.set_default_executor(_DaemonThreads())
            threading.Thread(target=_serve, args=(_loop,), name=_THREAD_NAME, daemon=True).start()
        return _loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    while True:
        # SystemExit and KeyboardInterrupt leave the loop, and are the result of their call too.
        with suppress(SystemExit, KeyboardInterrupt):
            loop.run_forever()


def _forget_loop() -> None:
    """Forget the loop in a forked child, where its thread does not exist."""
    global _loop
    _loop = None


def _cancel_calls() -> None:
    """Cancel the calls that still run at exit."""

    async def cancel() -> None:
        await cancel_and_wait(asyncio.all_tasks() - {asyncio.current_task()})

    if _loop is not None:
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(cancel(), _loop).result(2 * limits.CANCEL_GRACE_S)


atexit.register(_cancel_calls)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_loop)


class _Call(Generic[T]):
    """A coroutine that runs in the shared loop, with the caller's context variables."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        if threading.current_thread().name == _THREAD_NAME:
            work.close()
            raise RuntimeError(
                "a sync call inside the event loop that serves sync calls would wait for itself; "
                "await the async method instead (ainvoke for invoke)"
            )
        self.done: Future[T] = Future()
        self._task: asyncio.Task[T] | None = None
        self._loop = _shared_loop()
        self._loop.call_soon_threadsafe(self._start, work)

    def stop(self) -> None:
        """Cancel the coroutine unless it has ended, and wait for it.

        A forgotten iterator may be collected in the loop's own thread, which cannot wait for itself.
        """
        if not self.done.done():
            self._loop.call_soon_threadsafe(self._cancel)
            if threading.current_thread().name != _THREAD_NAME:
                wait([self.done], 2 * limits.CANCEL_GRACE_S)

    def _start(self, work: Coroutine[Any, Any, T]) -> None:
        self._task = self._loop.create_task(work)
        self._task.add_done_callback(self._finish)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _finish(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.done.set_exception(CancelledError())
        elif (error := task.exception()) is not None:
            self.done.set_exception(error)
        else:
            self.done.set_result(task.result())


def run_sync(function: Callable[..., Awaitable[T]], *args: object) -> T:
    """Await `function(*args)` in the shared loop.

    Raises:
        RuntimeError: it is called in that loop.
        Exception: what `function` raises.
    """

    async def work() -> T:
        return await function(*args)

    call = _Call(work())
    try:
        return call.done.result()
    finally:
        call.stop()


def iterate_sync(function: Callable[..., AsyncIterator[T]], *args: object) -> Iterator[T]:
    """Iterate over `function(*args)` in the shared loop; closing this iterator cancels that one.

    One task of the loop runs the whole iteration, as async generators with time limits need.
    """
    items: SimpleQueue[T | None] = SimpleQueue()

    async def pump() -> None:
        async for item in function(*args):
            items.put(item)

    call = _Call(pump())
    call.done.add_done_callback(lambda _: items.put(None))
    try:
        while (item := items.get()) is not None:
            yield item
        call.done.result()
    finally:
        call.stop()


In = TypeVar("In")
Out = TypeVar("Out")


class AsyncRunnable(Runnable[In, Out]):
    """A Runnable whose other methods, sync and async, follow from `astream`, which yields at least once.

    The context variables of a sync call, and with them the parent's config, are visible in `astream`.
    """

    @abstractmethod
    def astream(
        self,
        input: In,  # noqa: A002 - LangChain's name
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[Out, None]:
        """The output in chunks. Close it (`aclosing`) unless it is read to the end."""

    def join(self, chunks: list[Any]) -> Out:
        """The whole output: the sum of its chunks."""
        whole: Out = reduce(add, chunks)
        return whole

    async def ainvoke(self, input: In, config: RunnableConfig | None = None, **kwargs: Any) -> Out:  # noqa: A002
        """The whole output."""
        return self.join([chunk async for chunk in self.astream(input, config, **kwargs)])

    def invoke(self, input: In, config: RunnableConfig | None = None, **kwargs: Any) -> Out:  # noqa: A002
        """The whole output."""
        return run_sync(partial(self.ainvoke, **kwargs), input, config)

    def stream(self, input: In, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Out]:  # noqa: A002
        """The output in chunks."""
        yield from iterate_sync(partial(self.astream, **kwargs), input, config)
