"""Sync calls of async functions, through one event loop in a daemon thread."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextvars import ContextVar

import pytest
from processes import run_python

from jarvis_agent.core.sync import iterate_sync, run_sync

caller: ContextVar[str] = ContextVar("caller", default="none")


async def double(value: int) -> int:
    await asyncio.sleep(0)
    return 2 * value


def test_calls_share_one_thread_and_get_the_callers_context() -> None:
    async def read() -> tuple[str, int]:
        return caller.get(), threading.get_ident()

    token = caller.set("me")
    try:
        first, second = run_sync(read), run_sync(read)
    finally:
        caller.reset(token)
    assert first[0] == "me"
    assert first == second


async def test_sync_calls_work_inside_a_running_loop() -> None:
    assert run_sync(double, 21) == 42


def test_sync_calls_in_the_shared_loop_are_refused() -> None:
    async def wait_for_itself() -> int:
        return run_sync(double, 21)

    with pytest.raises(RuntimeError, match="ainvoke"):
        run_sync(wait_for_itself)


@pytest.mark.parametrize("error", [KeyError("x"), SystemExit(3), KeyboardInterrupt()])
def test_an_error_ends_its_call_and_not_the_loop(error: BaseException) -> None:
    async def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        run_sync(fail)
    assert run_sync(double, 21) == 42


def test_an_iterator_yields_items_in_order_and_then_the_error() -> None:
    async def broken() -> AsyncIterator[int]:
        async with asyncio.timeout(60):
            yield 1
            await asyncio.sleep(0)
            yield 2
            raise ValueError("broken")

    items = iterate_sync(broken)
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(ValueError, match="broken"):
        next(items)


def test_closing_an_iterator_cancels_the_async_one() -> None:
    started, closed = list[int](), threading.Event()

    async def endless() -> AsyncIterator[int]:
        started.append(1)
        try:
            while True:
                yield 1
                await asyncio.sleep(0)
        finally:
            closed.set()

    iterate_sync(endless).close()  # type: ignore[attr-defined]
    assert run_sync(double, 1) == 2
    assert not started
    items = iterate_sync(endless)
    next(items)
    items.close()  # type: ignore[attr-defined]
    assert closed.wait(timeout=60)


SCRIPTS = {
    "ends while a call ignores its cancellation": """
async def ignore():
    started.set()
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            print("done")
threading.Thread(target=run_sync, args=(ignore,), daemon=True).start()
started.wait()
""",
    "ends while calls block, and cancels the one that can stop": """
async def wait():
    started.set()
    try:
        await asyncio.gather(asyncio.to_thread(time.sleep, 600), asyncio.sleep(600))
    finally:
        print("done")
threading.Thread(target=run_sync, args=(wait,), daemon=True).start()
started.wait()
""",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_process(name: str) -> None:
    script = f"""
import asyncio, os, threading, time
from jarvis_agent.core import concurrency
from jarvis_agent.core.sync import run_sync
concurrency.cancellation.GRACE_S = 0.1
started = threading.Event()
{SCRIPTS[name]}"""
    assert "done" in run_python(script, timeout=60)
