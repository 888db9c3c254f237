"""Deadlines that hold, whatever the code does that has them.

    plan = await run_with_timeout(300.0, planner.plan(brief, give), "the planner")    # LateError after 300 s
    files = await each(store.grant, names, at_once=16)

    with uncounted():
        tasks = await announced.tasks()        # a wait for others, which does not count

Code that ignores its cancellation is waited for `GRACE` seconds, and then left alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import Any, TypeVar

from jarvis_agent.core.errors import ExpertError, describe_error

A = TypeVar("A")
T = TypeVar("T")

logger = logging.getLogger(__name__)

GRACE = 5.0
"""Seconds for which what was cancelled is waited for: code that goes on all the same must not hold a run."""


@dataclass(slots=True)
class _Limit:
    """A time limit of `within`, as the work sees it; what the work started may outlive it."""

    timeout: asyncio.Timeout
    loop: asyncio.AbstractEventLoop
    is_over: bool = False

    @property
    def is_open(self) -> bool:
        return not self.is_over and not self.timeout.expired()


_limits: ContextVar[tuple[_Limit, ...]] = ContextVar("jarvis_limits", default=())


class StageTimeoutError(TimeoutError):
    """The time of `within` was over; a TimeoutError of the work itself is another one."""


async def run_with_timeout(seconds: float, work: Coroutine[Any, Any, T], name: str) -> T:
    """What the work gives, if it gives it in time. It is cancelled otherwise, and where the caller is.

    It may be code of others, which may do anything: what would end those who wait for it, a CancelledError
    while nobody stops it or a SystemExit, is its failure.

    Args:
        seconds: how long it may take, but for its `uncounted` blocks; without any it is not begun.
        work: a coroutine.
        name: what it is, for people.

    Raises:
        LateError: it did not.
        ExpertError: it was cancelled from within, or ended with what is no Exception.
        Exception: what the work raises.
    """
    if seconds <= 0:
        work.close()
        raise StageTimeoutError
    try:
        async with asyncio.timeout(seconds) as limit:
            context = copy_context()
            own = _Limit(limit, asyncio.get_running_loop())
            context.run(_limits.set, (*_limits.get(), own))
            running = asyncio.create_task(_tamed(work, name), name=name, context=context)
            try:
                await asyncio.wait([running])
            finally:
                try:
                    await stop([running])
                finally:
                    own.is_over = True
    except TimeoutError as late:
        if not running.done() or running.cancelled():
            raise StageTimeoutError from late
    if running.cancelled():
        raise ExpertError(f"{name} was cancelled from within")
    error = running.exception()
    if error is not None and not isinstance(error, Exception):
        raise _ended_with(error, name) from error
    return running.result()


async def _tamed(work: Awaitable[T], name: str) -> T:
    try:
        return await work
    except SystemExit as error:
        # asyncio lets it out of the loop, past everybody.
        raise _ended_with(error, name) from error


def _ended_with(error: BaseException, name: str) -> ExpertError:
    return ExpertError(f"{name} ended with {in_words(error)}")


async def stop(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel what still runs and wait until it has stopped, `GRACE` seconds at most. Raises nothing of it."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        for task in (await asyncio.wait(running, timeout=GRACE))[1]:
            logger.error("%s does not stop when it is cancelled; it is left alone", task.get_name())
    for task in tasks:
        if task.done() and not task.cancelled():
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


@contextmanager
def uncounted() -> Iterator[None]:
    """A wait for somebody else, who has a limit of his own: those around this block stand still."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    # A limit of another loop can only be moved there; it goes on.
    known = [limit for limit in _limits.get() if limit.loop is loop and limit.is_open]
    standing = [(limit, when) for limit in known if (when := limit.timeout.when()) is not None]
    for limit, _ in standing:
        limit.timeout.reschedule(None)
    try:
        yield
    finally:
        for limit, when in standing:
            if limit.is_open:
                limit.timeout.reschedule(when + loop.time() - began)
