"""Batching in the pool: calls that wait for one model are computed together, and independently fail."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from test_pool import call_of

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.memory import MAX_BATCH_FILE, fits_in_batch
from jarvis_agent.backends.pool import MAX_BATCH, ModelPool, is_cancelled
from jarvis_agent.core.errors import BadInputError, ExpertError
from jarvis_agent.core.types import Resource


class Batcher:
    """Doubles numbers, several at once, and records them; its first call waits for the gate."""

    nbytes = 1

    def __init__(self, batch: Callable[[Sequence[Call]], list[Any]] | None = None) -> None:
        self.entered, self.gate = threading.Event(), threading.Event()
        self.together: list[list[Any]] = []
        if batch is not None:
            self.batch = batch  # type: ignore[method-assign]

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


async def queued(pool: ModelPool, model: Any, inputs: Sequence[Any]) -> list[asyncio.Future[Any]]:
    """Calls of which the first is running and the others wait in the queue."""

    def start(n: Any) -> asyncio.Future[Any]:
        return asyncio.ensure_future(pool.run(("m",), lambda: model, call_of(n=n)))

    first = start(inputs[0])
    assert await asyncio.to_thread(model.entered.wait, 10)
    calls = [first, *map(start, inputs[1:])]
    await asyncio.sleep(0)
    return calls


LONG = "c" * 5_000


@pytest.mark.parametrize(
    ("inputs", "expected", "together"),
    [
        (range(10), [2 * n for n in range(10)], [[0], [1, 2, 3, 4, 5, 6, 7, 8], [9]]),
        ([0, 1, "bad", 3], [0, 2, BadInputError, 6], [[0], [1], ["bad"], [3]]),
        (["a", "b", LONG, "d"], ["aa", "bb", 2 * LONG, "dd"], [["a"], ["b", "d"], [LONG]]),
    ],
    ids=["at most eight", "one bad input", "a long input"],
)
async def test_waiting_calls_are_computed_together(
    pool: ModelPool, inputs: Sequence[Any], expected: list[Any], together: list[list[Any]]
) -> None:
    assert MAX_BATCH == 8
    model = Batcher()
    calls = await queued(pool, model, inputs)
    model.gate.set()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) if isinstance(result, Exception) else result for result in results] == expected
    assert model.together == together


async def test_a_batch_with_too_few_results_is_run_one_by_one(pool: ModelPool) -> None:
    model = Batcher(lambda calls: ["one result"])
    calls = await queued(pool, model, [0, 1, 2])
    model.gate.set()
    assert await asyncio.gather(*calls) == [0, 2, 4]


async def test_a_cancelled_call_is_not_in_the_batch_and_does_not_stop_it(pool: ModelPool) -> None:
    seen: list[bool] = []
    inside, go_on = threading.Event(), threading.Event()

    def batch(calls: Sequence[Call]) -> list[Any]:
        inside.set()
        assert go_on.wait(10)
        seen.append(is_cancelled())
        return [call.inputs["n"] for call in calls]

    model = Batcher(batch)
    calls = await queued(pool, model, range(4))
    calls[3].cancel()
    await asyncio.sleep(0)
    model.gate.set()
    assert await asyncio.to_thread(inside.wait, 10)
    calls[1].cancel()
    await asyncio.sleep(0)
    go_on.set()
    assert await calls[2] == 2
    assert seen == [False]


async def test_an_error_while_choosing_the_batch_fails_only_that_call(
    pool: ModelPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(call: Call) -> bool:
        raise RuntimeError("no such check")

    model = Batcher()
    model.gate.set()
    with monkeypatch.context() as patch:
        patch.setattr("jarvis_agent.backends.pool.fits_in_batch", broken)
        with pytest.raises(ExpertError, match="no such check"):
            await asyncio.wait_for(pool.run(("m",), lambda: model, call_of(n=1)), 10)
    assert await asyncio.wait_for(pool.run(("m",), lambda: model, call_of(n=2)), 10) == 4


def test_small_inputs_fit_in_a_batch(tmp_path: Path) -> None:
    small, large, sound = tmp_path / "a.png", tmp_path / "b.png", tmp_path / "c.wav"
    small.write_bytes(b"1")
    large.write_bytes(b"1" * (MAX_BATCH_FILE + 1))
    sound.write_bytes(b"1")
    cases: list[tuple[dict[str, Any], bool]] = [
        ({"text": "a text", "top": 3, "labels": ["a", "b"]}, True),
        ({"image": Resource(kind="image", path=small)}, True),
        ({"image": Resource(kind="image", path=large)}, False),
        ({"audio": Resource(kind="audio", path=sound)}, False),
        ({"image": Resource(kind="image", path=tmp_path / "gone.png")}, False),
        ({"image": Resource(kind="image", path=tmp_path / ("long" * 1_000))}, False),
    ]
    assert [fits_in_batch(call_of(**inputs)) for inputs, _ in cases] == [fits for _, fits in cases]
