"""Calls that wait for one model together are computed together, and none suffers from another."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.memory import MAX_BATCH_FILE, fits_in_batch
from jarvis_agent.backends.pool import ModelPool, is_cancelled
from jarvis_agent.core.errors import BadInputError, ExpertError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Resource


def call_of(**inputs: Any) -> Call:
    return Call(
        spec=TASKS["text-classification"],
        candidate=Candidate(id="org/m", task="text-classification"),
        inputs=inputs,
        new_path=Path,
        settings=Settings(),
    )


class Batcher:
    """Doubles numbers, several at once, and remembers which ones; its first call waits for the gate."""

    nbytes = 1

    def __init__(self) -> None:
        self.entered, self.gate = threading.Event(), threading.Event()
        self.together: list[list[Any]] = []

    def __call__(self, call: Call) -> Any:
        self.entered.set()
        assert self.gate.wait(10)
        self.together.append([call.inputs["n"]])
        if call.inputs["n"] == "bad":
            raise BadInputError("this one is bad")
        return call.inputs["n"] * 2

    def batch(self, calls: Sequence[Call]) -> list[Any]:
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


async def queued(pool: ModelPool, model: Any, inputs: Sequence[Any]) -> list[asyncio.Future[Any]]:
    """Calls of which the first is in the model already, and the others wait in its queue."""
    calls = [asyncio.ensure_future(pool.run(("m",), lambda: model, call_of(n=n))) for n in inputs[:1]]
    assert await asyncio.to_thread(model.entered.wait, 10)
    calls += [asyncio.ensure_future(pool.run(("m",), lambda: model, call_of(n=n))) for n in inputs[1:]]
    await asyncio.sleep(0)
    return calls


async def test_calls_that_wait_together_are_computed_together(pool: ModelPool) -> None:
    model = Batcher()
    calls = await queued(pool, model, range(10))
    model.gate.set()
    assert await asyncio.gather(*calls) == list(range(0, 20, 2))
    assert model.together == [[0], [1, 2, 3, 4, 5, 6, 7, 8], [9]]


async def test_one_bad_input_harms_no_other(pool: ModelPool) -> None:
    model = Batcher()
    calls = await queued(pool, model, [0, 1, "bad", 3])
    model.gate.set()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [results[0], results[1], results[3]] == [0, 2, 6]
    assert isinstance(results[2], BadInputError)
    assert model.together == [[0], [1], ["bad"], [3]]


async def test_a_batch_that_gives_too_few_results_is_not_trusted(pool: ModelPool) -> None:
    model = Batcher()
    model.batch = lambda calls: ["one result"]  # type: ignore[method-assign]
    calls = await queued(pool, model, [0, 1, 2])
    model.gate.set()
    assert await asyncio.gather(*calls) == [0, 2, 4]


async def test_a_call_that_is_cancelled_is_left_out_of_the_batch(pool: ModelPool) -> None:
    model = Batcher()
    calls = await queued(pool, model, range(4))
    calls[2].cancel()
    await asyncio.sleep(0)
    model.gate.set()
    await asyncio.gather(*calls, return_exceptions=True)
    assert model.together == [[0], [1, 3]]


async def test_a_batch_goes_on_while_anybody_waits_for_it(pool: ModelPool) -> None:
    seen: list[bool] = []
    inside, check_cancelled = threading.Event(), threading.Event()

    def batch(calls: Sequence[Call]) -> list[Any]:
        inside.set()
        assert check_cancelled.wait(10)
        seen.append(is_cancelled())
        return [call.inputs["n"] for call in calls]

    model = Batcher()
    model.batch = batch  # type: ignore[method-assign]
    calls = await queued(pool, model, range(3))
    model.gate.set()
    assert await asyncio.to_thread(inside.wait, 10)
    calls[1].cancel()
    await asyncio.sleep(0)
    check_cancelled.set()
    assert await calls[2] == 2
    assert seen == [False]


async def test_long_inputs_are_computed_alone(pool: ModelPool) -> None:
    model = Batcher()
    calls = await queued(pool, model, ["a", "b", "c" * 5_000, "d"])
    model.gate.set()
    await asyncio.gather(*calls)
    assert ["c" * 5_000] in model.together


async def test_a_call_that_can_not_be_looked_at_harms_no_other(
    pool: ModelPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(call: Call) -> bool:
        raise RuntimeError("no such look")

    model = Batcher()
    model.gate.set()
    with monkeypatch.context() as patch:
        patch.setattr("jarvis_agent.backends.pool.fits_in_batch", broken)
        with pytest.raises(ExpertError, match="no such look"):
            await asyncio.wait_for(pool.run(("m",), lambda: model, call_of(n=1)), 10)
    assert await asyncio.wait_for(pool.run(("m",), lambda: model, call_of(n=2)), 10) == 4


async def test_a_model_that_is_lost_in_a_batch_says_so_to_everybody(pool: ModelPool) -> None:
    class Broken(Batcher):
        def __call__(self, call: Call) -> Any:
            super().__call__(call)
            raise RuntimeError("broken")

        def batch(self, calls: Sequence[Call]) -> list[Any]:
            raise RuntimeError("broken")

    model = Broken()
    calls = await queued(pool, model, range(3))
    model.gate.set()
    for error in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(error, ExpertError)
        assert str(error) == "RuntimeError: broken"


def test_what_is_small_enough_for_a_batch(tmp_path: Path) -> None:
    small, large, sound = tmp_path / "a.png", tmp_path / "b.png", tmp_path / "c.wav"
    small.write_bytes(b"1")
    large.write_bytes(b"1" * (MAX_BATCH_FILE + 1))
    sound.write_bytes(b"1")
    assert fits_in_batch(call_of(n="a text", top=3, labels=["a", "b"]))
    assert fits_in_batch(call_of(n=Resource(kind="image", path=small)))
    assert not fits_in_batch(call_of(n=Resource(kind="image", path=large)))
    assert not fits_in_batch(call_of(n=Resource(kind="audio", path=sound)))
    assert not fits_in_batch(call_of(n=Resource(kind="image", path=tmp_path / "gone.png")))
    assert not fits_in_batch(call_of(n=Resource(kind="image", path=tmp_path / ("long" * 1_000))))
