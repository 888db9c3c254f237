"""The sync face of the async core."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextvars import ContextVar

import pytest

from jarvis_agent.core.sync import iterate_sync, run_sync

WORD: ContextVar[str] = ContextVar("word", default="nobody's")


async def double(value: int) -> int:
    await asyncio.sleep(0)
    return 2 * value


async def count(to: int) -> AsyncIterator[int]:
    async with asyncio.timeout(5):
        for number in range(to):
            await asyncio.sleep(0)
            yield number


def test_a_coroutine_is_awaited_from_sync_code():
    assert run_sync(double, 21) == 42


async def test_it_works_inside_a_running_loop():
    assert run_sync(double, 21) == 42


def test_errors_come_out_as_they_are():
    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        run_sync(fail)


def test_an_iterator_gives_the_items_in_order():
    assert list(iterate_sync(count, 5)) == [0, 1, 2, 3, 4]


def test_an_error_in_the_middle_comes_after_the_items_before_it():
    async def broken() -> AsyncIterator[int]:
        yield 1
        raise ValueError("broken")

    items = iterate_sync(broken)
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

    items = iterate_sync(endless)
    next(items)
    items.close()  # type: ignore[attr-defined]
    assert closed.wait(timeout=5)


def test_all_sync_calls_share_one_thread():
    async def thread() -> int:
        return threading.get_ident()

    assert len({run_sync(thread) for _ in range(5)}) == 1


def test_closing_does_not_wait_for_ever_for_a_loop_that_is_held(monkeypatch):
    monkeypatch.setattr("jarvis_agent.core.concurrency.limits.CANCEL_GRACE_S", 0.1)
    free = threading.Event()

    async def held() -> AsyncIterator[int]:
        yield 1
        free.wait(30)
        yield 2

    items = iterate_sync(held)
    assert next(items) == 1
    closed = threading.Thread(target=items.close)
    closed.start()
    closed.join(10)
    assert not closed.is_alive()
    free.set()
    assert run_sync(double, 1) == 2


def test_an_iterator_that_was_left_before_it_began_runs_nothing():
    begun: list[int] = []

    async def noting() -> AsyncIterator[int]:
        begun.append(1)
        yield 1

    iterate_sync(noting).close()
    assert run_sync(double, 1) == 2
    assert begun == []


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
def test_a_call_that_would_end_the_loop_ends_alone(error: BaseException):
    async def end() -> None:
        raise error

    with pytest.raises(type(error)):
        run_sync(end)
    assert run_sync(double, 21) == 42


def test_a_call_in_its_own_loop_is_refused():
    async def wait_for_itself() -> int:
        return run_sync(double, 21)

    with pytest.raises(RuntimeError, match="ainvoke"):
        run_sync(wait_for_itself)


def test_calls_see_the_context_variables_of_their_caller():
    async def read() -> str:
        return WORD.get()

    token = WORD.set("mine")
    try:
        assert run_sync(read) == "mine"
    finally:
        WORD.reset(token)


ENDINGS = {
    "a call that does not stop": """
async def deaf():
    begun.set()
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
""",
    "a call of a daemon thread": """
async def deaf():
    begun.set()
    await asyncio.sleep(600)
""",
}


@pytest.mark.parametrize("code", ENDINGS.values(), ids=ENDINGS.keys())
def test_the_process_ends_though_a_call_does_not(code: str):
    script = f"""
import asyncio, threading
from jarvis_agent.core import concurrency, sync
concurrency.limits.CANCEL_GRACE_S = 0.2
begun = threading.Event()
{code}
threading.Thread(target=sync.run_sync, args=(deaf,), daemon=True).start()
begun.wait()
"""
    ended = subprocess.run([sys.executable, "-c", script], timeout=60, capture_output=True, check=False)
    assert ended.returncode == 0
