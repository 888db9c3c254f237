"""Climb down a ladder of candidates until one gives a result.

One candidate is tried again after a transient failure, with growing, jittered pauses; then comes the next
candidate. An input that is itself at fault ends the climb: no other model could do better with it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt
from tenacity.wait import wait_random_exponential

from jarvis_agent.backends.base import Backend, Call
from jarvis_agent.errors import (
    BadInputError,
    ConfigError,
    ExpertError,
    InputError,
    JarvisError,
    NoCandidateError,
    RateLimitedError,
    TransientError,
    in_words,
)
from jarvis_agent.settings import Settings
from jarvis_agent.tools.adapters import adapt
from jarvis_agent.tools.spec import TaskSpec
from jarvis_agent.types import Attempt, Candidate, Resource, Selection

logger = logging.getLogger(__name__)

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
_MAKE_ROOM = "; make room on that disk, or move the results (JARVIS_OUTPUT_DIR) or the models (HF_HOME)"

_backoff = wait_random_exponential(multiplier=0.5, max=8.0)


@dataclass(frozen=True, slots=True)
class Climb:
    """What came of it: `output` and `resources`, or `error`; and every attempt on the way."""

    attempts: list[Attempt]
    output: Any = None
    resources: list[Resource] = field(default_factory=list)
    error: JarvisError | None = None


@dataclass(slots=True)
class Ladder:
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

    async def climb(self, inputs: Mapping[str, Any]) -> Climb:
        """Try the candidates in their order with these inputs; never raises an ExpertError."""
        failures: dict[str, JarvisError] = {}
        for candidate in self.selection.ladder:
            call = Call(self.spec, candidate, inputs, self.new_path, self.settings, self.hints)
            try:
                output, resources = await self._try_patiently(call)
            except (BadInputError, InputError) as error:
                return Climb(self.attempts, error=error)
            except (ExpertError, ConfigError) as error:
                failures[candidate.id] = error
                continue
            return Climb(self.attempts, output, resources)
        return Climb(self.attempts, error=_exhausted(self.spec, failures))

    async def _try_patiently(self, call: Call) -> tuple[Any, list[Resource]]:
        """One candidate, with further tries after transient failures."""
        async for attempt in AsyncRetrying(
            retry=retry_if_exception(self._worth_waiting),
            stop=stop_after_attempt(self.settings.retries + 1),
            wait=_pause,
            reraise=True,
        ):
            with attempt:
                return await self._try_once(call)
        raise AssertionError("tenacity returns or raises")

    def _worth_waiting(self, error: BaseException) -> bool:
        if isinstance(error, RateLimitedError) and (error.retry_after or 0) > self.settings.max_wait:
            return False
        return isinstance(error, TransientError)

    async def _try_once(self, call: Call) -> tuple[Any, list[Resource]]:
        """One attempt, which is recorded however it ends."""
        started = self.clock()
        error: str | None = "cancelled"
        limit = asyncio.timeout(self.settings.attempt_timeout)
        try:
            async with limit:
                raw = await self._backend(call.candidate).run(call)
                result = await asyncio.to_thread(adapt, self.spec, raw, call)
        except TimeoutError as late:
            if not limit.expired():
                error = in_words(late)
                raise TransientError(error) from late
            error = f"did not finish within {self.settings.attempt_timeout:g} s"
            raise ExpertError(f"{call.candidate.id} {error}") from late
        except JarvisError as failure:
            error = str(failure)
            raise
        except Exception as failure:
            # Whatever a model's library raises is this candidate's failure, not the run's.
            logger.warning("%s failed at %s", call.candidate.id, self.spec.name, exc_info=True)
            error = in_words(failure)
            if isinstance(failure, OSError) and failure.errno in _NO_ROOM:
                error += _MAKE_ROOM
            raise ExpertError(error) from failure
        else:
            error = None
            return result
        finally:
            self.attempts.append(
                Attempt(
                    model=call.candidate.id,
                    backend=call.candidate.backend or "",
                    started=started,
                    ended=self.clock(),
                    error=error,
                )
            )

    def _backend(self, candidate: Candidate) -> Backend:
        backend = self.backends.get(candidate.backend or "")
        if backend is None:
            raise ConfigError(f"{candidate.id} wants the backend {candidate.backend!r}, which is not there")
        return backend


def _pause(state: RetryCallState) -> float:
    """Seconds until the next try: what the provider asked for, else exponential with jitter."""
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, RateLimitedError) and error.retry_after is not None:
        return error.retry_after
    return _backoff(state)


def _exhausted(spec: TaskSpec, failures: Mapping[str, JarvisError]) -> JarvisError:
    """One error for a ladder on which every candidate failed."""
    if not failures:
        return NoCandidateError(f"no model is left for {spec.name}")
    if len(failures) == 1:
        model, error = next(iter(failures.items()))
        return ExpertError(f"{model} failed: {error}")
    told = "; ".join(f"{model}: {error}" for model, error in failures.items())
    return ExpertError(f"all {len(failures)} candidates failed: {told}")
