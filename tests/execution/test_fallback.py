"""The ladder: what is tried again, what comes next, what ends the climb."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from jarvis_agent.backends import circuit_breaker
from jarvis_agent.backends.base import Call
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.errors import (
    ERROR_POLICIES,
    AllCandidatesFailedError,
    AttemptTimeoutError,
    BadInputError,
    CircuitOpenError,
    ConfigError,
    ErrorPolicy,
    ExpertError,
    ForbiddenError,
    InputError,
    JarvisError,
    MissingExtraError,
    NoCandidateError,
    OutOfMemoryError,
    RateLimitedError,
    TransientError,
    UnsupportedError,
    policy_for,
)
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate, Selection
from jarvis_agent.execution import fallback as ladder_module
from jarvis_agent.execution.attempt_files import AttemptFiles
from jarvis_agent.execution.fallback import FallbackChain, FallbackResult
from jarvis_agent.media.store import ResourceStore

SPEC = TASKS["summarization"]


class Scripted:
    """A backend that answers or raises what its script says, call by call."""

    name = "scripted"
    local = True

    def __init__(self, **script: list[Any]) -> None:
        self.script: dict[str, Iterator[Any]] = {model: iter(steps) for model, steps in script.items()}

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        return None

    async def run(self, call: Call) -> Any:
        step = next(self.script[call.candidate.id])
        if isinstance(step, Exception):
            raise step
        if isinstance(step, float):
            await asyncio.sleep(step)
        return {"summary_text": f"by {call.candidate.id}"}

    async def close(self) -> None:
        return


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Retries do not wait; the pauses that they asked for are listed."""
    asked: list[float] = []
    real = ladder_module._pause

    def pause(state: Any) -> float:
        asked.append(real(state))
        return 0.0

    monkeypatch.setattr(ladder_module, "_pause", pause)
    return asked


async def climb(tmp_path: Any, settings: Settings | None = None, **script: list[Any]) -> FallbackResult:
    candidates = [Candidate(id=model, task=SPEC.name, backend="scripted") for model in script]
    began = perf_counter()
    return await FallbackChain(
        spec=SPEC,
        selection=Selection(model=candidates[0].id, reason="first", candidates=candidates),
        backends={"scripted": Scripted(**script)},
        settings=settings or Settings(retries=2),
        new_path=lambda suffix: tmp_path / f"x{suffix}",
        clock=lambda: perf_counter() - began,
    ).run({"text": "long"})


def tried(done: FallbackResult) -> list[tuple[str, bool]]:
    return [(attempt.model, attempt.ok) for attempt in done.attempts]


async def test_the_first_candidate_that_works_gives_the_result(tmp_path):
    done = await climb(tmp_path, a=["ok"], b=["ok"])
    assert (done.error, tried(done)) == (None, [("a", True)])
    assert done.resources[0].text == "by a"


async def test_a_transient_failure_is_tried_again_with_the_same_model(tmp_path):
    done = await climb(tmp_path, a=[TransientError("503"), TransientError("503"), "ok"], b=["ok"])
    assert tried(done) == [("a", False), ("a", False), ("a", True)]


async def test_after_its_retries_the_next_candidate_comes(tmp_path):
    done = await climb(tmp_path, a=[TransientError("503")] * 3, b=["ok"])
    assert tried(done) == [("a", False)] * 3 + [("b", True)]


async def test_a_rate_limit_is_waited_for_as_long_as_it_asks(tmp_path, no_pauses):
    await climb(tmp_path, a=[RateLimitedError("429", retry_after=3.5), "ok"])
    assert no_pauses == [3.5]


async def test_a_provider_that_asks_for_a_long_wait_is_not_waited_for(tmp_path):
    done = await climb(tmp_path, a=[RateLimitedError("429", retry_after=3600)], b=["ok"])
    assert tried(done) == [("a", False), ("b", True)]


@pytest.mark.parametrize(
    "error", [UnsupportedError("no"), OutOfMemoryError("big"), ValueError("a bug in a library")]
)
async def test_any_other_failure_goes_straight_to_the_next_candidate(tmp_path, error):
    done = await climb(tmp_path, a=[error], b=["ok"])
    assert tried(done) == [("a", False), ("b", True)]


async def test_an_input_that_is_at_fault_ends_the_climb(tmp_path):
    done = await climb(tmp_path, a=[BadInputError("the image is broken")], b=["ok"])
    assert tried(done) == [("a", False)]
    assert "the image is broken" in str(done.error)


async def test_a_candidate_that_hangs_is_left_behind(tmp_path):
    done = await climb(tmp_path, Settings(task_timeout=0.0625, retries=2), a=[60.0], b=["ok"])
    assert tried(done) == [("a", False), ("b", True)]
    assert "did not finish within" in (done.attempts[0].error or "")


async def test_what_took_long_to_fail_leaves_the_time_to_the_next(tmp_path):
    class Slow(Scripted):
        async def run(self, call: Call) -> Any:
            if call.candidate.id == "a":
                await asyncio.sleep(0.2)
                raise TransientError("nothing came")
            return await super().run(call)

    candidates = [Candidate(id=model, task=SPEC.name, backend="scripted") for model in ("a", "b")]
    selection = Selection(model="a", reason="", candidates=candidates)
    settings = Settings(task_timeout=0.5, retries=2)
    done = await FallbackChain(
        SPEC,
        selection,
        {"scripted": Slow(b=["ok"])},
        settings,
        lambda suffix: tmp_path / suffix,
        perf_counter,
    ).run({"text": "x"})
    assert tried(done) == [("a", False), ("b", True)]


async def test_when_all_have_failed_the_error_names_each_with_its_reason(tmp_path):
    done = await climb(tmp_path, a=[UnsupportedError("too old")], b=[UnsupportedError("too new")])
    assert str(done.error) == "all 2 candidates failed: a: too old; b: too new"


async def test_output_of_the_wrong_form_is_that_candidate_s_failure(tmp_path):
    class Garbage(Scripted):
        async def run(self, call: Call) -> Any:
            return object() if call.candidate.id == "a" else await super().run(call)

    candidates = [Candidate(id=model, task=SPEC.name, backend="scripted") for model in ("a", "b")]
    done = await FallbackChain(
        SPEC,
        Selection(model="a", reason="", candidates=candidates),
        {"scripted": Garbage(b=["ok"])},
        Settings(),
        lambda suffix: tmp_path / suffix,
        perf_counter,
    ).run({"text": "x"})
    assert tried(done) == [("a", False), ("b", True)]


@pytest.mark.parametrize("where", ["adapter", "model"])
async def test_what_a_thread_writes_after_its_attempt_is_removed(tmp_path, monkeypatch, where):
    """A thread can not be stopped: its file comes when nobody waits for it any more."""
    let_go, ended, refused = threading.Event(), threading.Event(), threading.Event()

    def write_late(call: Call) -> None:
        path = call.new_path(".txt")
        let_go.wait(20)
        path.write_text("late")
        try:
            call.new_path(".txt")
        except JarvisError:
            refused.set()

    class Local(LocalBackend):
        name = "scripted"

        def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
            return None

        def load(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Any:
            return write_late

    def adapter(spec: TaskSpec, raw: Any, call: Call) -> Any:
        write_late(call)
        return raw, []

    swept = AttemptFiles.cleanup

    def sweep(drafts: AttemptFiles) -> None:
        swept(drafts)
        if let_go.is_set():
            ended.set()

    monkeypatch.setattr(AttemptFiles, "cleanup", sweep)
    if where == "adapter":
        monkeypatch.setattr(ladder_module, "adapt", adapter)
    pool = ModelPool(10**9)
    backend = Local(pool) if where == "model" else Scripted(a=["ok"])
    done = await FallbackChain(
        SPEC,
        Selection(model="a", reason="", candidates=[Candidate(id="a", task=SPEC.name, backend="scripted")]),
        {"scripted": backend},
        Settings(task_timeout=1.25, retries=0),
        ResourceStore(Settings(), directory=tmp_path).new_path,
        perf_counter,
    ).run({"text": "x"})
    assert tried(done) == [("a", False)]
    let_go.set()
    assert await asyncio.to_thread(ended.wait, 20)
    assert refused.is_set()
    assert not list(tmp_path.iterdir())
    await pool.close()


async def test_an_attempt_that_is_cancelled_is_recorded(tmp_path):
    candidate = Candidate(id="a", task=SPEC.name, backend="scripted")
    it = FallbackChain(
        SPEC,
        Selection(model="a", reason="", candidates=[candidate]),
        {"scripted": Scripted(a=[60.0])},
        Settings(),
        lambda suffix: tmp_path / suffix,
        perf_counter,
    )
    running = asyncio.create_task(it.run({"text": "x"}))
    await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [attempt.error for attempt in it.attempts] == ["cancelled"]


async def test_a_timeout_of_the_backend_itself_is_transient_and_tried_again(tmp_path):
    done = await climb(tmp_path, a=[TimeoutError("the socket was silent"), "ok"])
    assert tried(done) == [("a", False), ("a", True)]
    assert done.attempts[0].error == "TimeoutError: the socket was silent"


class Hosted(Scripted):
    name = "hosted"
    local = False


def rung(model: str, size: int | None = None, backend: str = "scripted") -> Candidate:
    return Candidate(id=model, task=SPEC.name, backend=backend, size=size)


async def climb_rungs(
    rungs: list[Candidate], here: Scripted, there: Scripted | None = None
) -> FallbackResult:
    selection = Selection(model=rungs[0].id, reason="first", candidates=rungs)
    backends = {"scripted": here, "hosted": there or Hosted()}
    ladder = FallbackChain(SPEC, selection, backends, Settings(retries=0), Path, perf_counter)
    return await ladder.run({"text": "long"})


async def test_after_a_model_that_does_not_fit_comes_a_smaller_one():
    rungs = [rung("large", 9), rung("larger", 10), rung("same", 9), rung("small", 3)]
    done = await climb_rungs(rungs, Scripted(large=[OutOfMemoryError("9 bytes")], small=["ok"]))
    assert tried(done) == [("large", False), ("small", True)]


async def test_a_model_of_unknown_size_is_tried_after_one_that_does_not_fit():
    done = await climb_rungs(
        [rung("large", 9), rung("unknown")], Scripted(large=[OutOfMemoryError("")], unknown=["ok"])
    )
    assert tried(done) == [("large", False), ("unknown", True)]


async def test_what_is_left_out_for_its_size_is_named_when_all_fail():
    done = await climb_rungs(
        [rung("large", 9), rung("larger", 10)], Scripted(large=[OutOfMemoryError("9 bytes")])
    )
    assert str(done.error) == (
        "all 2 candidates failed: large: 9 bytes; "
        "larger: it is no smaller than large, which does not fit into memory"
    )


async def test_a_model_that_does_not_fit_here_is_asked_where_it_is_hosted():
    rungs = [rung("large", 9), rung("large", 9, "hosted")]
    done = await climb_rungs(rungs, Scripted(large=[OutOfMemoryError("")]), Hosted(large=["ok"]))
    assert [(a.model, a.backend, a.ok) for a in done.attempts] == [
        ("large", "scripted", False),
        ("large", "hosted", True),
    ]


async def test_a_model_that_failed_in_both_places_is_told_with_both():
    rungs = [rung("a"), rung("a", backend="hosted")]
    done = await climb_rungs(
        rungs, Scripted(a=[UnsupportedError("no")]), Hosted(a=[UnsupportedError("never")])
    )
    assert str(done.error) == "all 2 candidates failed: a by scripted: no; a by hosted: never"


A, B, SMALL = ("a", False), ("b", True), ("small", True)
CLIMBS: list[tuple[JarvisError, list[tuple[str, bool]]]] = [
    (JarvisError("odd"), [A, B]),
    (ConfigError("no key"), [A, B]),
    (MissingExtraError("it", "local"), [A, B]),
    (InputError("no such file"), [A]),
    (ForbiddenError("not yours"), [A]),
    (NoCandidateError("nothing"), [A]),
    (ExpertError("a bug"), [A, B]),
    (TransientError("503"), [A, A, A, B]),
    (RateLimitedError("429", 1.0), [A, A, A, B]),
    (AttemptTimeoutError("late"), [A, B]),
    (CircuitOpenError("left alone"), [A, B]),
    (OutOfMemoryError("9 GB"), [A, SMALL]),
    (UnsupportedError("no such input"), [A, B]),
    (BadInputError("a broken image"), [A]),
    (AllCandidatesFailedError("all failed"), [A]),
]
"""Each kind of error, and the attempts of a ladder a, b (as large as a), small after it."""


@pytest.mark.parametrize(("error", "attempts"), CLIMBS, ids=[type(error).__name__ for error, _ in CLIMBS])
async def test_each_kind_of_error_has_its_rule(error, attempts):
    here = Scripted(a=[error] * 3, b=["ok"], small=["ok"])
    rungs = [rung("a", 9), rung("b", 9), rung("small", 3)]
    ladder = FallbackChain(
        SPEC,
        Selection(model="a", reason="", candidates=rungs),
        {"scripted": here},
        Settings(retries=2),
        Path,
        perf_counter,
    )
    assert tried(await ladder.run({"text": "long"})) == attempts


def test_every_rule_of_the_table_is_tried_above():
    assert set(ERROR_POLICIES) <= {type(error) for error, _ in CLIMBS}


@pytest.mark.parametrize(
    ("kind", "parent"), [(MissingExtraError, JarvisError), (TransientError, TransientError)]
)
def test_a_kind_without_a_row_has_the_rule_of_its_parent(kind, parent):
    assert policy_for(kind) == ERROR_POLICIES[parent]
    assert policy_for(type("Own", (kind,), {})) == ERROR_POLICIES[parent]


def test_what_another_plan_can_not_change_is_not_planned_again():
    final = {kind.__name__ for kind, rule in ERROR_POLICIES.items() if not rule.replan}
    assert final == {"NoCandidateError", "ForbiddenError"}
    assert ErrorPolicy().replan


async def test_a_model_that_keeps_failing_is_passed_over_by_the_next_run(tmp_path, monkeypatch):
    """Two runs of one process: the second one does not ask what failed three times in the first."""
    monkeypatch.setattr(circuit_breaker.shared, "max_failures", 3)
    settings = Settings(retries=2)
    await climb(tmp_path, settings, a=[TransientError("503")] * 3, b=["ok"])
    done = await climb(tmp_path, settings, a=["it would work"], b=["ok"])
    assert tried(done) == [("a", False), ("b", True)]
    assert "a is not called for another 30 s: it failed 3 times in a row" in (done.attempts[0].error or "")


async def test_a_candidate_that_hangs_counts_toward_being_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr(circuit_breaker.shared, "max_failures", 1)
    settings = Settings(task_timeout=0.0125)
    await climb(tmp_path, settings, a=[60.0], b=["ok"])
    done = await climb(tmp_path, settings, a=["it would work"], b=["ok"])
    assert "is not called" in (done.attempts[0].error or "")


async def test_a_breaker_that_opens_ends_the_further_tries_of_a_candidate(tmp_path, monkeypatch):
    monkeypatch.setattr(circuit_breaker.shared, "max_failures", 2)
    settings = Settings(retries=9)
    done = await climb(tmp_path, settings, a=[TransientError("503")] * 9, b=["ok"])
    assert tried(done) == [("a", False), ("a", False), ("a", False), ("b", True)]
    assert "is not called" in (done.attempts[2].error or "")
