"""Closing a pool of local models, and calls that do not end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from test_pool import Model, call_of, model_threads, reached

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.pool import ModelPool, is_cancelled
from jarvis_agent.core.errors import ExpertError


async def test_close_rejects_queued_calls_cancels_running_ones_and_ends_the_threads() -> None:
    pool = ModelPool(limit_bytes=100)
    others = model_threads()
    entered = threading.Event()

    def work(call: Call) -> str:
        entered.set()
        until = time.monotonic() + 10
        while not is_cancelled():
            assert time.monotonic() < until
            time.sleep(0.005)
        return "a part"

    model = Model(work=work)
    running = asyncio.ensure_future(pool.run(("a",), model.load, call_of()))
    waiting = asyncio.ensure_future(pool.run(("a",), model.load, call_of()))
    await reached(entered)
    closing = asyncio.ensure_future(pool.close())
    for call, what in ((waiting, "not run"), (running, "stopped")):
        with pytest.raises(ExpertError, match=f"{what}: the pool was closed"):
            await call
    await closing
    assert pool.keys == []
    assert model_threads() <= others
    quick = Model()
    assert await pool.run(("b",), quick.load, call_of()) == "a"  # the pool can be used again
    await pool.close()
    assert model_threads() <= others


async def test_close_abandons_a_call_that_does_not_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("jarvis_agent.backends.pool.CLOSE_GRACE_S", 0.05)
    pool = ModelPool(limit_bytes=100)
    entered, let_go = threading.Event(), threading.Event()

    def work(call: Call) -> None:
        entered.set()
        let_go.wait(20)

    stuck, quick = Model(work=work), Model()
    running = asyncio.ensure_future(pool.run(("stuck",), stuck.load, call_of("stuck")))
    await reached(entered)
    async with asyncio.timeout(10):
        await pool.close()
        assert await pool.run(("quick",), quick.load, call_of("quick")) == "quick"
    assert "do not end" in caplog.text
    assert not running.done()
    let_go.set()
    with pytest.raises(ExpertError, match="the pool was closed"):
        await running
    await pool.close()


async def test_a_call_that_was_cancelled_while_its_model_was_loaded_is_not_run(pool: ModelPool) -> None:
    entered, go_on = threading.Event(), threading.Event()
    calls: list[Call] = []
    model = Model(work=calls.append)

    def load() -> Model:
        entered.set()
        go_on.wait(10)
        return model

    first = asyncio.ensure_future(pool.run(("a",), load, call_of()))
    await reached(entered)
    first.cancel()
    await asyncio.wait([first])
    go_on.set()
    await pool.run(("a",), load, call_of(n=2))
    assert [call.inputs for call in calls] == [{"n": 2}]


def test_the_process_ends_though_a_call_does_not() -> None:
    script = """
import asyncio, threading, time
from test_pool import Model, call_of
from jarvis_agent.backends import pool
pool.CLOSE_GRACE_S = 0.1

def work(call):
    entered.set()
    time.sleep(600)

async def main():
    running = asyncio.ensure_future(pool.ModelPool(100).run(("a",), Model(work=work).load, call_of()))
    await asyncio.to_thread(entered.wait)
    running.cancel()

entered = threading.Event()
asyncio.run(main())
"""
    ended = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parent,
        timeout=60,
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
