"""The circuit breaker: opens after repeated failures, admits calls after a pause, closes on success."""

import asyncio

import pytest
from clock import Clock

from jarvis_agent.backends import circuit_breaker
from jarvis_agent.backends.circuit_breaker import count_failures
from jarvis_agent.core.errors import (
    AttemptTimeoutError,
    BadInputError,
    CircuitOpenError,
    JarvisError,
    RateLimitedError,
    TransientError,
    UnsupportedError,
)

KEY = ("hosted", "org/model")


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(circuit_breaker, "monotonic", clock)
    return clock


async def fail(times: int, error: BaseException | None = None, key: tuple[str, str] = KEY) -> None:
    for _ in range(times):
        with pytest.raises((JarvisError, asyncio.CancelledError)):
            async with count_failures(key):
                raise error or TransientError("503")


async def succeed(key: tuple[str, str] = KEY) -> None:
    async with count_failures(key):
        pass


async def is_open() -> bool:
    try:
        async with count_failures(KEY):
            raise UnsupportedError("not counted")
    except CircuitOpenError:
        return True
    except UnsupportedError:
        return False


async def test_it_opens_after_failures_without_a_success_between(clock: Clock) -> None:
    await fail(4)
    await succeed()
    await fail(4)
    clock.now += 600
    assert not await is_open()
    await fail(1)
    assert await is_open()
    await succeed(("hosted", "org/other"))


async def test_only_temporary_failures_count() -> None:
    for error, opens in (
        (TransientError("a"), True),
        (AttemptTimeoutError("b"), True),
        (RateLimitedError("in 3 s", 3.0), False),
        (UnsupportedError("c"), False),
        (BadInputError("d"), False),
        (asyncio.CancelledError(), False),
    ):
        circuit_breaker._failures.clear()
        await fail(5, error)
        assert await is_open() == opens, error


async def test_after_the_pause_the_next_call_decides(clock: Clock) -> None:
    await fail(5)
    clock.now += 24
    with pytest.raises(CircuitOpenError, match=r"org/model is not called for another 6 s: it failed 5 times"):
        await succeed()
    clock.now += 6
    await fail(1)  # another pause
    clock.now += 29
    assert await is_open()
    clock.now += 1
    await succeed()
    await fail(4)
    assert not await is_open()


async def test_concurrent_calls_that_fail_together_count_once(clock: Clock) -> None:
    async def fail_together() -> None:
        calls = [count_failures(KEY) for _ in range(10)]
        for call in calls:
            await call.__aenter__()
        for call in calls:
            clock.now += 1
            assert not await call.__aexit__(TransientError, TransientError("503"), None)

    for _ in range(4):
        await fail_together()
    assert not await is_open()
    await fail_together()
    assert await is_open()


async def test_the_records_are_bounded() -> None:
    await fail(5)
    for number in range(2000):
        await fail(1, key=("hosted", f"model-{number}"))
    assert not await is_open()  # the oldest record was dropped
    assert len(circuit_breaker._failures) < 2000
