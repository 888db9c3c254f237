"""Deadlines hold whatever the code does that has them; a wait for somebody else is not counted."""

from __future__ import annotations

import asyncio

import pytest

from jarvis_agent.core.concurrency import (
    StageTimeoutError,
    gather_limited,
    run_with_timeout,
)
from jarvis_agent.core.errors import ExpertError


async def never() -> None:
    await asyncio.Event().wait()


async def nothing() -> None:
    return


async def deaf(let_go: asyncio.Event) -> None:
    """Goes on whoever cancels it."""
    while not let_go.is_set():
        try:
            await let_go.wait()
        except asyncio.CancelledError:
            continue


class TestRunWithTimeout:
    async def test_what_comes_in_time_is_given_and_raised(self) -> None:
        async def seven() -> int:
            return 7

        async def wrong() -> None:
            raise TimeoutError("of its own")

        assert await run_with_timeout(20, seven(), "seven") == 7
        with pytest.raises(TimeoutError, match="of its own") as caught:
            await run_with_timeout(20, wrong(), "wrong")
        assert not isinstance(caught.value, StageTimeoutError)

    async def test_what_is_late_is_cancelled(self) -> None:
        before = asyncio.all_tasks()
        with pytest.raises(StageTimeoutError):
            await run_with_timeout(0.01, never(), "late")
        assert asyncio.all_tasks() == before

    async def test_without_time_nothing_is_begun(self) -> None:
        begun = []

        async def begin() -> None:
            begun.append(1)

        with pytest.raises(StageTimeoutError):
            await run_with_timeout(0, begin(), "late")
        await asyncio.sleep(0)
        assert not begun

    async def test_a_cancelled_caller_cancels_the_work(self) -> None:
        before = asyncio.all_tasks()
        calling = asyncio.create_task(run_with_timeout(60, never(), "work"))
        await asyncio.sleep(0)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert asyncio.all_tasks() == before

    @pytest.mark.parametrize("way", ["late", "cancel"])
    async def test_deaf_work_is_left_alone(
        self, way: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr("jarvis_agent.core.concurrency.limits.CANCEL_GRACE_S", 0.01)
        let_go = asyncio.Event()
        calling = asyncio.create_task(
            run_with_timeout(0.01 if way == "late" else 60, deaf(let_go), "the deaf one")
        )
        await asyncio.sleep(0)
        if way == "cancel":
            calling.cancel()
        async with asyncio.timeout(20):
            with pytest.raises(StageTimeoutError if way == "late" else asyncio.CancelledError):
                await calling
        assert "the deaf one does not stop" in caplog.text
        let_go.set()

    @pytest.mark.parametrize(
        ("error", "told"),
        [
            (asyncio.CancelledError(), "the code was cancelled from within"),
            (SystemExit(3), "the code ended with SystemExit: 3"),
            (GeneratorExit(), "the code ended with GeneratorExit"),
            (
                BaseExceptionGroup("two", [SystemExit(3), ValueError()]),
                "the code ended with BaseExceptionGroup",
            ),
        ],
        ids=lambda value: type(value).__name__,
    )
    async def test_what_would_end_those_who_wait_is_a_failure_of_the_work(
        self, error: BaseException, told: str
    ) -> None:
        async def end() -> None:
            raise error

        with pytest.raises(ExpertError, match=told):
            await run_with_timeout(20, end(), "the code")


class TestGatherLimited:
    async def test_results_are_in_order_and_only_so_many_run_at_once(self) -> None:
        running, most = 0, 0

        async def work(number: int) -> int:
            nonlocal running, most
            running, most = running + 1, max(most, running + 1)
            for _ in range(10 - number):
                await asyncio.sleep(0)
            running -= 1
            return number * number

        assert await gather_limited(work, range(10), limit=3) == [n * n for n in range(10)]
        assert most == 3

    async def test_one_that_fails_ends_the_others(self) -> None:
        before = asyncio.all_tasks()

        async def work(number: int) -> None:
            if number == 1:
                raise ValueError("one")
            await never()

        async with asyncio.timeout(20):
            with pytest.raises(ValueError, match="one"):
                await gather_limited(work, range(3), limit=3)
        assert asyncio.all_tasks() == before
