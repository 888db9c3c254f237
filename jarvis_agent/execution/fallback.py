"""Climb down a ladder of candidates until one gives a result.

One candidate is tried again after a transient failure, with growing, jittered pauses; then comes the next
candidate. Where one does not fit into memory, those that are no smaller are left out on this machine. An
input that is itself at fault ends the climb: no other model could do better with it. One that keeps failing,
in this run or others, is passed over for a while (jarvis_agent.backends.circuit_breaker).

What follows which error is one table: `jarvis_agent.core.errors.ERROR_POLICIES`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

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
from jarvis_agent.selection.placement import runs_here

logger = logging.getLogger(__name__)

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
_MAKE_ROOM = "; make room on that disk, or move the results (JARVIS_OUTPUT_DIR) or the models (HF_HOME)"

_backoff = wait_random_exponential(multiplier=0.5, max=8.0)


@dataclass(frozen=True, slots=True)
class FallbackResult:
    """What came of it: `output` and `resources`, or `error`; and every attempt on the way."""

    attempts: list[Attempt]
    output: Any = None
    resources: list[Resource] = field(default_factory=list)
    error: JarvisError | None = None


@dataclass(slots=True)
class FallbackChain:
    """The climb for one task.

    `clock` gives seconds since the run began; `backends` are by name, `new_path` makes output paths.
    """

    spec: TaskSpec
    selection: Selection
    backends: Mapping[str, Backend]
    settings: Settings
    new_path: Callable[[str], Path]
    clock: Callable[[], float]
    hints: Mapping[str, Any] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)

    async def climb(self, inputs: Mapping[str, Any]) -> FallbackResult:
        """Try the candidates in their order with these inputs; what goes wrong is in what it returns."""
        failures: list[tuple[Candidate, str]] = []
        rungs = list(self.selection.candidates)
        while rungs:
            candidate = rungs.pop(0)
            call = Call(self.spec, candidate, inputs, self.new_path, self.settings, self.hints)
            try:
                output, resources = await self._try_patiently(call)
            except JarvisError as error:
                others = policy_for(error).others
                if others == "none":
                    return FallbackResult(self.attempts, error=error)
                failures.append((candidate, str(error)))
                if others == "smaller":
                    skipped = [one for one in rungs if self._as_large(one, candidate)]
                    why = f"it is no smaller than {candidate.id}, which does not fit into memory"
                    failures += [(one, why) for one in skipped]
                    rungs = [one for one in rungs if one not in skipped]
            else:
                return FallbackResult(self.attempts, output, resources)
        return FallbackResult(self.attempts, error=_exhausted(self.spec, failures))

    def _as_large(self, candidate: Candidate, failed: Candidate) -> bool:
        """Whether a candidate needs as much of this machine's memory as one that did not fit."""
        backend = self.backends.get(candidate.backend or "")
        if backend is None or not runs_here(backend, candidate):
            return False
        return candidate.id == failed.id or bool(failed.size and (candidate.size or 0) >= failed.size)

    async def _try_patiently(self, call: Call) -> tuple[Any, list[Resource]]:
        """One candidate, with further tries after transient failures."""
        async for attempt in AsyncRetrying(
            retry=retry_if_exception(self._worth_waiting),
            # What took so long to fail would take the time that the next candidate needs.
            stop=stop_after_attempt(self.settings.retries + 1)
            | stop_after_delay(self.settings.attempt_timeout / 2),
            wait=_pause,
            reraise=True,
        ):
            with attempt:
                return await self._try_once(call)
        raise AssertionError("tenacity returns or raises")

    def _worth_waiting(self, error: BaseException) -> bool:
        if isinstance(error, RateLimitedError) and (error.retry_after or 0) > self.settings.max_wait:
            return False
        return isinstance(error, JarvisError) and policy_for(error).again

    async def _try_once(self, call: Call) -> tuple[Any, list[Resource]]:
        """One attempt, which is recorded however it ends, even where it is not made."""
        started = self.clock()
        error: str | None = "cancelled"
        drafts = AttemptFiles(call.new_path)
        try:
            with breaker.shared.call((call.candidate.backend or "", call.candidate.id)):
                result = await self._ask(replace(call, new_path=drafts.new_path, sweep=drafts.sweep))
        except JarvisError as failure:
            error = str(failure)
            raise
        else:
            error = None
            return result
        finally:
            if error is not None:
                drafts.discard()
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

    async def _ask(self, call: Call) -> tuple[Any, list[Resource]]:
        """The candidate's result, adapted. Whatever goes wrong is raised as a JarvisError."""
        seconds = self.settings.attempt_timeout
        try:
            return await run_with_timeout(seconds, self._made(call), call.candidate.id)
        except StageTimeoutError as late:
            limit = f"{seconds:g} s (JARVIS_ATTEMPT_TIMEOUT)"
            raise AttemptTimeoutError(f"{call.candidate.id} did not finish within {limit}") from late
        except TimeoutError as failure:
            raise TransientError(describe_error(failure)) from failure
        except JarvisError:
            raise
        except Exception as failure:
            # Whatever a model's library raises is this candidate's failure, not the run's.
            logger.warning(
                "%s failed at %s: %s", call.candidate.id, self.spec.name, format_traceback(failure)
            )
            more = _MAKE_ROOM if isinstance(failure, OSError) and failure.errno in _NO_ROOM else ""
            raise ExpertError(describe_error(failure) + more) from failure

    async def _made(self, call: Call) -> tuple[Any, list[Resource]]:
        """What the backend gives, adapted. It may go on when nobody waits for it any more."""
        try:
            raw = await self._backend(call.candidate).run(call)
            return await asyncio.to_thread(_adapted, self.spec, raw, call)
        finally:
            call.sweep()

    def _backend(self, candidate: Candidate) -> Backend:
        backend = self.backends.get(candidate.backend or "")
        if backend is None:
            raise ConfigError(f"{candidate.id} wants the backend {candidate.backend!r}, which is not there")
        return backend


def _adapted(spec: TaskSpec, raw: Any, call: Call) -> tuple[Any, list[Resource]]:
    """As `adapt`, in a thread that may be late."""
    try:
        return adapt(spec, raw, call)
    finally:
        call.sweep()


def _pause(state: RetryCallState) -> float:
    """Seconds until the next try: what the provider asked for, else exponential with jitter."""
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, RateLimitedError) and error.retry_after is not None:
        return error.retry_after
    return _backoff(state)


def _exhausted(spec: TaskSpec, failures: Sequence[tuple[Candidate, str]]) -> JarvisError:
    """One error for a ladder on which every candidate failed."""
    if not failures:
        return NoCandidateError(f"no model is left for {spec.name}")
    names = _names(candidate for candidate, _ in failures)
    if len(failures) == 1:
        return AllCandidatesFailedError(f"{names[0]} failed: {failures[0][1]}")
    told = "; ".join(f"{name}: {reason}" for name, (_, reason) in zip(names, failures, strict=True))
    return AllCandidatesFailedError(f"all {len(failures)} candidates failed: {told}")


def _names(candidates: Iterable[Candidate]) -> list[str]:
    """The models' ids, those that ran in two places with the names of both."""
    tried = list(candidates)
    ids = [candidate.id for candidate in tried]
    return [f"{one.id} by {one.backend}" if ids.count(one.id) > 1 else one.id for one in tried]
