"""One piece of work for all who want its result at the same time."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from threading import Barrier

import pytest

from jarvis_agent.core.single_flight import SingleFlight

who: ContextVar[str] = ContextVar("who", default="nobody")


class Work:
    """Work that ends when it is let go; says how often it was begun, and whether it was stopped."""

    def __init__(self, error: Exception | None = None) -> None:
        self.begun = 0
        self.stopped = False
        self.let_go = asyncio.Event()
        self.error = error

    async def __call__(self) -> str:
        self.begun += 1
        try:
            await self.let_go.wait()
        except asyncio.CancelledError:
            self.stopped = True
            raise
        if self.error:
            raise self.error
        return f"done for {who.get()}"


async def started(
    flight: SingleFlight[str], work: Work, count: int, what: str = ""
) -> list[asyncio.Task[str]]:
    tasks = [asyncio.create_task(flight.join(what, work)) for _ in range(count)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


async def test_all_who_ask_at_the_same_time_get_the_result_of_one() -> None:
    flight, work = SingleFlight[str](), Work()
    who.set("the first")
    tasks = await started(flight, work, 5)
    work.let_go.set()
    assert await asyncio.gather(*tasks) == ["done for nobody"] * 5
    assert work.begun == 1


async def test_nothing_is_kept_once_it_has_ended() -> None:
    flight, work = SingleFlight[str](), Work()
    work.let_go.set()
    for _ in range(2):
        await flight.join("", work)
    assert work.begun == 2


async def test_other_work_is_done_apart() -> None:
    flight, work, other = SingleFlight[str](), Work(), Work()
    tasks = [*await started(flight, work, 2, "one"), *await started(flight, other, 2, "another")]
    tasks += await started(flight, work, 1, "one")
    assert (work.begun, other.begun) == (1, 1)
    work.let_go.set()
    other.let_go.set()
    assert len(await asyncio.gather(*tasks)) == 5


async def test_it_goes_on_for_the_others_where_one_is_cancelled() -> None:
    flight, work = SingleFlight[str](), Work()
    first, second = await started(flight, work, 2)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    work.let_go.set()
    assert await second == "done for nobody"


async def test_it_is_stopped_when_nobody_waits_for_it_any_more() -> None:
    flight, work = SingleFlight[str](), Work()
    tasks = await started(flight, work, 2)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert work.stopped
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_failure_is_told_to_all_who_wait_and_is_not_kept() -> None:
    flight, work = SingleFlight[str](), Work(ValueError("no"))
    tasks = await started(flight, work, 3)
    work.let_go.set()
    assert [type(each) for each in await asyncio.gather(*tasks, return_exceptions=True)] == [ValueError] * 3
    work.error = None
    assert await flight.join("", work) == "done for nobody"


def test_each_event_loop_has_work_of_its_own() -> None:
    flight, both_run = SingleFlight[str](), Barrier(2, timeout=10)

    async def once() -> str:
        work = Work()
        [task] = await started(flight, work, 1)
        both_run.wait()
        work.let_go.set()
        return await task

    with ThreadPoolExecutor(2) as threads:
        runs = [threads.submit(asyncio.run, once()) for _ in range(2)]
        assert [run.result(10) for run in runs] == ["done for nobody"] * 2
