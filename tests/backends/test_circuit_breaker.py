"""The circuit breaker: opens after repeated failures, admits one trial after a pause, closes on success."""

from __future__ import annotations

import asyncio

import pytest
from clock import Clock

from jarvis_agent.backends.circuit_breaker import CircuitBreaker
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


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> CircuitBreaker:
    return CircuitBreaker(max_failures=3, pause=10, clock=clock)


async def fail(breaker: CircuitBreaker, times: int = 1, error: BaseException | None = None) -> None:
    for _ in range(times):
        with pytest.raises((JarvisError, asyncio.CancelledError)):
            async with breaker.call(KEY):
                raise error or TransientError("503")


async def succeed(breaker: CircuitBreaker) -> None:
    async with breaker.call(KEY):
        pass


async def is_open(breaker: CircuitBreaker) -> bool:
    try:
        async with breaker.call(KEY):
            raise UnsupportedError("not counted")
    except CircuitOpenError:
        return True
    except UnsupportedError:
        return False


async def test_it_opens_after_failures_without_a_success_between(breaker: CircuitBreaker) -> None:
    await fail(breaker, 2)
    await succeed(breaker)
    await fail(breaker, 2)
    assert not await is_open(breaker)
    async with breaker.call(("hosted", "org/other")):
        pass
    await fail(breaker)
    assert await is_open(breaker)
    async with breaker.call(("hosted", "org/other")):
        pass


async def test_only_temporary_failures_count(clock: Clock) -> None:
    for error, opens in (
        (TransientError("a"), True),
        (AttemptTimeoutError("b"), True),
        (RateLimitedError("in 3 s", 3.0), False),
        (UnsupportedError("c"), False),
        (BadInputError("d"), False),
        (asyncio.CancelledError(), False),
    ):
        breaker = CircuitBreaker(max_failures=3, pause=10, clock=clock)
        await fail(breaker, 3, error)
        assert await is_open(breaker) == opens, error


async def test_after_the_pause_one_trial_call_decides(breaker: CircuitBreaker, clock: Clock) -> None:
    await fail(breaker, 3)
    clock.now += 4
    with pytest.raises(CircuitOpenError, match=r"org/model is not called for another 6 s: it failed 3 times"):
        await succeed(breaker)
    clock.now += 6
    async with breaker.call(KEY):
        assert await is_open(breaker)  # the others wait another pause
    await fail(breaker, 2)
    assert not await is_open(breaker)
    await fail(breaker)
    clock.now += 10
    await fail(breaker)  # the trial fails: another pause
    clock.now += 9
    assert await is_open(breaker)
    clock.now += 1
    assert not await is_open(breaker)


async def test_concurrent_calls_that_fail_together_count_once(breaker: CircuitBreaker, clock: Clock) -> None:
    calls = [breaker.call(KEY) for _ in range(10)]
    for call in calls:
        await call.__aenter__()
    clock.now += 1
    for call in calls:
        assert not await call.__aexit__(TransientError, TransientError("503"), None)
    await fail(breaker, 1)
    assert not await is_open(breaker)
    await fail(breaker, 1)
    assert await is_open(breaker)


async def test_the_records_are_bounded(breaker: CircuitBreaker) -> None:
    await fail(breaker, 3)
    for number in range(2000):
        with pytest.raises(TransientError):
            async with breaker.call(("hosted", f"model-{number}")):
                raise TransientError("503")
    await succeed(breaker)  # the oldest record was dropped
