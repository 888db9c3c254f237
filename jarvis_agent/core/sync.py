"""Sync calls of async functions: one event loop in a daemon thread serves all, also inside a running loop.

A call is cancelled when it is interrupted, and at the process's exit. It is abandoned after twice
`cancellation.GRACE_S`.

`anyio.from_thread.BlockingPortal` is not used: it cancels a task again at each await of its cleanup.
"""

import asyncio
import atexit
import os
import threading
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from functools import cache, partial, reduce
from operator import add
from queue import SimpleQueue
from typing import Any, TypeVar

from langchain_core.runnables import Runnable, RunnableConfig

from jarvis_agent.core.concurrency import DaemonThreads, cancel_and_wait, cancellation
from jarvis_agent.core.forks import fork_safe

T = TypeVar("T")

_THREAD_NAME = "jarvis-sync"
_lock = fork_safe(threading.Lock())


@cache
def _shared_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_default_executor(DaemonThreads())

    def serve() -> None:
        while True:
            # SystemExit and KeyboardInterrupt leave the loop, and are the result of their call too.
            with suppress(SystemExit, KeyboardInterrupt):
                loop.run_forever()

    threading.Thread(target=serve, name=_THREAD_NAME, daemon=True).start()
    return loop


@atexit.register
def _cancel_calls() -> None:
    """Cancel the calls that still run at exit."""
    if _shared_loop.cache_info().currsize:
        _cancel(_shared_loop(), lambda: asyncio.all_tasks(_shared_loop()))


if hasattr(os, "register_at_fork"):  # the loop's thread does not exist in the child
    os.register_at_fork(after_in_child=_shared_loop.cache_clear)


def _cancel(loop: asyncio.AbstractEventLoop, tasks: Callable[[], Collection[asyncio.Task[Any]]]) -> None:
    """Cancel tasks of the loop and wait for them.

    A forgotten iterator may be collected in the loop's own thread, which cannot wait for itself.
    """

    async def cancel() -> None:
        await cancel_and_wait([task for task in tasks() if task is not asyncio.current_task()])

    cancelled = asyncio.run_coroutine_threadsafe(cancel(), loop)
    if threading.current_thread().name != _THREAD_NAME:
        wait([cancelled], 2 * cancellation.GRACE_S)


@contextmanager
def _call(function: Callable[..., Awaitable[T]], *args: object) -> Iterator[Future[T]]:
    """Start `function(*args)` in the shared loop, with the caller's context variables.

    It is cancelled at the end of the block unless it has ended.
    """
    if threading.current_thread().name == _THREAD_NAME:
        raise RuntimeError(
            "a sync call inside the event loop that serves sync calls would wait for itself; "
            "await the async method instead (ainvoke for invoke)"
        )
    tasks: list[asyncio.Task[Any]] = []

    async def work() -> T:
        tasks.extend(filter(None, [asyncio.current_task()]))
        return await function(*args)

    with _lock:
        loop = _shared_loop()
    done = asyncio.run_coroutine_threadsafe(work(), loop)
    try:
        yield done
    finally:
        if not done.done():
            _cancel(loop, lambda: tasks)


def run_sync(function: Callable[..., Awaitable[T]], *args: object) -> T:
    """Await `function(*args)` in the shared loop. Raises RuntimeError: it is called in that loop."""
    with _call(function, *args) as done:
        return done.result()


def iterate_sync(function: Callable[..., AsyncIterator[T]], *args: object) -> Iterator[T]:
    """Iterate over `function(*args)` in the shared loop; closing this iterator cancels that one.

    One task of the loop runs the whole iteration, as async generators with time limits need.
    """
    items: SimpleQueue[T | None] = SimpleQueue()

    async def pump() -> None:
        async for item in function(*args):
            items.put(item)

    with _call(pump) as done:
        done.add_done_callback(lambda _: items.put(None))
        while (item := items.get()) is not None:
            yield item
        done.result()


In = TypeVar("In")
Out = TypeVar("Out")


class AsyncRunnable(Runnable[In, Out]):
    """A Runnable with all methods, sync and async, by its `astream`, which yields at least once.

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

    def _join(self, chunks: list[Any]) -> Out:
        """The whole output: the sum of its chunks."""
        whole: Out = reduce(add, chunks)
        return whole

    async def ainvoke(self, input: In, config: RunnableConfig | None = None, **kwargs: Any) -> Out:  # noqa: A002
        """The whole output."""
        return self._join([chunk async for chunk in self.astream(input, config, **kwargs)])

    def invoke(self, input: In, config: RunnableConfig | None = None, **kwargs: Any) -> Out:  # noqa: A002
        """The whole output."""
        return run_sync(partial(self.ainvoke, **kwargs), input, config)

    def stream(self, input: In, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Out]:  # noqa: A002
        """The output in chunks."""
        yield from iterate_sync(partial(self.astream, **kwargs), input, config)
