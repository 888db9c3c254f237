"""Threads for code that blocks: what they do, what they tell, and how they end."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from contextvars import ContextVar

import pytest

from jarvis_agent.core.concurrency import run_cpu_bound, run_in_daemon_thread, start_daemon_thread

asked_by: ContextVar[str] = ContextVar("asked_by", default="nobody")


async def test_work_for_the_processor_takes_turns() -> None:
    """Asyncio's own threads stay free, however much of it there is."""
    lock, now, most = threading.Lock(), 0, 0

    def work() -> int:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.01)
        with lock:
            now -= 1
        return threading.get_ident()

    await asyncio.gather(*(run_cpu_bound(work) for _ in range(12)))
    assert most == 2


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
        "from jarvis_agent.core.concurrency import run_cpu_bound\n"
        "async def work():\n"
        "    await asyncio.gather(*(asyncio.wait_for(run_cpu_bound(os.getpid), 10) for _ in range(3)))\n"
        "asyncio.run(work())\n"
        "if child := os.fork():\n"
        "    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "asyncio.run(work())"
    )
    # A process of its own forks: this one has other threads.
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), StopIteration(1)])
async def test_what_would_end_those_who_wait_is_a_runtime_error(error: BaseException) -> None:
    def end() -> None:
        raise error

    with pytest.raises(RuntimeError, match=type(error).__name__):
        start_daemon_thread(end).result(10)
    with pytest.raises(RuntimeError, match=type(error).__name__):
        await run_in_daemon_thread(end)
