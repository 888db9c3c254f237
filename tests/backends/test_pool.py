"""The pool of local models: what it promises to those who run models through it."""

from __future__ import annotations

import asyncio
import importlib.machinery
import subprocess
import sys
import threading
import time
import types
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.devices import free_caches, weight_bytes
from jarvis_agent.backends.pool import ModelPool, is_cancelled
from jarvis_agent.core.errors import ExpertError, OutOfMemoryError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate


def call_of(model: str = "a", size: int | None = None, **inputs: Any) -> Call:
    return Call(
        spec=TASKS["text-generation"],
        candidate=Candidate(id=model, task="text-generation", size=size),
        inputs=inputs,
        new_path=Path,
        settings=Settings(),
    )


class Model:
    """A model that counts its loads, and the calls that are in it at once."""

    def __init__(
        self,
        nbytes: int = 1,
        work: Callable[[Call], Any] = lambda call: call.candidate.id,
        thread_safe: bool = False,
    ) -> None:
        self.nbytes = nbytes
        self.work = work
        self.thread_safe = thread_safe
        self.loads = 0
        self.inside = 0
        self.most_inside = 0
        self._lock = threading.Lock()

    def load(self) -> Model:
        self.loads += 1
        return self

    def __call__(self, call: Call) -> Any:
        with self._lock:
            self.inside += 1
            self.most_inside = max(self.most_inside, self.inside)
        try:
            return self.work(call)
        finally:
            with self._lock:
                self.inside -= 1


@pytest.fixture
async def pool() -> AsyncIterator[ModelPool]:
    pool = ModelPool(limit_bytes=100)
    yield pool
    await pool.close()


def model_threads() -> set[threading.Thread]:
    """The worker threads of all pools in this process."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("jarvis-model")}


async def reached(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 10)


async def test_concurrent_first_calls_load_a_model_once(pool: ModelPool) -> None:
    model = Model(work=lambda call: call.inputs["n"])
    results = await asyncio.gather(*(pool.run(("a",), model.load, call_of(n=n)) for n in range(16)))
    assert results == list(range(16))
    assert model.loads == 1


async def test_calls_to_one_model_run_one_after_the_other(pool: ModelPool) -> None:
    model = Model(work=lambda call: time.sleep(0.005))
    await asyncio.gather(*(pool.run(("a",), model.load, call_of()) for _ in range(8)))
    assert model.most_inside == 1


async def test_a_thread_safe_model_takes_calls_at_the_same_time(pool: ModelPool) -> None:
    together = threading.Barrier(3, timeout=10)
    model = Model(work=lambda call: together.wait(), thread_safe=True)
    await asyncio.gather(*(pool.run(("a",), model.load, call_of()) for _ in range(3)))
    assert model.loads == 1


async def test_different_models_run_at_the_same_time(pool: ModelPool) -> None:
    together = threading.Barrier(3, timeout=10)
    models = {name: Model(work=lambda call: together.wait()) for name in "abc"}
    runs = (pool.run((name,), model.load, call_of(name)) for name, model in models.items())
    places = await asyncio.gather(*runs)  # the barrier gives each a number once all three have come
    assert sorted(places) == [0, 1, 2]


async def test_a_queue_behind_one_model_does_not_hold_up_another() -> None:
    pool = ModelPool(limit_bytes=100, workers=2)
    gate = threading.Event()
    slow = Model(work=lambda call: gate.wait(10))
    queue = [asyncio.ensure_future(pool.run(("slow",), slow.load, call_of("slow"))) for _ in range(8)]
    await asyncio.sleep(0)
    assert await pool.run(("quick",), Model().load, call_of("quick")) == "quick"
    gate.set()
    await asyncio.gather(*queue)
    await pool.close()


async def test_the_least_recently_used_model_is_evicted_when_the_limit_is_passed(pool: ModelPool) -> None:
    models = {name: Model(nbytes=40) for name in "abc"}
    for name in ("a", "b", "a", "c"):
        await pool.run((name,), models[name].load, call_of(name, size=40))
    assert pool.keys == [("a",), ("c",)]
    await pool.run(("b",), models["b"].load, call_of("b", size=40))
    assert models["b"].loads == 2
    assert pool.nbytes == 80


async def test_a_model_larger_than_the_limit_stays_until_another_is_wanted(pool: ModelPool) -> None:
    huge, small = Model(nbytes=500), Model(nbytes=1)
    for _ in range(2):
        await pool.run(("huge",), huge.load, call_of("huge"))
    assert huge.loads == 1
    await pool.run(("small",), small.load, call_of("small"))
    assert pool.keys == [("small",)]


async def test_a_model_in_use_is_never_evicted(pool: ModelPool) -> None:
    entered, gate = threading.Event(), threading.Event()
    busy = Model(nbytes=90, work=lambda call: (entered.set(), gate.wait(10)))
    running = asyncio.ensure_future(pool.run(("busy",), busy.load, call_of("busy")))
    await reached(entered)
    await pool.run(("other",), Model(nbytes=90).load, call_of("other"))
    assert ("busy",) in pool.keys
    gate.set()
    await running
    assert pool.nbytes == 90


@pytest.mark.parametrize("size", [None, 60])
async def test_the_limit_is_exceeded_by_at_most_one_model(pool: ModelPool, size: int | None) -> None:
    seen: list[int] = []

    def work(call: Call) -> None:
        seen.append(pool.nbytes)
        time.sleep(0.005)

    models = {str(n): Model(nbytes=60, work=work) for n in range(6)}
    calls = [pool.run((name,), model.load, call_of(name, size)) for name, model in models.items()]
    await asyncio.gather(*calls)
    assert len(seen) == 6
    assert max(seen) <= 160


async def test_models_that_are_known_to_fit_are_loaded_side_by_side(pool: ModelPool) -> None:
    together = threading.Barrier(2, timeout=10)

    def load() -> Model:
        together.wait()
        return Model(nbytes=50)

    await asyncio.gather(*(pool.run((name,), load, call_of(name, size=50)) for name in "ab"))
    assert pool.nbytes == 100


async def test_a_failed_load_reaches_every_waiter_and_is_not_kept(pool: ModelPool) -> None:
    all_wait = threading.Event()
    loads = []

    def load() -> Model:
        loads.append(1)
        if len(loads) == 1:
            all_wait.wait(10)
            raise UnsupportedError("no weights")
        return Model()

    calls = [asyncio.ensure_future(pool.run(("a",), load, call_of())) for _ in range(4)]
    await asyncio.sleep(0)
    all_wait.set()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [str(result) for result in results] == ["no weights"] * 4
    assert await pool.run(("a",), load, call_of()) == "a"
    assert len(loads) == 2


async def test_an_error_of_the_model_is_an_expert_error_in_words(pool: ModelPool) -> None:
    def work(call: Call) -> Any:
        raise StopIteration("the shape is wrong")

    with pytest.raises(ExpertError, match=r"^StopIteration: the shape is wrong$") as caught:
        await pool.run(("a",), Model(work=work).load, call_of("org/m"))
    assert isinstance(caught.value.__cause__, StopIteration)
    assert pool.keys == [("a",)]


async def test_out_of_memory_evicts_what_is_idle_and_tries_once_more(pool: ModelPool) -> None:
    await pool.run(("idle",), Model().load, call_of("idle"))
    tries = []

    def load() -> Model:
        tries.append(pool.keys)
        if len(tries) == 1:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return Model()

    assert await pool.run(("new",), load, call_of("new")) == "new"
    assert tries == [[("idle",)], []]


async def test_lasting_lack_of_memory_says_so(pool: ModelPool) -> None:
    tries = []

    def work(call: Call) -> Any:
        tries.append(call)
        raise MemoryError

    with pytest.raises(OutOfMemoryError, match="org/big does not fit into memory"):
        await pool.run(("a",), Model(work=work).load, call_of("org/big"))
    assert len(tries) == 2


async def test_a_call_that_is_cancelled_in_the_queue_never_runs(pool: ModelPool) -> None:
    entered, gate = threading.Event(), threading.Event()
    done = []

    def work(call: Call) -> None:
        entered.set()
        gate.wait(10)
        done.append(call.inputs["n"])

    model = Model(work=work)
    first, second, third = (
        asyncio.ensure_future(pool.run(("a",), model.load, call_of(n=n))) for n in range(3)
    )
    await reached(entered)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    gate.set()
    await asyncio.gather(first, third)
    assert done == [0, 2]
    assert second.cancelled()


async def test_a_load_that_nobody_waits_for_any_more_is_kept(pool: ModelPool) -> None:
    entered, gate = threading.Event(), threading.Event()
    model = Model()

    def load() -> Model:
        entered.set()
        gate.wait(10)
        return model.load()

    waiting = asyncio.ensure_future(pool.run(("a",), load, call_of()))
    await reached(entered)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    gate.set()
    assert await pool.run(("a",), load, call_of()) == "a"
    assert model.loads == 1


async def test_a_running_call_learns_that_it_was_cancelled(pool: ModelPool) -> None:
    entered, ended = threading.Event(), threading.Event()

    def work(call: Call) -> None:
        assert not is_cancelled()
        entered.set()
        while not is_cancelled():
            pass
        ended.set()

    running = asyncio.ensure_future(pool.run(("a",), Model(work=work).load, call_of()))
    await reached(entered)
    running.cancel()
    await reached(ended)


def test_one_pool_serves_several_event_loops() -> None:
    pool = ModelPool(limit_bytes=100)
    model = Model(work=lambda call: call.inputs["n"])
    results: dict[int, list[int]] = {}

    async def use(n: int) -> list[int]:
        return await asyncio.gather(*(pool.run(("a",), model.load, call_of(n=n)) for _ in range(10)))

    loops = [threading.Thread(target=lambda n=n: results.update({n: asyncio.run(use(n))})) for n in range(4)]
    for thread in loops:
        thread.start()
    for thread in loops:
        thread.join(30)
    asyncio.run(pool.close())
    assert results == {n: [n] * 10 for n in range(4)}
    assert model.loads == 1


def test_a_loop_that_ends_early_leaves_the_pool_usable() -> None:
    pool = ModelPool(limit_bytes=100)
    gate = threading.Event()
    model = Model(work=lambda call: gate.wait(10))

    async def leave() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(pool.run(("a",), model.load, call_of()), 0.01)

    async def stay() -> bool:
        gate.set()
        return bool(await pool.run(("a",), model.load, call_of()))

    asyncio.run(leave())
    assert asyncio.run(stay())
    asyncio.run(pool.close())


def test_weights_are_measured_wherever_an_expert_holds_them() -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(10, 10, bias=False)
    layer.tied = layer.weight

    class Holder:
        def __init__(self) -> None:
            self.model = layer

        def __call__(self, call: Call) -> Any:
            return self.model

    holder = Holder()
    for expert in (layer, holder, holder.__call__, lambda call: layer, lambda call: holder):
        assert weight_bytes(expert) == 400
    assert weight_bytes(layer, holder) == 400
    assert weight_bytes("nothing") == 0


async def test_a_model_that_says_nothing_counts_with_the_size_of_its_files(pool: ModelPool) -> None:
    await pool.run(("a",), lambda: lambda call: "raw", call_of(size=70))
    assert pool.nbytes == 70


def test_the_pool_does_not_import_torch() -> None:

    code = "import sys, jarvis_agent.backends.pool; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_library_that_another_thread_is_importing_is_left_alone(monkeypatch):
    """Weights are measured while torch may be half imported: its names are not there yet."""
    half = types.ModuleType("torch")
    half.__spec__ = importlib.machinery.ModuleSpec("torch", None)
    half.__spec__._initializing = True
    monkeypatch.setitem(sys.modules, "torch", half)
    assert weight_bytes(object()) == 0
    free_caches()
