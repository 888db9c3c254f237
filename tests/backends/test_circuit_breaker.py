"""The circuit breaker: what fails again and again is left alone, tried once after a while, and forgiven."""

from __future__ import annotations

import threading

import pytest
from clock import Clock

from jarvis_agent.backends.circuit_breaker import Breaker
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
def breaker(clock: Clock) -> Breaker:
    return Breaker(clock, failures=3, pause=10)


def fail(breaker: Breaker, times: int = 1, error: JarvisError | None = None) -> None:
    for _ in range(times):
        with pytest.raises(JarvisError), breaker.call(KEY):
            raise error or TransientError("503")


def succeed(breaker: Breaker) -> None:
    with breaker.call(KEY):
        pass


def is_open(breaker: Breaker) -> bool:
    try:
        with breaker.call(KEY):
            raise UnsupportedError("it was asked, and this counts as nothing")
    except CircuitOpenError:
        return True
    except UnsupportedError:
        return False


def test_it_opens_after_so_many_failures_in_a_row(breaker: Breaker) -> None:
    fail(breaker, 2)
    assert not is_open(breaker)
    fail(breaker)
    assert is_open(breaker)


def test_a_success_in_between_starts_the_count_anew(breaker: Breaker) -> None:
    fail(breaker, 2)
    succeed(breaker)
    fail(breaker, 2)
    assert not is_open(breaker)


@pytest.mark.parametrize("error", [TransientError("a"), AttemptTimeoutError("b")])
def test_what_says_not_now_counts(breaker: Breaker, error: JarvisError) -> None:
    fail(breaker, 3, error)
    assert is_open(breaker)


@pytest.mark.parametrize(
    "error", [RateLimitedError("in 3 s", 3.0), UnsupportedError("a"), BadInputError("b")]
)
def test_what_says_when_or_never_does_not_count(breaker: Breaker, error: JarvisError) -> None:
    fail(breaker, 9, error)
    assert not is_open(breaker)


def test_after_its_pause_one_call_tries_and_the_others_stay_out(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 9.9
    assert is_open(breaker)
    clock.now += 0.2
    with breaker.call(KEY):
        assert is_open(breaker)
    assert not is_open(breaker)


def test_a_trial_that_succeeds_closes_it(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 10
    succeed(breaker)
    fail(breaker, 2)
    assert not is_open(breaker)


def test_a_trial_that_fails_opens_it_for_another_pause(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 10
    fail(breaker)
    clock.now += 9
    assert is_open(breaker)
    clock.now += 1
    assert not is_open(breaker)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), UnsupportedError("no")])
def test_a_trial_that_says_nothing_leaves_the_trial_to_the_next(
    breaker: Breaker, clock: Clock, error: BaseException
) -> None:
    fail(breaker, 3)
    clock.now += 10
    with pytest.raises(type(error)), breaker.call(KEY):
        raise error
    with breaker.call(KEY):
        assert is_open(breaker)


def test_a_call_that_began_before_it_opened_is_no_trial(breaker: Breaker, clock: Clock) -> None:
    """The early call ends while the trial is under way: still nobody else is let in."""
    early = breaker.call(KEY)
    early.__enter__()
    fail(breaker, 3)
    clock.now += 10
    with breaker.call(KEY):
        cancelled = KeyboardInterrupt()
        assert not early.__exit__(KeyboardInterrupt, cancelled, None)
        assert is_open(breaker)


def test_it_says_for_how_long_and_why(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 4
    with pytest.raises(CircuitOpenError, match=r"org/model is not asked for another 6 s: it failed 3 times"):
        succeed(breaker)


def test_one_key_says_nothing_of_another(breaker: Breaker) -> None:
    fail(breaker, 3)
    with breaker.call(("hosted", "org/other")):
        pass
    assert is_open(breaker)


def test_calls_that_fail_together_count_as_one_failure(breaker: Breaker, clock: Clock) -> None:
    """A burst of 503s at one moment must not shut out the tries that come after it."""
    calls = [breaker.call(KEY) for _ in range(10)]
    for call in calls:
        call.__enter__()
    clock.now += 1
    for call in calls:
        assert not call.__exit__(TransientError, TransientError("503"), None)
    fail(breaker, 1)
    assert not is_open(breaker)
    fail(breaker, 1)
    assert is_open(breaker)


def test_threads_share_the_count(breaker: Breaker) -> None:
    breaker.failures = 200

    def work() -> None:
        for _ in range(25):
            with pytest.raises(TransientError), breaker.call(KEY):
                raise TransientError("503")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with pytest.raises(CircuitOpenError, match="200 times"), breaker.call(KEY):
        pass


def test_it_does_not_grow_without_end(breaker: Breaker) -> None:
    for number in range(2000):
        with pytest.raises(TransientError), breaker.call(("hosted", f"model-{number}")):
            raise TransientError("503")
    assert len(breaker._records) == 1024
