"""Deadlines that hold, whatever the code does that has them.

    plan = await within(300.0, planner.plan(brief, give), "the planner")    # LateError after 300 s
    files = await each(store.grant, names, at_once=16)

    async with limit(60.0):
        with uncounted():
            tasks = await announced.tasks()        # a wait for others: the 60 s go on afterwards

Code that ignores its cancellation is waited for `GRACE` seconds, and then left alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

A = TypeVar("A")
T = TypeVar("T")

logger = logging.getLogger(__name__)

GRACE = 5.0
"""Seconds for which what was cancelled is waited for: code that goes on all the same must not hold a run."""

_limits: ContextVar[tuple[asyncio.Timeout, ...]] = ContextVar("jarvis_limits", default=())


class LateError(TimeoutError):
    """The time of `within` was over; a TimeoutError of the work itself is another one."""


async def within(seconds: float, work: Coroutine[Any, Any, T], name: str) -> T:
    """What the work gives, if it gives it in time. It is cancelled otherwise, and where the caller is.

    Args:
        seconds: how long it may take; without any it is not begun.
        work: a coroutine.
        name: what it is, for the log.

    Raises:
        LateError: it did not.
        Exception: what the work raises.
    """
    if seconds <= 0:
        work.close()
        raise LateError
    running = asyncio.create_task(work, name=name)
    late = False
    try:
        late = not (await asyncio.wait([running], timeout=seconds))[0]
    finally:
        await stop([running])
    if late and (not running.done() or running.cancelled()):
        raise LateError
    return running.result()


async def stop(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel what still runs and wait until it has stopped, `GRACE` seconds at most. Raises nothing of it."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if not running:
        return
    stopped, deaf = await asyncio.wait(running, timeout=GRACE)
    for task in deaf:
        logger.error("%s does not stop when it is cancelled; it is left alone", task.get_name())
    for task in stopped:
        if not task.cancelled():
            task.exception()  # asyncio complains of errors that nobody has looked at


async def each(work: Callable[[A], Awaitable[T]], things: Sequence[A], at_once: int) -> list[T]:
    """The work on each of the things, a few at once; the results are in their order.

    Raises:
        Exception: what the work on one of them raises; the others are cancelled then.
    """
    slots = asyncio.Semaphore(at_once)

    async def one(thing: A) -> T:
        async with slots:
            return await work(thing)

    running = [asyncio.create_task(one(thing)) for thing in things]
    try:
        return await asyncio.gather(*running)
    finally:
        await stop(running)


@asynccontextmanager
async def limit(seconds: float) -> AsyncIterator[asyncio.Timeout]:
    """As `asyncio.timeout`, but for the time that `uncounted` blocks within take."""
    async with asyncio.timeout(seconds) as late:
        token = _limits.set((*_limits.get(), late))
        try:
            yield late
        finally:
            _limits.reset(token)


@contextmanager
def uncounted() -> Iterator[None]:
    """A wait for somebody else, who has a limit of his own: those around this block stand still."""
    clock = asyncio.get_running_loop().time
    began = clock()
    standing = [
        (late, when) for late in _limits.get() if not late.expired() and (when := late.when()) is not None
    ]
    for late, _ in standing:
        late.reschedule(None)
    try:
        yield
    finally:
        for late, when in standing:
            late.reschedule(when + clock() - began)
