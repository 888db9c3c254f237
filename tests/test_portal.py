"""The sync face of the async core."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from jarvis_agent import portal


async def double(value: int) -> int:
    await asyncio.sleep(0)
    return 2 * value


async def count(to: int) -> AsyncIterator[int]:
    async with asyncio.timeout(5):
        for number in range(to):
            await asyncio.sleep(0)
            yield number


def test_a_coroutine_is_awaited_from_sync_code():
    assert portal.call(double, 21) == 42


async def test_it_works_inside_a_running_loop():
    assert portal.call(double, 21) == 42


def test_errors_come_out_as_they_are():
    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        portal.call(fail)


def test_an_iterator_gives_the_items_in_order():
    assert list(portal.iterate(count, 5)) == [0, 1, 2, 3, 4]


def test_an_error_in_the_middle_comes_after_the_items_before_it():
    async def broken() -> AsyncIterator[int]:
        yield 1
        raise ValueError("broken")

    items = portal.iterate(broken)
    assert next(items) == 1
    with pytest.raises(ValueError, match="broken"):
        next(items)


def test_closing_the_iterator_ends_the_async_one():
    closed = threading.Event()

    async def endless() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
                await asyncio.sleep(0)
        finally:
            closed.set()

    items = portal.iterate(endless)
    next(items)
    items.close()  # type: ignore[attr-defined]
    assert closed.wait(timeout=5)


def test_all_sync_calls_share_one_thread():
    async def thread() -> int:
        return threading.get_ident()

    assert len({portal.call(thread) for _ in range(5)}) == 1
