"""On which GPU a model goes, what stays on each, and what fits on none. The GPUs are pretended."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.devices import bytes_by_device, computes_in_half, gpu_limits, pick_dtype, place
from jarvis_agent.backends.memory import measure
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate

torch = pytest.importorskip("torch")

TWO = Settings(gpu_memory_budget=100)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two GPUs of 1,000 bytes, on which nothing can be computed."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 0)
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: None)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda number: SimpleNamespace(total_memory=1000))
    monkeypatch.setattr("torch.empty", lambda *size, **options: None)


class OnDevice:
    """A model of some size, which remembers where it was put."""

    def __init__(self, size: int, settings: Settings = TWO, work: Any = None) -> None:
        self.size, self.settings, self.work = size, settings, work
        self.device: str | None = None

    def load(self) -> OnDevice:
        self.device = str(place(self.settings, self.size))
        return self

    def __call__(self, call: Call) -> str | None:
        if self.work:
            self.work()
        return self.device


@pytest.fixture
async def pool(monkeypatch: pytest.MonkeyPatch, two_gpus: None) -> AsyncIterator[ModelPool]:
    """A pool with 100 bytes of RAM and of each GPU; experts tell it themselves what they weigh and where."""
    monkeypatch.setattr(
        "jarvis_agent.backends.pool.measure", lambda expert, size: {expert.device: expert.size}
    )
    monkeypatch.setattr("jarvis_agent.backends.pool.free_caches", lambda: None)
    pool = ModelPool(100)
    yield pool
    await pool.close()


async def put(pool: ModelPool, name: str, model: OnDevice) -> Any:
    candidate = Candidate(id=name, task="text-generation", size=model.size)
    call = Call(TASKS["text-generation"], candidate, {}, Path, model.settings)
    return await pool.run((name,), model.load, call)


async def test_a_model_goes_on_the_gpu_with_the_most_room(pool: ModelPool) -> None:
    assert await put(pool, "a", OnDevice(50)) == "cuda:0"
    assert await put(pool, "b", OnDevice(30)) == "cuda:1"
    assert await put(pool, "c", OnDevice(60)) == "cuda:1"
    assert pool.used == {"cuda:0": 50, "cuda:1": 90}


async def test_room_is_made_on_one_gpu_and_the_other_is_left_alone(pool: ModelPool) -> None:
    for name, size in (("a", 80), ("b", 60)):
        await put(pool, name, OnDevice(size))
    assert await put(pool, "c", OnDevice(70)) == "cuda:0"
    assert pool.keys == [("b",), ("c",)]
    assert pool.used == {"cuda:1": 60, "cuda:0": 70}


async def test_what_fits_on_no_gpu_stays_in_ram(pool: ModelPool) -> None:
    assert await put(pool, "a", OnDevice(50)) == "cuda:0"
    assert await put(pool, "huge", OnDevice(101)) == "cpu"
    assert ("a",) in pool.keys


async def test_a_device_that_is_named_is_taken(pool: ModelPool) -> None:
    named = Settings(gpu_memory_budget=100, device="cuda:1")
    assert await put(pool, "a", OnDevice(40, named)) == "cuda:1"
    assert await put(pool, "b", OnDevice(70, named)) == "cuda:1"
    assert pool.used == {"cuda:1": 70}
    assert await put(pool, "huge", OnDevice(500, named)) == "cuda:1"


async def test_models_on_gpus_do_not_count_as_ram(pool: ModelPool) -> None:
    in_ram = Settings(gpu_memory_budget=100, device="cpu")
    await put(pool, "gpu", OnDevice(90))
    await put(pool, "ram", OnDevice(90, in_ram))
    assert pool.used == {"cuda:0": 90, "cpu": 90}


async def test_a_gpu_is_overfilled_by_at_most_one_model(pool: ModelPool) -> None:
    most: list[int] = []
    lock = threading.Lock()

    def watch() -> None:
        with lock:
            most.append(max(pool.used.get(gpu, 0) for gpu in ("cuda:0", "cuda:1")))

    await asyncio.gather(*(put(pool, str(n), OnDevice(60, work=watch)) for n in range(8)))
    assert len(most) == 8
    assert max(most) <= 160


async def test_a_load_that_fails_leaves_no_claim_on_a_gpu(pool: ModelPool) -> None:
    class Broken(OnDevice):
        def load(self) -> OnDevice:
            super().load()
            raise RuntimeError("damaged")

    with pytest.raises(Exception, match="damaged"):
        await put(pool, "broken", Broken(90))
    assert await put(pool, "a", OnDevice(90)) == "cuda:0"
    assert pool.used == {"cuda:0": 90}


@pytest.mark.usefixtures("two_gpus")
def test_weights_may_take_four_fifths_of_a_gpu_unless_the_settings_say_otherwise() -> None:
    assert gpu_limits(Settings()) == {"cuda:0": 800, "cuda:1": 800}
    assert gpu_limits(Settings(gpu_memory_budget=5)) == {"cuda:0": 5, "cuda:1": 5}


@pytest.mark.usefixtures("two_gpus")
def test_without_a_pool_the_first_gpu_that_holds_the_model_is_taken() -> None:
    assert str(place(TWO)) == "cuda:0"
    assert str(place(TWO, 100)) == "cuda:0"
    assert str(place(TWO, 101)) == "cpu"


@pytest.mark.usefixtures("two_gpus")
def test_a_gpu_computes_in_bfloat16_and_a_cpu_in_float32() -> None:
    assert pick_dtype("auto", torch.device("cuda:1")) is torch.bfloat16
    assert pick_dtype("auto", torch.device("cpu")) is torch.float32
    assert computes_in_half(Settings())
    assert not computes_in_half(Settings(dtype="float32"))


def test_weights_are_counted_on_the_device_where_they_lie() -> None:
    class Pipeline:
        def __init__(self) -> None:
            self.parts = {
                "unet": torch.nn.Linear(10, 10, bias=False),
                "off": torch.nn.Linear(9, 9).to("meta"),
            }

    class Expert:
        __slots__ = ("nbytes", "pipe")

        def __init__(self) -> None:
            self.pipe, self.nbytes = Pipeline(), 1_000

    assert bytes_by_device(Expert()) == {"cpu": 400}
    assert measure(Expert(), size=7) == {"cpu": 1_000}
    assert measure(Pipeline(), size=7) == {"cpu": 400}
    assert measure(object(), size=7) == {"cpu": 7}
