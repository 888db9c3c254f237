"""FallbackChain: try the candidates of one task in order until one returns a result.

A transient failure is retried with exponential, jittered backoff; then the next candidate is tried. After
out-of-memory, candidates of the same size or larger are skipped on this machine. An error in the input ends
the chain. Candidates that fail repeatedly are skipped for a while (backends/circuit_breaker.py).

`jarvis_agent.core.errors.ERROR_POLICIES` is the table of what follows each error.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, stop_after_delay
from tenacity.wait import wait_random_exponential

from jarvis_agent.backends import circuit_breaker as breaker
from jarvis_agent.backends.base import Backend, Call
from jarvis_agent.backends.outputs.adapters import adapt
from jarvis_agent.core.concurrency import StageTimeoutError, run_with_timeout
from jarvis_agent.core.errors import (
    AllCandidatesFailedError,
    AttemptTimeoutError,
    ConfigError,
    ExpertError,
    JarvisError,
    NoCandidateError,
    RateLimitedError,
    TransientError,
    describe_error,
    format_traceback,
    policy_for,
)
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Attempt, Candidate, Resource, Selection
from jarvis_agent.execution.attempt_files import AttemptFiles
from jarvis_agent.execution.callbacks import run_as_child
from jarvis_agent.selection.placement import runs_here

logger = logging.getLogger(__name__)

_DISK_FULL = {errno.ENOSPC, errno.EDQUOT}
_FREE_DISK = "; free space on that disk, or move the results (JARVIS_OUTPUT_DIR) or the models (HF_HOME)"

_MAX_WAIT_S = 30.0
"""Longest wait that a provider may ask for, in seconds."""

_backoff = wait_random_exponential(multiplier=0.5, max=8.0)


@dataclass(frozen=True, slots=True)
class FallbackResult:
    """`output` and `resources` of the candidate that succeeded, or `error`; and every attempt."""

    attempts: list[Attempt]
    output: Any = None
    resources: list[Resource] = field(default_factory=list)
    error: JarvisError | None = None


@dataclass(slots=True)
class FallbackChain:
    """The candidates of one task.

    Attributes:
        spec: the task type.
        selection: the candidates in order.
        backends: by name.
        settings: limits on time and retries.
        new_path: returns an output path for a suffix.
        clock: seconds since the run began.
        hints: facts about the request for the backends.
        attempts: every attempt is appended here, also if the chain is cancelled.
        config: LangChain config for the attempts' runs.
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

    async def run(self, inputs: Mapping[str, Any]) -> FallbackResult:
        """Try the candidates in order. Errors are in the result."""
        failures: list[tuple[Candidate, str]] = []
        remaining = list(self.selection.candidates)
        while remaining:
            candidate = remaining.pop(0)
            call = Call(self.spec, candidate, inputs, self.new_path, self.settings, self.hints)
            try:
                output, resources = await self._retry(call)
            except JarvisError as error:
                others = policy_for(error).fallback
                if others == "none":
                    return FallbackResult(self.attempts, error=error)
                failures.append((candidate, str(error)))
                if others == "smaller":
                    skipped = [one for one in remaining if self._is_as_large(one, candidate)]
                    why = f"it is no smaller than {candidate.id}, which does not fit into memory"
                    failures += [(one, why) for one in skipped]
                    remaining = [one for one in remaining if one not in skipped]
            else:
                return FallbackResult(self.attempts, output, resources)
        return FallbackResult(self.attempts, error=_all_failed(self.spec, failures))

    def _is_as_large(self, candidate: Candidate, failed: Candidate) -> bool:
        """Whether a candidate needs at least the local memory of one that did not fit."""
        backend = self.backends.get(candidate.backend or "")
        if backend is None or not runs_here(backend, candidate):
            return False
        return candidate.id == failed.id or bool(failed.size and (candidate.size or 0) >= failed.size)

    async def _retry(self, call: Call) -> tuple[Any, list[Resource]]:
        """One candidate, retried after transient failures."""
        async for attempt in AsyncRetrying(
            retry=retry_if_exception(self._is_retryable),
            # After a slow failure the remaining time belongs to the next candidate.
            stop=stop_after_attempt(self.settings.retries + 1)
            | stop_after_delay(self.settings.attempt_timeout / 2),
            wait=_pause,
            reraise=True,
        ):
            with attempt:
                known = {"backend": call.candidate.backend, "task": self.spec.name}
                return await run_as_child(self.config, call.candidate.id, known, lambda: self._attempt(call))
        raise AssertionError("tenacity returns or raises")

    def _is_retryable(self, error: BaseException) -> bool:
        if isinstance(error, RateLimitedError) and (error.retry_after or 0) > _MAX_WAIT_S:
            return False
        return isinstance(error, JarvisError) and policy_for(error).retry

    async def _attempt(self, call: Call) -> tuple[Any, list[Resource]]:
        """One attempt. It is recorded however it ends, also if the circuit is open."""
        started = self.clock()
        error: str | None = "cancelled"
        files = AttemptFiles(call.new_path)
        try:
            with breaker.shared.call((call.candidate.backend or "", call.candidate.id)):
                result = await self._call(replace(call, new_path=files.new_path, sweep=files.cleanup))
        except JarvisError as failure:
            error = str(failure)
            raise
        else:
            error = None
            return result
        finally:
            if error is not None:
                files.rollback()
            self.attempts.append(
                Attempt(
                    model=call.candidate.id,
                    backend=call.candidate.backend or "",
                    revision=call.candidate.revision,
                    started=started,
                    ended=self.clock(),
                    error=error,
                )
            )

    async def _call(self, call: Call) -> tuple[Any, list[Resource]]:
        """The candidate's adapted result. Every failure is raised as a JarvisError."""
        seconds = self.settings.attempt_timeout
        try:
            return await run_with_timeout(seconds, self._call_backend(call), call.candidate.id)
        except StageTimeoutError as late:
            limit = f"{seconds:g} s (JARVIS_TASK_TIMEOUT)"
            raise AttemptTimeoutError(f"{call.candidate.id} did not finish within {limit}") from late
        except TimeoutError as failure:
            raise TransientError(describe_error(failure)) from failure
        except JarvisError:
            raise
        except Exception as failure:
            # An error of a model's library is this candidate's failure, not the run's.
            logger.warning(
                "%s failed at %s: %s", call.candidate.id, self.spec.name, format_traceback(failure)
            )
            more = _FREE_DISK if isinstance(failure, OSError) and failure.errno in _DISK_FULL else ""
            raise ExpertError(describe_error(failure) + more) from failure

    async def _call_backend(self, call: Call) -> tuple[Any, list[Resource]]:
        """The backend's adapted output. After a timeout this may continue; its files are then deleted."""
        backend = self.backends.get(call.candidate.backend or "")
        if backend is None:
            wanted = call.candidate.backend
            raise ConfigError(f"{call.candidate.id} needs the backend {wanted!r}, which is not installed")
        try:
            raw = await backend.run(call)
            return await asyncio.to_thread(_adapt, self.spec, raw, call)
        finally:
            call.sweep()


def _adapt(spec: TaskSpec, raw: Any, call: Call) -> tuple[Any, list[Resource]]:
    """`adapt` in a thread that may outlive its attempt."""
    try:
        return adapt(spec, raw, call)
    finally:
        call.sweep()


def _pause(state: RetryCallState) -> float:
    """Seconds until the next attempt: the provider's `retry_after`, else exponential with jitter."""
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, RateLimitedError) and error.retry_after is not None:
        return error.retry_after
    return _backoff(state)


def _all_failed(spec: TaskSpec, failures: Sequence[tuple[Candidate, str]]) -> JarvisError:
    """One error for a chain in which every candidate failed."""
    if not failures:
        return NoCandidateError(f"no model is left for {spec.name}")
    names = _names(candidate for candidate, _ in failures)
    if len(failures) == 1:
        return AllCandidatesFailedError(f"{names[0]} failed: {failures[0][1]}")
    reasons = "; ".join(f"{name}: {reason}" for name, (_, reason) in zip(names, failures, strict=True))
    return AllCandidatesFailedError(f"all {len(failures)} candidates failed: {reasons}")


def _names(candidates: Iterable[Candidate]) -> list[str]:
    """The models' ids; a model with two backends is listed with both names."""
    tried = list(candidates)
    ids = [candidate.id for candidate in tried]
    return [f"{one.id} by {one.backend}" if ids.count(one.id) > 1 else one.id for one in tried]
