"""The pool of local models: loading, eviction, batches, cancellation and close."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from local_models import ScriptedLocal
from processes import run_python

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.jobs import MAX_BATCH_FILE, fits_in_batch, is_cancelled, until_cancelled
from jarvis_agent.backends.pool import MAX_BATCH, ModelPool
from jarvis_agent.core.errors import BadInputError, ExpertError, OutOfMemoryError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Resource
from jarvis_agent.media.limits import TASK_LIMITS


def call_of(model: str = "a", size: int | None = None, **inputs: Any) -> Call:
    candidate = Candidate(id=model, task="text-generation", size=size)
    return Call(TASKS["text-generation"], candidate, inputs, Path, Settings())


class Model:
    """A model that counts its loads, and the calls that are in it at once."""

    def __init__(self, nbytes: int = 1, work: Callable[[Call], Any] = lambda call: call.candidate.id) -> None:
        self.nbytes, self.work = nbytes, work
        self.loads = self.inside = self.most_inside = 0

    def load(self) -> Model:
        self.loads += 1
        return self

    def __call__(self, call: Call) -> Any:
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        try:
            return self.work(call)
        finally:
            self.inside -= 1


class Gate:
    """A model whose calls wait until it is opened; it doubles numbers, and computes batches of them."""

    nbytes = 1

    def __init__(self, batch: Callable[[Sequence[Call]], list[Any]] | None = None) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()
        self.together: list[list[Any]] = []
        self.batch: Any = batch or self.double

    def load(self) -> Gate:
        return self

    def __call__(self, call: Call) -> Any:
        self.entered.set()
        assert self.opened.wait(60)
        number = call.inputs.get("n", 1)
        self.together.append([number])
        if number == "bad":
            raise BadInputError("this one is bad")
        return number * 2

    def double(self, calls: Sequence[Call]) -> list[Any]:
        numbers = [call.inputs["n"] for call in calls]
        if "bad" in numbers:
            raise ValueError("one of them is bad")
        self.together.append(numbers)
        return [number * 2 for number in numbers]


@pytest.fixture
async def pool() -> AsyncIterator[ModelPool]:
    pool = ModelPool(limit_bytes=100)
    yield pool
    await pool.close()


def start(pool: ModelPool, load: Callable[[], Any], model: str = "a", **given: Any) -> asyncio.Future[Any]:
    return asyncio.ensure_future(pool.run((model,), load, call_of(model, **given)))


async def reached(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 60)


async def queued(
    pool: ModelPool, model: Gate, inputs: Sequence[Any], name: str = "a"
) -> list[asyncio.Future[Any]]:
    """Calls of which the first is running and the others wait in the queue."""
    first = start(pool, model.load, name, n=inputs[0])
    await reached(model.entered)
    calls = [first, *(start(pool, model.load, name, n=n) for n in inputs[1:])]
    await asyncio.sleep(0)
    return calls


def loaded_bytes(pool: ModelPool) -> int:
    return sum(pool.used.values())


# Loading and concurrency


async def test_a_model_is_loaded_once_and_runs_one_call_at_a_time(pool: ModelPool) -> None:
    model = Model(work=lambda call: call.inputs["n"])
    calls = (pool.run(("a",), model.load, call_of(n=n)) for n in range(16))
    assert await asyncio.gather(*calls) == list(range(16))
    assert (model.loads, model.most_inside) == (1, 1)


async def test_different_models_are_loaded_and_run_at_the_same_time(pool: ModelPool) -> None:
    """Loads are concurrent if the sizes are known and fit."""
    loading, running = threading.Barrier(3, timeout=60), threading.Barrier(3, timeout=60)

    def load() -> Model:
        loading.wait()
        return Model(nbytes=30, work=lambda call: running.wait())

    assert sorted(await asyncio.gather(*(start(pool, load, name, size=30) for name in "abc"))) == [0, 1, 2]
    assert loaded_bytes(pool) == 90


async def test_a_queue_behind_one_model_does_not_delay_another() -> None:
    pool, slow = ModelPool(limit_bytes=100, workers=2), Gate()
    queue = [start(pool, slow.load, "slow", n=n) for n in range(8)]
    await asyncio.sleep(0)
    assert await start(pool, Model().load, "quick") == "quick"
    slow.opened.set()
    await asyncio.gather(*queue)
    await pool.close()


async def test_a_failed_load_reaches_every_waiter_and_is_not_kept(pool: ModelPool) -> None:
    all_wait, loads = threading.Event(), []

    def load() -> Model:
        loads.append(1)
        if len(loads) == 1:
            all_wait.wait(60)
            raise UnsupportedError("no weights")
        return Model()

    calls = [start(pool, load) for _ in range(4)]
    await asyncio.sleep(0)
    all_wait.set()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [str(result) for result in results] == ["no weights"] * 4
    assert await start(pool, load) == "a"
    assert len(loads) == 2


def test_one_pool_serves_several_event_loops_and_outlives_each() -> None:
    pool, model, gate = ModelPool(limit_bytes=100), Model(work=lambda call: call.inputs["n"]), Gate()

    async def use(n: int) -> list[int]:
        return await asyncio.gather(*(start(pool, model.load, n=n) for _ in range(10)))

    async def leave() -> None:
        start(pool, gate.load, "gate")
        await reached(gate.entered)

    with ThreadPoolExecutor(4) as loops:
        assert [*loops.map(lambda n: asyncio.run(use(n)), range(4))] == [[n] * 10 for n in range(4)]
    assert model.loads == 1
    asyncio.run(leave())  # its call is cancelled with the loop
    gate.opened.set()
    assert asyncio.run(use(5)) == [5] * 10
    asyncio.run(pool.close())


# Memory


async def test_the_least_recently_used_model_is_evicted(pool: ModelPool) -> None:
    models = {name: Model(nbytes=40) for name in "abc"}
    for name in ("a", "b", "a", "c"):
        await start(pool, models[name].load, name, size=40)
    assert list(pool.loaded) == [("a",), ("c",)]
    await start(pool, models["b"].load, "b", size=40)
    assert models["b"].loads == 2
    assert loaded_bytes(pool) == 80


async def test_a_language_model_beside_the_pool_takes_its_room(pool: ModelPool) -> None:
    models = {name: Model(nbytes=40) for name in "ab"}

    async def kept() -> list[tuple[str, ...]]:
        for name in "ab":
            await start(pool, models[name].load, name, size=40)
        return list(pool.loaded)

    assert len(await kept()) == 2
    language_model = Model(nbytes=50)
    pool.leave_room(language_model)
    assert len(await kept()) == 1
    language_model.nbytes = 1000
    assert len(await kept()) == 1
    del language_model
    assert len(await kept()) == 2


async def test_a_model_larger_than_the_limit_stays_until_another_is_wanted(pool: ModelPool) -> None:
    huge = Model(nbytes=500)
    for _ in range(2):
        await start(pool, huge.load, "huge")
    assert huge.loads == 1
    await start(pool, Model().load, "small")
    assert list(pool.loaded) == [("small",)]


async def test_a_model_in_use_is_never_evicted(pool: ModelPool) -> None:
    busy = Gate()
    busy.nbytes = 90
    running = start(pool, busy.load, "busy")
    await reached(busy.entered)
    await start(pool, Model(nbytes=90).load, "other")
    assert ("busy",) in list(pool.loaded)
    busy.opened.set()
    await running
    assert loaded_bytes(pool) == 90


@pytest.mark.parametrize(("first", "second"), [(None, 10), (10, None), (60, 60)])
async def test_a_model_that_may_not_fit_waits_until_another_is_loaded(
    pool: ModelPool, first: int | None, second: int | None
) -> None:
    begun, go, other = threading.Event(), threading.Event(), threading.Event()

    def load() -> Model:
        begun.set()
        assert go.wait(60)
        return Model()

    loading = start(pool, load, size=first)
    await reached(begun)
    waiting = start(pool, lambda: (other.set(), Model())[1], "b", size=second)
    assert not await asyncio.to_thread(other.wait, 0.2)
    go.set()
    assert [await loading, await waiting] == ["a", "b"]


async def test_no_model_is_loaded_beside_one_that_exceeds_the_limit(pool: ModelPool) -> None:
    huge, other = Gate(), threading.Event()
    huge.nbytes = 190
    running = start(pool, huge.load, "huge")
    await reached(huge.entered)
    waiting = start(pool, lambda: (other.set(), Model())[1], "b", size=1)
    assert not await asyncio.to_thread(other.wait, 0.2)
    huge.opened.set()
    assert [await running, await waiting] == [2, "b"]


async def test_out_of_memory_evicts_idle_models_and_retries_once(pool: ModelPool) -> None:
    await start(pool, Model().load, "idle")
    tries: list[Any] = []

    def load() -> Model:
        tries.append(list(pool.loaded))
        if len(tries) == 1:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return Model()

    assert await start(pool, load, "new") == "new"
    assert tries == [[("idle",)], []]
    calls: list[Call] = []

    def work(call: Call) -> Any:
        calls.append(call)
        raise MemoryError

    with pytest.raises(OutOfMemoryError, match="org/big does not fit into memory"):
        await start(pool, Model(work=work).load, "org/big")
    assert len(calls) == 2


# Batches


LONG = "c" * 5_000
BATCHES: dict[str, tuple[Sequence[Any], list[Any], list[list[Any]]]] = {
    "at most eight": (range(10), [2 * n for n in range(10)], [[0], [1, 2, 3, 4, 5, 6, 7, 8], [9]]),
    "one bad input": ([0, 1, "bad", 3], [0, 2, BadInputError, 6], [[0], [1], ["bad"], [3]]),
    "a long input": (["a", "b", LONG, "d"], ["aa", "bb", 2 * LONG, "dd"], [["a"], ["b", "d"], [LONG]]),
}
"""Inputs of waiting calls, their results, and the inputs that are computed together."""


async def test_waiting_calls_are_computed_together(pool: ModelPool, subtests: pytest.Subtests) -> None:
    assert MAX_BATCH == 8
    for case, (inputs, expected, together) in BATCHES.items():
        with subtests.test(case):
            model = Gate()
            calls = await queued(pool, model, inputs, case)
            model.opened.set()
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(made) if isinstance(made, Exception) else made for made in results] == expected
            assert model.together == together


async def test_a_failed_batch_runs_one_by_one(pool: ModelPool, caplog: pytest.LogCaptureFixture) -> None:
    model = Gate(lambda calls: ["one result"])
    calls = await queued(pool, model, [0, 1, 2])
    model.opened.set()
    assert await asyncio.gather(*calls) == [0, 2, 4]
    assert "a batch of 2 calls of a is run one by one: ValueError" in caplog.text
    caplog.clear()
    alone = Gate()
    alone.batch = None
    calls = await queued(pool, alone, [0, 1, 2], "b")
    alone.opened.set()
    assert await asyncio.gather(*calls) == [0, 2, 4]
    assert caplog.text == ""


async def test_a_cancelled_call_is_not_in_the_batch_and_does_not_stop_it(pool: ModelPool) -> None:
    seen: list[tuple[list[int], bool]] = []
    inside, proceed = threading.Event(), threading.Event()

    def batch(calls: Sequence[Call]) -> list[Any]:
        inside.set()
        assert proceed.wait(60)
        numbers = [call.inputs["n"] for call in calls]
        seen.append((numbers, is_cancelled()))
        return numbers

    model = Gate(batch)
    calls = await queued(pool, model, range(4))
    calls[3].cancel()
    await asyncio.wait([calls[3]])
    model.opened.set()
    await reached(inside)
    calls[1].cancel()
    await asyncio.wait([calls[1]])
    proceed.set()
    assert await calls[2] == 2
    assert seen == [([1, 2], False)]


async def test_close_stops_a_running_batch(pool: ModelPool) -> None:
    inside, stopped, abandoned = threading.Event(), threading.Event(), threading.Event()

    def batch(calls: Sequence[Call]) -> list[Any]:
        inside.set()
        while not is_cancelled() and not abandoned.wait(0.01):
            pass
        if is_cancelled():
            stopped.set()
        return [0 for _ in calls]

    model = Gate(batch)
    calls = await queued(pool, model, range(3))
    model.opened.set()
    await reached(inside)
    await pool.close()
    abandoned.set()
    first, *others = await asyncio.gather(*calls, return_exceptions=True)
    assert first == 0
    assert stopped.is_set()
    assert all(isinstance(other, ExpertError) for other in others)


async def test_no_model_is_loaded_for_an_input_that_exceeds_a_limit(pool: ModelPool) -> None:
    model = Model()
    backend, limit = ScriptedLocal(lambda _: model.load(), pool), TASK_LIMITS["text-generation"]["characters"]
    with pytest.raises(UnsupportedError, match=f"at most {limit:,} characters"):
        await backend.run(call_of(text="a" * (limit + 1)))
    assert (model.loads, list(pool.loaded)) == (0, [])
    assert await backend.run(call_of(text="a" * limit)) == "a"


def test_small_inputs_fit_in_a_batch(tmp_path: Path) -> None:
    small, large = tmp_path / "a.png", tmp_path / "b.png"
    small.write_bytes(b"1")
    large.write_bytes(b"1" * (MAX_BATCH_FILE + 1))
    assert fits_in_batch(call_of(text="a text", top=3, image=Resource(kind="image", path=small)))
    assert not fits_in_batch(call_of(image=Resource(kind="image", path=large)))
    assert not fits_in_batch(call_of(audio=Resource(kind="audio", path=small)))
    assert not fits_in_batch(call_of(image=Resource(kind="image", path=tmp_path / "gone.png")))


# Errors and cancellation


async def test_an_error_of_the_model_is_an_expert_error_in_words(pool: ModelPool) -> None:
    def work(call: Call) -> Any:
        raise StopIteration("the shape is wrong")

    with pytest.raises(ExpertError, match=r"^StopIteration: the shape is wrong$") as caught:
        await start(pool, Model(work=work).load)
    assert isinstance(caught.value.__cause__, StopIteration)
    assert list(pool.loaded) == [("a",)]


async def test_a_cancelled_load_is_kept_and_its_call_not_run(pool: ModelPool) -> None:
    entered, opened = threading.Event(), threading.Event()
    calls: list[Call] = []
    model = Model(work=calls.append)

    def load() -> Model:
        entered.set()
        assert opened.wait(60)
        return model.load()

    first = start(pool, load)
    await reached(entered)
    first.cancel()
    await asyncio.wait([first])
    opened.set()
    await start(pool, load, n=2)
    assert [call.inputs for call in calls] == [{"n": 2}]
    assert model.loads == 1


async def test_a_load_that_stops_with_its_caller_is_begun_again_for_the_others(pool: ModelPool) -> None:
    entered, model = threading.Event(), Model()

    def load() -> Model:
        if not entered.is_set():
            entered.set()
            list(until_cancelled(itertools.repeat(None)))
        return model.load()

    calls = [start(pool, load) for _ in range(3)]
    await reached(entered)
    calls[0].cancel()
    assert await asyncio.gather(*calls[1:]) == ["a", "a"]
    assert model.loads == 1


class Endless(Model):
    """A model whose calls end only when they are cancelled."""

    def __init__(self) -> None:
        super().__init__(work=self.wait)
        self.entered, self.ended = threading.Event(), threading.Event()

    def wait(self, call: Call) -> None:
        assert not is_cancelled()
        self.entered.set()
        while not is_cancelled():
            pass
        self.ended.set()


async def test_a_running_call_learns_that_it_was_cancelled(pool: ModelPool) -> None:
    model = Endless()
    running = start(pool, model.load)
    await reached(model.entered)
    running.cancel()
    await reached(model.ended)


# Close


def model_threads() -> set[threading.Thread]:
    """The worker threads of all pools in this process."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("jarvis-model")}


async def test_close_rejects_queued_calls_cancels_running_ones_and_ends_the_threads() -> None:
    pool, others, model = ModelPool(limit_bytes=100), model_threads(), Endless()
    running, waiting = start(pool, model.load), start(pool, model.load)
    await reached(model.entered)
    closing = asyncio.ensure_future(pool.close())
    for call, what in ((waiting, "not run"), (running, "stopped")):
        with pytest.raises(ExpertError, match=f"{what}: the pool was closed"):
            await call
    await closing
    assert list(pool.loaded) == []
    assert model_threads() <= others
    assert await start(pool, Model().load) == "a"  # the pool can be used again
    await pool.close()
    assert model_threads() <= others


async def test_an_idle_pool_starts_no_thread_to_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.12 and later start none when the interpreter exits."""
    pool, others = ModelPool(limit_bytes=100), model_threads()
    await start(pool, Model().load)
    monkeypatch.setattr("jarvis_agent.backends.pool.run_in_daemon_thread", None)
    await pool.close()
    assert model_threads() <= others


async def test_close_abandons_a_call_that_does_not_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("jarvis_agent.core.concurrency.cancellation.GRACE_S", 0.05)
    pool, stuck = ModelPool(limit_bytes=100), Gate()
    running = start(pool, stuck.load, "stuck")
    await reached(stuck.entered)
    await pool.close()
    assert await start(pool, Model().load, "quick") == "quick"
    assert "do not end" in caplog.text
    assert not running.done()
    stuck.opened.set()
    with pytest.raises(ExpertError, match="the pool was closed"):
        await running
    await pool.close()


def test_the_process_ends_though_a_call_does_not_and_torch_is_not_imported() -> None:
    script = """
import asyncio, sys, threading, time
sys.path.append("backends")
from test_pool import Model, call_of
from jarvis_agent.backends import pool
pool.cancellation.GRACE_S = 0.1
assert "torch" not in sys.modules

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
    run_python(script, cwd=Path(__file__).parents[1], timeout=60)
