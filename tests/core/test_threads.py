"""Threads for code that blocks: what they do, what they tell, and how they end."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar

import pytest

from jarvis_agent.core.threads import Crew, in_daemon, in_thread, run_cpu_bound

asked_by: ContextVar[str] = ContextVar("asked_by", default="nobody")


@pytest.fixture
def crew() -> Iterator[Crew]:
    crew = Crew(3, "crew")
    yield crew
    crew.stop(10)


def test_a_crew_works_side_by_side_in_no_more_threads_than_it_has(crew: Crew) -> None:
    together = threading.Barrier(3, timeout=10)
    done = [crew.start(together.wait) for _ in range(9)]
    assert sorted(one.result(20) for one in done) == sorted([0, 1, 2] * 3)


def test_a_crew_stays_for_the_next_work(crew: Crew) -> None:
    assert len({crew.start(threading.get_ident).result(10) for _ in range(20)}) <= 3


def test_a_crew_does_not_keep_work_waiting_while_it_may_grow(crew: Crew) -> None:
    """However busy it was before."""
    for _ in range(3):
        done = [crew.start(int) for _ in range(7)]
        assert [one.result(10) for one in done] == [0] * 7
    together = threading.Barrier(3, timeout=10)
    for one in [crew.start(together.wait) for _ in range(3)]:
        one.result(10)


def test_a_crew_that_is_stopped_does_its_work_first() -> None:
    crew = Crew(2, "crew")
    done = [crew.start(int) for _ in range(5)]
    crew.stop(10)
    assert [one.result(0) for one in done] == [0] * 5


def test_a_crew_that_hangs_is_not_waited_for() -> None:
    crew, let_go = Crew(1, "crew"), threading.Event()
    done = crew.start(let_go.wait, 20)
    crew.stop(0.01)
    assert not done.done()
    let_go.set()
    assert done.result(10)


async def test_work_for_the_processor_takes_turns() -> None:
    """Asyncio's own threads stay free, however much of it there is."""
    lock, now, most = threading.Lock(), 0, 0

    def work() -> str:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.01)
        with lock:
            now -= 1
        return threading.current_thread().name

    names = await asyncio.gather(*(run_cpu_bound(work) for _ in range(12)))
    assert most == len(set(names)) == 2


async def test_work_for_the_processor_sees_the_variables_of_its_caller() -> None:
    asked_by.set("me")
    assert await run_cpu_bound(asked_by.get) == "me"


async def test_work_whose_turn_has_not_come_is_not_done_once_it_is_cancelled() -> None:
    let_go, done = threading.Event(), list[str]()
    busy = [asyncio.create_task(run_cpu_bound(let_go.wait, 10)) for _ in range(2)]
    waiting = asyncio.create_task(run_cpu_bound(done.append, "late"))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    let_go.set()
    await asyncio.gather(*busy)
    await run_cpu_bound(done.append, "next")
    assert done == ["next"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="it forks")
def test_a_forked_child_has_turns_of_its_own() -> None:
    code = (
        "import asyncio, os\n"
        "from jarvis_agent.core.threads import in_turn\n"
        "async def work():\n"
        "    await asyncio.gather(*(asyncio.wait_for(in_turn(os.getpid), 10) for _ in range(3)))\n"
        "asyncio.run(work())\n"
        "if child := os.fork():\n"
        "    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "asyncio.run(work())"
    )
    # A process of its own forks: this one has other threads.
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), StopIteration(1)])
async def test_what_would_end_those_who_wait_is_a_runtime_error(crew: Crew, error: BaseException) -> None:
    def end() -> None:
        raise error

    with pytest.raises(RuntimeError, match=type(error).__name__):
        crew.start(end).result(10)
    with pytest.raises(RuntimeError, match=type(error).__name__):
        in_daemon(end).result(10)
    with pytest.raises(RuntimeError, match=type(error).__name__):
        await in_thread(end)
