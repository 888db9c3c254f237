"""Fallback: which errors are retried, which candidate is next, and how much time each gets."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clock import Clock, LoopTime
from local_models import ScriptedLocal

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.context import RunContext
from jarvis_agent.core.errors import (
    ERROR_POLICIES,
    AllCandidatesFailedError,
    AttemptTimeoutError,
    BadInputError,
    BudgetError,
    ConfigError,
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
)
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate, Selection, Task, TaskResult
from jarvis_agent.execution import fallback
from jarvis_agent.execution.fallback import FallbackChain
from jarvis_agent.execution.inputs import TaskCall
from jarvis_agent.media.run_directory import AttemptFiles, RunDirectory

SPEC = TASKS["summarization"]
RETRIES = 2


class Scripted:
    """A backend that follows a script for each model: errors, outputs, and seconds that pass."""

    def __init__(self, clock: Clock, *, local: bool = True, **script: Any) -> None:
        self.name = "scripted" if local else "hosted"
        self.local = local
        self._clock = clock
        self._script: dict[str, Iterator[Any]] = {
            model: iter(steps if isinstance(steps, list) else [steps]) for model, steps in script.items()
        }

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        return None

    async def run(self, call: Call) -> Any:
        step = next(self._script[call.candidate.id])
        if isinstance(step, tuple):
            seconds, step = step
            self._clock.now += seconds
        if step == "hang":
            await asyncio.Event().wait()
        if isinstance(step, Exception):
            raise step
        return object() if step == "garbage" else {"summary_text": f"by {call.candidate.id}"}

    async def close(self) -> None:
        return


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses before retries, which the tests do not wait for."""
    asked: list[float] = []
    real = fallback._pause
    monkeypatch.setattr(fallback, "_pause", lambda state: asked.append(real(state)) or 0.0)
    return asked


def model(name: str, size: int | None = None, backend: str = "scripted") -> Candidate:
    return Candidate(id=name, task=SPEC.name, backend=backend, size=size)


def chain(
    candidates: list[Candidate], *backends: Any, clock: Any = None, new_path: Any = Path, **settings: Any
) -> FallbackChain:
    limits = Settings(**settings)
    task = Task(task=SPEC.name, id=0, args={"text": "long"})
    return FallbackChain(
        TaskCall(task, task.args, RunContext(request="", clock=clock or Clock()), new_path, limits),
        SPEC,
        Selection(model=candidates[0].id, reason="first", candidates=candidates),
        backends={backend.name: backend for backend in backends},
    )


async def run(settings: dict[str, Any] | None = None, **script: Any) -> TaskResult:
    """Run a chain of local candidates, one for each model of the script."""
    clock = Clock()
    attempts = chain(
        [model(name) for name in script], Scripted(clock, **script), clock=clock, **settings or {}
    )
    return await attempts.run()


def tried(done: TaskResult) -> str:
    """The attempts in order: "a" for a failed one, "A" for the one that succeeded."""
    return " ".join(one.model.upper() if one.ok else one.model for one in done.attempts)


POLICY_CASES: list[tuple[JarvisError, str]] = [
    (JarvisError("odd"), "a B"),
    (ConfigError("no key"), "a B"),
    (MissingExtraError("it", "local"), "a B"),
    (InputError("no such file"), "a"),
    (ForbiddenError("not yours"), "a"),
    (BudgetError("too dear"), "a B"),
    (NoCandidateError("nothing"), "a"),
    (ExpertError("a bug"), "a B"),
    (TransientError("503"), "a a a B"),
    (RateLimitedError("429", 1.0), "a a a B"),
    (AttemptTimeoutError("late"), "a B"),
    (OutOfMemoryError("9 GB"), "a SMALL"),
    (UnsupportedError("no such input"), "a B"),
    (BadInputError("a broken image"), "a"),
    (AllCandidatesFailedError("all failed"), "a"),
]
"""For each kind of error of candidate a, the attempts at a, b (as large as a) and a small model."""


CALLER_CASES: list[tuple[Any, JarvisError, str]] = [
    (BadInputError, BadInputError("a broken image"), "a B"),
    ((BadInputError, InputError), ExpertError("a bug"), "a"),
    (lambda error: "503" in str(error), TransientError("503"), "a a a B"),
    (lambda error: "503" in str(error), ExpertError("a bug"), "a"),
    (ExpertError, OutOfMemoryError("9 GB"), "a SMALL"),
]
"""The same, where the caller says which errors lead to the next candidate."""


async def test_the_error_and_the_caller_decide_on_retries_and_fallbacks() -> None:
    for fallback_on, error, expected in [*((None, *case) for case in POLICY_CASES), *CALLER_CASES]:
        clock = Clock()
        backend = Scripted(clock, a=[error] * 3, b="ok", small="ok")
        attempts = chain([model("a", 9), model("b", 9), model("small", 3)], backend, clock=clock)
        if fallback_on:
            attempts.fallback_on = fallback_on
        assert tried(await attempts.run()) == expected, error
    assert set(ERROR_POLICIES) <= {type(error) for error, _ in POLICY_CASES}


async def test_other_outcomes_of_an_attempt(pauses: list[float]) -> None:
    transient = TransientError("503")
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("the first success ends the chain", {"a": "ok", "b": "ok"}, "A"),
        ("a retry may succeed", {"a": [transient, transient, "ok"], "b": "ok"}, "a a A"),
        ("a library's error", {"a": ValueError("a bug"), "b": "ok"}, "a B"),
        ("an output of the wrong form", {"a": "garbage", "b": "ok"}, "a B"),
        ("a TimeoutError of the backend itself", {"a": [TimeoutError("silent"), "ok"]}, "a A"),
        ("a pause that is too long", {"a": RateLimitedError("429", retry_after=31), "b": "ok"}, "a B"),
    ]
    for name, script, expected in cases:
        assert tried(await run(**script)) == expected, name
    pauses.clear()
    assert tried(await run(a=[RateLimitedError("429", retry_after=3.5), "ok"])) == "a A"
    assert pauses == [3.5]


async def test_the_error_of_a_failed_chain_names_each_candidate_with_its_reason() -> None:
    no, both = UnsupportedError("no"), [model("a"), model("a", backend="hosted")]
    there = Scripted(Clock(), local=False, a=no)
    larger = "larger: it is no smaller than large, which does not fit into memory"
    cases = [
        ([model("a")], "a failed: no"),
        (both, "all 2 candidates failed: a by scripted, a by hosted: no"),
        ([model("large", 9), model("larger", 10)], f"all 2 candidates failed: large: 9 bytes; {larger}"),
    ]
    for candidates, expected in cases:
        here = Scripted(Clock(), a=no, large=OutOfMemoryError("9 bytes"))
        assert str((await chain(candidates, here, there).run()).error) == expected


async def test_after_out_of_memory_only_models_that_may_fit_are_tried() -> None:
    cases: list[tuple[list[Candidate], str]] = [
        ([model("large", 9), model("larger", 10), model("same", 9), model("small", 3)], "large SMALL"),
        ([model("large", 9), model("unknown")], "large UNKNOWN"),
        ([model("large", 9), model("large", 9, "hosted")], "large LARGE"),
        ([model("large"), model("large", backend="other")], "large"),
    ]
    for candidates, expected in cases:
        clock = Clock()
        other = Scripted(clock, large="ok")
        other.name = "other"
        here = Scripted(clock, large=OutOfMemoryError(""), small="ok", unknown="ok")
        done = await chain(candidates, here, other, Scripted(clock, local=False, large="ok")).run()
        assert tried(done) == expected


async def test_after_a_model_that_is_not_for_the_input_the_next_of_its_purpose_is_tried() -> None:
    clock, names = Clock(), ("french", "popular", "german")
    refusals = {name: UnsupportedError("not for this language") for name in names}
    candidates = [*map(model, names), model("french", backend="hosted")]
    both = Scripted(clock, **refusals), Scripted(clock, local=False, **refusals)
    points = {name: {"purpose": 0.0 if name == "popular" else 5.0} for name in names}
    for factors, order in ((points, "french german popular french"), ({}, "french popular german french")):
        attempts = chain(candidates, *both, clock=clock)
        attempts.selection = attempts.selection.model_copy(update={"factors": factors})
        for backend in both:
            backend._script = {name: iter([error]) for name, error in refusals.items()}
        assert tried(await attempts.run()).split() == order.split()


async def test_the_time_of_a_task_is_shared_between_its_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits of the attempts, in seconds, with a task_timeout of 300."""
    seen: list[float] = []

    async def record(seconds: float, work: Any, *_: Any) -> Any:
        seen.append(round(seconds, 1))
        return await work

    monkeypatch.setattr(fallback, "run_with_timeout", record)
    late, later = (200.0, AttemptTimeoutError("late")), (66.0, AttemptTimeoutError("late"))
    cases: dict[str, tuple[dict[str, Any], list[float]]] = {
        "a late candidate leaves a third": ({"a": late, "b": later, "c": "ok"}, [200.0, 66.7, 30.6]),
        "the only candidate": ({"a": "ok"}, [240.0]),
        "a retry": ({"a": [(90.0, TransientError("")), "ok"], "b": "ok"}, [200.0, 110.0]),
        "no retry after a slow failure": ({"a": (101.0, TransientError("")), "b": "ok"}, [200.0, 179.1]),
    }
    for name, (script, expected) in cases.items():
        seen.clear()
        await run({"task_timeout": 300}, **script)
        assert seen == expected, name


async def test_a_candidate_that_hangs_is_cancelled(loop_time: LoopTime) -> None:
    done = await run({"task_timeout": 60}, a="hang", b="ok")
    assert tried(done) == "a B"
    assert "a did not finish within 40 s. What helps: JARVIS_TASK_TIMEOUT" in (done.attempts[0].error or "")


async def test_a_cancelled_attempt_is_recorded(loop_time: LoopTime) -> None:
    clock = Clock()
    cancelled = chain([model("a")], Scripted(clock, a="hang"))
    running = asyncio.create_task(cancelled.run())
    await asyncio.sleep(1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [attempt.error for attempt in cancelled.task_call.attempts] == ["cancelled"]


@pytest.mark.parametrize("place", ["model", "adapter"])
async def test_files_that_a_thread_writes_after_its_attempt_are_removed(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop_time: LoopTime
) -> None:
    """A thread cannot be cancelled, so it may write when its attempt is over."""
    let_go, ended, refused = threading.Event(), threading.Event(), threading.Event()

    def write_late(call: Call) -> None:
        path = call.new_path(".txt")
        loop_time.skip(1000)
        let_go.wait(20)
        path.write_text("late")
        try:
            call.new_path(".txt")
        except JarvisError:
            refused.set()

    cleanup = AttemptFiles.cleanup

    def cleaned(files: AttemptFiles) -> None:
        cleanup(files)
        if let_go.is_set():
            ended.set()

    monkeypatch.setattr(AttemptFiles, "cleanup", cleaned)
    pool = ModelPool(10**9)
    backend = ScriptedLocal(lambda _: write_late, pool) if place == "model" else Scripted(Clock(), a="ok")
    new_path = RunDirectory(Settings(), tmp_path).new_path
    late = chain([model("a", backend=backend.name)], backend, new_path=new_path)
    if place == "adapter":
        monkeypatch.setattr(fallback, "adapt", lambda spec, raw, call: write_late(call))
    assert tried(await late.run()) == "a"
    let_go.set()
    assert await asyncio.to_thread(ended.wait, 120)
    assert refused.is_set()
    assert not await asyncio.to_thread(lambda: list(tmp_path.iterdir()))
    await pool.close()
