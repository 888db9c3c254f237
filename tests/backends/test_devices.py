"""Placement of models on GPUs, eviction on each, and models that fit on none, with fake GPUs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from libraries import needs

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.devices import choose_device, computes_in_half, gpu_limits, pick_dtype
from jarvis_agent.backends.pool import ModelPool, measure
from jarvis_agent.core.errors import ExpertError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate

torch = needs("torch")

TWO = Settings(memory_budget=100)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two fake GPUs of 1,000 bytes, where models state their size and device."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation=True: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 0)
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: None)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda number: SimpleNamespace(total_memory=1000))
    monkeypatch.setattr("torch.empty", lambda *size, **options: None)
    measured = "jarvis_agent.backends.pool.measure"
    monkeypatch.setattr(measured, lambda expert, *_: {expert.device: expert.nbytes})


class OnDevice:
    """A model of `nbytes` bytes that records its device."""

    def __init__(self, nbytes: int, settings: Settings = TWO, work: Callable[[], None] | None = None) -> None:
        self.nbytes, self.settings, self.work = nbytes, settings, work
        self.device = ""

    def load(self) -> OnDevice:
        self.device = str(choose_device(self.settings, self.nbytes))
        return self

    def __call__(self, call: Call) -> str:
        if self.work:
            self.work()
        return self.device


@pytest.fixture
async def pool(two_gpus: None) -> AsyncIterator[ModelPool]:
    """A pool with 100 bytes of RAM and of each GPU."""
    pool = ModelPool(100)
    yield pool
    await pool.close()


async def put(pool: ModelPool, name: str, model: OnDevice) -> Any:
    candidate = Candidate(id=name, task="text-generation", size=model.nbytes)
    call = Call(TASKS["text-generation"], candidate, {}, Path, model.settings)
    return await pool.run((name,), model.load, call)


# Each case: models as (name, bytes, device asked for, device given), and the bytes on each device at the end.
NAMED, IN_RAM = "cuda:1", "cpu"
PLACED: dict[str, tuple[list[tuple[str, int, str, str]], dict[str, int]]] = {
    "the GPU with the most room is taken": (
        [("a", 50, "auto", "cuda:0"), ("b", 30, "auto", "cuda:1"), ("c", 60, "auto", "cuda:1")],
        {"cuda:0": 50, "cuda:1": 90},
    ),
    "room is made on one GPU only": (
        [("a", 80, "auto", "cuda:0"), ("b", 60, "auto", "cuda:1"), ("c", 70, "auto", "cuda:0")],
        {"cuda:1": 60, "cuda:0": 70},
    ),
    "a model too large for any GPU stays in RAM": (
        [("a", 50, "auto", "cuda:0"), ("huge", 101, "auto", "cpu")],
        {"cuda:0": 50, "cpu": 101},
    ),
    "a named device is taken": ([("a", 40, NAMED, NAMED), ("b", 70, NAMED, NAMED)], {NAMED: 70}),
    "even if the model is too large": ([("huge", 500, NAMED, NAMED)], {NAMED: 500}),
    "models on GPUs do not count as RAM": (
        [("gpu", 90, "auto", "cuda:0"), ("ram", 90, IN_RAM, IN_RAM)],
        {"cuda:0": 90, "cpu": 90},
    ),
}


@pytest.mark.usefixtures("two_gpus")
async def test_where_models_are_placed_and_what_stays(subtests: pytest.Subtests) -> None:
    for case, (models, used) in PLACED.items():
        with subtests.test(case):
            pool = ModelPool(100)
            for name, size, asked, given in models:
                settings = Settings(memory_budget=100, device=asked)
                assert await put(pool, name, OnDevice(size, settings)) == given
            assert pool.used == used
            await pool.close()


async def test_a_gpu_is_overfilled_by_at_most_one_model(pool: ModelPool) -> None:
    most: list[int] = []

    def watch() -> None:
        most.append(max(pool.used.get(gpu, 0) for gpu in ("cuda:0", "cuda:1")))

    await asyncio.gather(*(put(pool, str(n), OnDevice(60, work=watch)) for n in range(8)))
    assert len(most) == 8
    assert max(most) <= 160


async def test_a_failed_load_leaves_no_claim_on_a_gpu(pool: ModelPool) -> None:
    class Broken(OnDevice):
        def load(self) -> OnDevice:
            super().load()
            raise RuntimeError("damaged")

    with pytest.raises(ExpertError, match="damaged"):
        await put(pool, "broken", Broken(90))
    assert await put(pool, "a", OnDevice(90)) == "cuda:0"


@pytest.mark.usefixtures("two_gpus")
def test_limits_placement_and_dtype_follow_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu_limits(Settings()) == {"cuda:0": 800, "cuda:1": 800}
    assert gpu_limits(Settings(memory_budget=5)) == {"cuda:0": 5, "cuda:1": 5}
    assert [str(choose_device(TWO, size)) for size in (None, 100, 101)] == ["cuda:0", "cuda:0", "cpu"]
    assert pick_dtype(torch.device("cuda:1")) is torch.bfloat16
    assert pick_dtype(torch.device("cuda:1"), exact=True) is torch.float32
    assert pick_dtype(torch.device("cpu")) is torch.float32
    assert computes_in_half(Settings())
    emulated = lambda including_emulation=True: including_emulation  # noqa: E731
    monkeypatch.setattr("torch.cuda.is_bf16_supported", emulated)
    assert pick_dtype(torch.device("cuda:1")) is torch.float32
    assert not computes_in_half(Settings(device="cpu"))


def test_weights_are_counted_once_on_the_device_that_holds_them() -> None:
    layer, meta = torch.nn.Linear(10, 10, bias=False), torch.nn.Linear(9, 9).to("meta")
    layer.tied = layer.weight
    modules = SimpleNamespace(modules=[layer, layer, meta, "no module"])
    for expert, nbytes in ((modules, 400), (SimpleNamespace(nbytes=1_000), 1_000), (object(), 7)):
        assert measure(expert, size=7) == {"cpu": nbytes}
