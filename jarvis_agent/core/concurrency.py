"""Timeouts for third-party coroutines, and threads for blocking calls.

A cancelled coroutine gets `cancellation.GRACE_S` seconds to finish. After that it is abandoned and logged.
"""

import asyncio
import logging
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Sequence,
)
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from jarvis_agent.core.errors import DeadlineError, ExpertError, describe_error, log_error

A = TypeVar("A")
T = TypeVar("T")

logger = logging.getLogger(__name__)

MAX_PARALLEL = 16
"""Tasks, choices of models and files of a run at once."""


cancellation = SimpleNamespace(GRACE_S=5.0)
"""`GRACE_S`: seconds that a cancelled coroutine may take to finish."""


async def run_with_timeout(
    seconds: float, work: Coroutine[Any, Any, T], name: str, advice: str | Iterable[str] = ()
) -> T:
    """Await a coroutine for at most `seconds`; it is cancelled on timeout and when the caller is cancelled.

    `name` is used in messages, `advice` in that of a timeout. Raises DeadlineError: the limit was reached;
    ExpertError: the work was cancelled from within, or raised a BaseException; SystemExit or
    KeyboardInterrupt, which end the event loop; or another error of the work.
    """
    if seconds <= 0:
        work.close()
        raise DeadlineError("there was no time left for {task}", task=name, advice=advice)
    running = asyncio.create_task(work, name=name)
    in_time: set[asyncio.Task[T]] = set()
    try:
        in_time, _ = await asyncio.wait([running], timeout=seconds)
    finally:
        await cancel_and_wait([running])
    if not in_time and (not running.done() or running.cancelled()):
        time = round(seconds) if seconds > 10 else float(f"{seconds:.2g}")  # a part may be spent
        raise DeadlineError("{task} did not finish within {time:g} s", task=name, time=time, advice=advice)
    if running.cancelled():
        raise ExpertError(f"{name} was cancelled from within")
    error = running.exception()
    if not isinstance(error, Exception | SystemExit | KeyboardInterrupt | None):
        raise ExpertError(f"{name} ended with {describe_error(error)}") from error
    return running.result()


async def cancel_and_wait(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel the tasks that still run and wait up to `cancellation.GRACE_S`. Raises none of their errors."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        for task in (await asyncio.wait(running, timeout=cancellation.GRACE_S))[1]:
            logger.error("%s does not stop when it is cancelled; it is abandoned", task.get_name())
    for task in tasks:  # asyncio logs errors that are never retrieved, with the secrets in them
        task.add_done_callback(lambda done: done.cancelled() or done.exception())


async def gather_limited(work: Callable[[A], Awaitable[T]], items: Sequence[A]) -> list[T]:
    """Await `work(item)` for each item, MAX_PARALLEL at a time, in order. An error cancels the others."""
    slots = asyncio.Semaphore(MAX_PARALLEL)

    async def run(item: A) -> T:
        async with slots:
            return await work(item)

    running = [asyncio.create_task(run(item)) for item in items]
    try:
        return await asyncio.gather(*running)
    finally:
        await cancel_and_wait(running)


async def batches(
    items: AsyncGenerator[T, None], pause_s: float, tick_s: float | None = None
) -> AsyncGenerator[list[T], None]:
    """The items as they come, those of `pause_s` seconds together; an empty list after `tick_s` without any.

    When this generator has ended, so has that of the items.
    """
    gathered: list[T] = []
    changed = asyncio.Event()

    async def read() -> None:
        async with aclosing(items):
            async for item in items:
                gathered.append(item)
                changed.set()

    reading = asyncio.create_task(read())
    reading.add_done_callback(lambda _: changed.set())
    try:
        while gathered or not reading.done():
            with suppress(TimeoutError):
                async with asyncio.timeout(tick_s):
                    await changed.wait()
                    await asyncio.wait([reading], timeout=pause_s)
            changed.clear()
            batch, gathered[:] = gathered[:], []
            yield batch
        await reading
    finally:
        reading.cancel()
        await asyncio.wait([reading])


@asynccontextmanager
async def repeating(work: Callable[[], Awaitable[object]], seconds: float, name: str) -> AsyncIterator[None]:
    """Do work now and every so many seconds, inside the `async with` statement. An error does not end it."""

    async def repeat() -> None:
        while True:
            try:
                await work()
            except Exception as error:
                log_error(logger, f"{name} failed, and will be tried again", error)
            await asyncio.sleep(seconds)

    task = asyncio.create_task(repeat())
    try:
        yield
    finally:
        await cancel_and_wait([task])


def start_daemon_thread(work: Callable[..., T], *args: Any) -> Future[T]:
    """Start `work(*args)` in a new daemon thread with the caller's context variables."""
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()
    context = copy_context()

    def run() -> None:
        try:
            done.set_result(context.run(work, *args))
        except BaseException as error:
            if not isinstance(error, Exception) or isinstance(error, StopIteration):  # no future takes them
                cause, error = error, RuntimeError(f"{type(error).__name__}: {error}")
                error.__cause__ = cause
            done.set_exception(error)

    threading.Thread(target=run, name="jarvis-daemon", daemon=True).start()
    return done


class DaemonThreads(ThreadPoolExecutor):
    """An event loop's executor, which runs each call in a daemon thread, so that none blocks the exit."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return start_daemon_thread(partial(fn, *args, **kwargs))


async def run_in_daemon_thread(work: Callable[..., T], *args: Any) -> T:
    """Await `start_daemon_thread`. On cancellation the thread is abandoned and its result discarded."""
    return await asyncio.wrap_future(start_daemon_thread(work, *args))


_cpu_slots: RunVar[CapacityLimiter] = RunVar("jarvis_cpu_slots")
_cancelled: ContextVar[threading.Event | None] = ContextVar("jarvis_cancelled", default=None)
"""Set while `run_cpu_bound` runs; the event is set when its caller stops waiting."""


async def run_cpu_bound(work: Callable[..., T], *args: Any) -> T:
    """As `asyncio.to_thread`, two at a time in each loop. Long work should call `check_cancelled`."""
    if (slots := _cpu_slots.get(None)) is None:
        _cpu_slots.set(slots := CapacityLimiter(2))
    cancelled = threading.Event()
    token = _cancelled.set(cancelled)
    try:
        return await to_thread.run_sync(partial(work, *args), limiter=slots, abandon_on_cancel=True)
    finally:
        cancelled.set()
        _cancelled.reset(token)


def check_cancelled() -> None:
    """Raise concurrent.futures.CancelledError in work of `run_cpu_bound` whose caller was cancelled."""
    if (cancelled := _cancelled.get()) is not None and cancelled.is_set():
        raise CancelledError
