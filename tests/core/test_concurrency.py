"""Timeouts for coroutines, and threads for blocking calls."""

import asyncio
import gc
import threading
import time
from contextvars import ContextVar

import pytest

from jarvis_agent.core.concurrency import (
    cancellation,
    check_cancelled,
    gather_limited,
    repeating,
    run_cpu_bound,
    run_in_daemon_thread,
    run_with_timeout,
)
from jarvis_agent.core.errors import DeadlineError, ExpertError

caller: ContextVar[str] = ContextVar("caller", default="none")


async def never() -> None:
    await asyncio.Event().wait()


async def ignore_cancellation(until: asyncio.Event) -> None:
    while not until.is_set():
        try:
            await until.wait()
        except asyncio.CancelledError:
            continue
    raise ValueError("too late")


async def test_results_and_errors_are_passed_on() -> None:
    async def seven() -> int:
        return 7

    async def fail() -> None:
        raise TimeoutError("its own")

    assert await run_with_timeout(20, seven(), "seven") == 7
    with pytest.raises(TimeoutError, match="its own") as caught:
        await run_with_timeout(20, fail(), "fail")
    assert not isinstance(caught.value, DeadlineError)


@pytest.mark.usefixtures("loop_time")
async def test_work_is_cancelled_on_timeout_and_with_its_caller() -> None:
    before, started = asyncio.all_tasks(), list[float]()

    async def start(seconds: float) -> None:
        started.append(seconds)
        await never()

    for seconds in (0, 124.9):
        with pytest.raises(DeadlineError, match=r"no time left for late|late did not finish within 125 s"):
            await run_with_timeout(seconds, start(seconds), "late")
    assert started == [124.9]
    assert asyncio.all_tasks() == before
    calling = asyncio.create_task(run_with_timeout(60, never(), "work"))
    await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert asyncio.all_tasks() == before


async def test_work_that_ignores_cancellation_is_abandoned_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cancellation, "GRACE_S", 0.01)
    end = asyncio.Event()
    for seconds, error in ((0.01, DeadlineError), (60, asyncio.CancelledError)):
        caplog.clear()
        calling = asyncio.create_task(run_with_timeout(seconds, ignore_cancellation(end), "work"))
        await asyncio.sleep(0)
        if error is asyncio.CancelledError:
            calling.cancel()
        with pytest.raises(error):
            await calling
        assert "work does not stop" in caplog.text
    end.set()
    await asyncio.sleep(0.01)
    gc.collect()
    assert "never retrieved" not in caplog.text, "its error may have secrets"


async def test_errors_that_are_no_exceptions_become_expert_errors() -> None:
    async def end(error: BaseException) -> None:
        raise error

    group = BaseExceptionGroup("two", [SystemExit(3), ValueError()])
    for error, message in (
        (asyncio.CancelledError(), "the code was cancelled from within"),
        (GeneratorExit(), "the code ended with GeneratorExit"),
        (group, "the code ended with BaseExceptionGroup"),
    ):
        with pytest.raises(ExpertError, match=message):
            await run_with_timeout(20, end(error), "the code")


async def test_gather_limited_keeps_order_and_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jarvis_agent.core.concurrency.MAX_PARALLEL", 3)
    running, most = 0, 0

    async def work(number: int) -> int:
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        for _ in range(10 - number):
            await asyncio.sleep(0)
        running -= 1
        return number * number

    assert await gather_limited(work, range(10)) == [n * n for n in range(10)]
    assert most == 3


async def test_an_error_in_gather_limited_cancels_the_other_calls() -> None:
    before = asyncio.all_tasks()

    async def work(number: int) -> None:
        if number == 1:
            raise ValueError("one")
        await never()

    with pytest.raises(ValueError, match="one"):
        await gather_limited(work, range(3))
    assert asyncio.all_tasks() == before


async def test_cpu_bound_calls_run_two_at_a_time_with_the_callers_context() -> None:
    lock, now, most = threading.Lock(), 0, 0

    def work() -> str:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.01)
        with lock:
            now -= 1
        return caller.get()

    caller.set("me")
    assert await asyncio.gather(*(run_cpu_bound(work) for _ in range(6))) == ["me"] * 6
    assert most == 2


async def test_a_cancelled_cpu_bound_call_stops_or_never_starts() -> None:
    started, end, stopped, done = threading.Event(), threading.Event(), threading.Event(), list[str]()

    def work() -> None:
        started.set()
        end.wait(60)
        try:
            check_cancelled()
        except BaseException:
            stopped.set()
            raise

    running = asyncio.create_task(run_cpu_bound(work))
    other = asyncio.create_task(run_cpu_bound(end.wait, 60))
    waiting = asyncio.create_task(run_cpu_bound(done.append, "late"))
    assert await asyncio.to_thread(started.wait, 60)
    for task in (running, waiting):
        task.cancel()
    await asyncio.wait([running, waiting])
    end.set()
    await other
    assert await asyncio.to_thread(stopped.wait, 60)
    await run_cpu_bound(done.append, "next")
    assert done == ["next"]


async def test_errors_of_a_thread_that_would_end_the_event_loop_become_runtime_errors() -> None:
    def end(error: BaseException) -> None:
        raise error

    for error in (SystemExit(3), KeyboardInterrupt(), StopIteration(1)):
        with pytest.raises(RuntimeError, match=type(error).__name__):
            await run_in_daemon_thread(end, error)


async def test_repeated_work_goes_on_after_an_error(caplog: pytest.LogCaptureFixture) -> None:
    outcomes = iter([PermissionError("denied"), KeyError("gone"), None])
    done = asyncio.Event()

    async def work() -> None:
        if error := next(outcomes, None):
            raise error
        done.set()

    async with repeating(work, 0, "the work"), asyncio.timeout(30):
        await done.wait()
    assert next(outcomes, "used up") == "used up"
    assert "the work failed, and will be tried again: KeyError: 'gone'" in caplog.text
