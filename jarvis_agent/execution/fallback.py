"""FallbackChain: try the candidates of one task in order until one succeeds.

    done = await FallbackChain(spec, selection, backends, settings, new_path, clock).run(inputs)
    done.output, done.error, done.attempts

`ERROR_POLICIES` (core/errors.py) decides what follows an error, unless `fallback_on` is set. The methods call
one another: `run`, `_try_candidates`, `_run_candidate`, `_run_attempt`, `_run_in_time`, `_run_backend`.

Time: a candidate may use two thirds of what is left of `task_timeout`, the last one nearly all of it, and
none more than `attempt_timeout`. Retries start in the first half of that.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception
from tenacity.wait import wait_random_exponential

from jarvis_agent.backends import circuit_breaker
from jarvis_agent.backends.base import Backend, Call
from jarvis_agent.backends.outputs.adapters import adapt
from jarvis_agent.core.concurrency import StageTimeoutError, run_with_timeout
from jarvis_agent.core.errors import (
    AllCandidatesFailedError,
    AttemptTimeoutError,
    BudgetError,
    ConfigError,
    ExpertError,
    FallbackOn,
    JarvisError,
    NoCandidateError,
    OutOfMemoryError,
    RateLimitedError,
    TransientError,
    UnsupportedError,
    describe_error,
    log_error,
    policy_for,
)
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Attempt, Candidate, Resource, Selection
from jarvis_agent.execution.callbacks import run_as_child
from jarvis_agent.selection.placement import runs_here
from jarvis_agent.selection.store import Outcome, open_store

logger = logging.getLogger(__name__)

_DISK_FULL = {errno.ENOSPC, errno.EDQUOT}
_FREE_DISK = "; free space on that disk, or move the results (JARVIS_OUTPUT_DIR) or the models (HF_HOME)"

_TIME_SHARE, _LAST_TIME_SHARE = 2 / 3, 0.9
"""Share of a task's remaining time for a candidate, and for the last one."""

_MAX_WAIT_S = 30.0
"""Longest wait that a provider may ask for, in seconds."""

_backoff = wait_random_exponential(multiplier=0.5, max=8.0)


@dataclass(frozen=True, slots=True)
class FallbackResult:
    """`output`, `resources` and `notes` of the candidate that succeeded, or `error`; and every attempt."""

    attempts: list[Attempt]
    output: Any = None
    resources: list[Resource] = field(default_factory=list)
    error: JarvisError | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class FallbackChain:
    """The candidates of one task, in the order of `selection`.

    Attributes:
        new_path: returns an output path for a suffix.
        clock: seconds since the run began.
        hints: facts about the request for the backends.
        attempts: every attempt is appended here, also if the chain is cancelled.
        config: LangChain config for the attempts' runs.
        fallback_on: the errors after which the next candidate is tried; None: by ERROR_POLICIES.
        reserve_hosted: called with the task and the model before each hosted call; raises BudgetError.
    """

    spec: TaskSpec
    selection: Selection
    backends: Mapping[str, Backend]
    settings: Settings
    new_path: Callable[[str], Path]
    clock: Callable[[], float]
    hints: Mapping[str, Any] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    config: RunnableConfig | None = None
    fallback_on: FallbackOn | None = None
    reserve_hosted: Callable[[str, str], None] = lambda task, model: None
    _outcomes: list[Outcome] = field(default_factory=list)

    async def run(self, inputs: Mapping[str, Any]) -> FallbackResult:
        """Run the candidates in order, and record how each did. `inputs` are the task's bound arguments."""
        try:
            return await self._try_candidates(inputs)
        finally:
            store = open_store(self.settings)
            if store.path is not None and self._outcomes:
                await asyncio.to_thread(store.record, self._outcomes)

    async def _try_candidates(self, inputs: Mapping[str, Any]) -> FallbackResult:
        deadline = self.clock() + self.settings.task_timeout
        failures: list[tuple[Candidate, JarvisError]] = []
        remaining = list(self.selection.candidates)
        while remaining:
            candidate = remaining.pop(0)
            share = (_TIME_SHARE if remaining else _LAST_TIME_SHARE) * (deadline - self.clock())
            call = Call(self.spec, candidate, inputs, self.new_path, self.settings, self.hints)
            try:
                output, resources = await self._run_candidate(call, min(share, self.settings.attempt_timeout))
            except JarvisError as error:
                if not self._falls_back(error):
                    return FallbackResult(self.attempts, error=error)
                failures.append((candidate, error))
                if policy_for(error).fallback == "smaller":
                    skipped = [other for other in remaining if self._is_as_large(other, candidate)]
                    why = f"it is no smaller than {candidate.id}, which does not fit into memory"
                    failures += [(other, OutOfMemoryError(why)) for other in skipped]
                    remaining = [other for other in remaining if other not in skipped]
                elif isinstance(error, UnsupportedError):
                    # This model is not for the input; another one for the same purpose may be.
                    fit = {name: points.get("purpose", 0) for name, points in self.selection.factors.items()}
                    failed = {model.id for model, _ in failures}
                    remaining.sort(key=lambda model: (model.id in failed, -fit.get(model.id, 0)))
            else:
                return FallbackResult(self.attempts, output, resources, notes=call.notes)
        return FallbackResult(self.attempts, error=_all_failed(self.spec, failures))

    def _falls_back(self, error: JarvisError) -> bool:
        """Whether another candidate is tried after an error."""
        if self.fallback_on is None:
            return policy_for(error).fallback != "none"
        if isinstance(self.fallback_on, type | tuple):
            return isinstance(error, self.fallback_on)
        return self.fallback_on(error)

    def _is_as_large(self, candidate: Candidate, failed: Candidate) -> bool:
        """Whether a candidate needs at least the local memory of one that did not fit."""
        backend = self.backends.get(candidate.backend or "")
        is_as_large = candidate.id == failed.id or bool(failed.size and (candidate.size or 0) >= failed.size)
        return is_as_large and backend is not None and runs_here(backend, candidate)

    async def _run_candidate(self, call: Call, seconds: float) -> tuple[Any, list[Resource]]:
        """Run one candidate, and retry it after transient failures."""
        began = self.clock()

        def gives_up(state: RetryCallState) -> bool:
            # After a slow failure the remaining time belongs to the next candidate.
            is_late = self.clock() + state.upcoming_sleep - began > seconds / 2
            return is_late or state.attempt_number > self.settings.retries

        model = call.candidate
        metadata = {"ls_model_name": model.id, "task": self.spec.name, "backend": model.backend}
        metadata["ls_provider"] = model.backend if model.local or not model.providers else model.providers[0]
        outputs: dict[str, Any] = {}  # filled by an attempt, then reported by `run_as_child`

        async def attempt() -> tuple[Any, list[Resource]]:
            output, resources = await self._run_attempt(call, seconds - (self.clock() - began))
            outputs.update(output=output, resources=resources, **call.trace)
            return output, resources

        retrying = AsyncRetrying(
            retry=retry_if_exception(_is_retryable), stop=gives_up, wait=_pause, reraise=True
        )
        return await retrying(run_as_child, self.config, model.id, call.inputs, attempt, outputs, metadata)

    async def _run_attempt(self, call: Call, seconds: float) -> tuple[Any, list[Resource]]:
        """Run one attempt. It is recorded however it ends, also if the circuit is open."""
        started, model, task = self.clock(), call.candidate, self.spec.name
        backend_name = model.backend or ""
        error: str | None = "cancelled"
        error_class: str | None = None
        files = AttemptFiles(call.new_path)
        call = replace(call, new_path=files.new_path, cleanup=files.cleanup)  # it shares notes and trace
        call.trace.clear()
        backend = self.backends.get(backend_name)
        try:
            if backend is not None and not runs_here(backend, model):
                self.reserve_hosted(task, model.id)
            async with circuit_breaker.shared.call((backend_name, model.id)):
                result = await self._run_in_time(call, seconds)
        except JarvisError as failure:
            error, error_class = str(failure), type(failure).__name__
            raise
        else:
            error = None
            return result
        finally:
            if error is not None:
                files.rollback()
            if error is None or error_class:
                duration = self.clock() - started
                self._outcomes.append(
                    Outcome(model.id, task, backend_name, model.revision, error_class, duration, model.size)
                )
            self.attempts.append(
                Attempt(
                    model=model.id,
                    backend=backend_name,
                    endpoint=call.trace.get("endpoint"),
                    revision=model.revision,
                    started=started,
                    ended=self.clock(),
                    error=error,
                )
            )

    async def _run_in_time(self, call: Call, seconds: float) -> tuple[Any, list[Resource]]:
        """The candidate's adapted result. Every failure is raised as a JarvisError."""
        model = call.candidate.id
        try:
            return await run_with_timeout(seconds, self._run_backend(call), model)
        except StageTimeoutError as timeout:
            limit = f"{seconds:.3g} s (see JARVIS_TASK_TIMEOUT)"
            raise AttemptTimeoutError(f"{model} did not finish within {limit}") from timeout
        except TimeoutError as failure:
            raise TransientError(describe_error(failure)) from failure
        except JarvisError:
            raise
        except Exception as failure:
            # An error of a model's library is this candidate's failure, not the run's.
            log_error(logger, f"{model} failed at {self.spec.name}", failure)
            hint = _FREE_DISK if isinstance(failure, OSError) and failure.errno in _DISK_FULL else ""
            raise ExpertError(describe_error(failure) + hint) from failure

    async def _run_backend(self, call: Call) -> tuple[Any, list[Resource]]:
        """The backend's adapted output. After a timeout this may continue; its files are then deleted."""
        backend = self.backends.get(call.candidate.backend or "")
        if backend is None:
            wanted = call.candidate.backend
            raise ConfigError(f"{call.candidate.id} needs the backend {wanted!r}, which is not installed")
        try:
            raw = await backend.run(call)
            return await asyncio.to_thread(_adapt, self.spec, raw, call)
        finally:
            call.cleanup()


def _adapt(spec: TaskSpec, raw: Any, call: Call) -> tuple[Any, list[Resource]]:
    """`adapt` in a thread that may outlive its attempt."""
    try:
        return adapt(spec, raw, call)
    finally:
        call.cleanup()


def _is_retryable(error: BaseException) -> bool:
    if isinstance(error, RateLimitedError) and (error.retry_after or 0) > _MAX_WAIT_S:
        return False
    return isinstance(error, JarvisError) and policy_for(error).retry


def _pause(state: RetryCallState) -> float:
    """Seconds until the next attempt: the provider's `retry_after`, else exponential with jitter."""
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, RateLimitedError) and error.retry_after is not None:
        return error.retry_after
    return _backoff(state)


def _all_failed(spec: TaskSpec, failures: Sequence[tuple[Candidate, JarvisError]]) -> JarvisError:
    """The error of a chain in which every candidate failed: a BudgetError if the budget refused one."""
    if not failures:
        return NoCandidateError(f"no model is left for {spec.name}")
    is_over_budget = any(isinstance(error, BudgetError) for _, error in failures)
    error_class = BudgetError if is_over_budget else AllCandidatesFailedError
    ids = [candidate.id for candidate, _ in failures]
    if len(failures) == 1:
        return error_class(f"{ids[0]} failed: {failures[0][1]}")
    reasons: dict[str, list[str]] = {}
    for model, error in failures:
        # A model with two backends is listed with their names.
        name = f"{model.id} by {model.backend}" if ids.count(model.id) > 1 else model.id
        reasons.setdefault(str(error), []).append(name)
    details = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
    return error_class(f"all {len(failures)} candidates failed: {details}")


class AttemptFiles:
    """Thread-safe list of the paths that one attempt was given.

        files = AttemptFiles(call.new_path)
        path = files.new_path(".png")
        files.rollback()                # the attempt failed: delete its files, refuse new ones

    A thread cannot be cancelled. An abandoned one gets no further paths, and calls `cleanup` at its end.
    """

    def __init__(self, new_path: Callable[[str], Path]) -> None:
        """`new_path` returns an unused path for a suffix."""
        self._new_path = new_path
        self._paths: list[Path] = []
        self._is_over = False
        self._lock = threading.Lock()

    def new_path(self, suffix: str) -> Path:
        """A path for a file of this attempt.

        Raises:
            AttemptTimeoutError: the attempt is over.
        """
        # Outside the lock: this may wait for a disk, and `rollback` must not wait.
        path = self._new_path(suffix)
        with self._lock:
            if self._is_over:
                raise AttemptTimeoutError("the attempt is over, so it writes no further file")
            self._paths.append(path)
        return path

    def rollback(self) -> None:
        """End the attempt and delete its files, complete or partial."""
        with self._lock:
            self._is_over = True
        self.cleanup()

    def cleanup(self) -> None:
        """Delete the files if the attempt was rolled back; otherwise do nothing."""
        with self._lock:
            paths = list(self._paths) if self._is_over else []
        for path in paths:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                logger.warning("cannot delete %s of a failed attempt: %s", path, describe_error(error))
