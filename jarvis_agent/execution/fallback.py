"""HFTaskRunner: select the models of a task, and try them in order until one succeeds.

`ERROR_POLICIES` (core/errors.py) decides what follows an error, unless `fallback_on` is set. The methods of
FallbackChain stand in the order in which they are called. A task is a tool run of LangChain's callbacks
below the agent's run, and each attempt at it is a chain run below the task.

Time: a candidate may use two thirds of what is left of `task_timeout`, the last one nearly all of it, and
none more than `attempt_timeout`. Retries start in the first half of that.
"""

import asyncio
import errno
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self

from langchain_core.callbacks import AsyncCallbackManager
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import (
    ensure_config,
    get_async_callback_manager_for_config,
    patch_config,
    var_child_runnable_config,
)
from pydantic import TypeAdapter
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception
from tenacity.wait import wait_random_exponential

from jarvis_agent.backends.base import Backend, Call
from jarvis_agent.backends.outputs.adapters import adapt
from jarvis_agent.core.concurrency import run_with_timeout
from jarvis_agent.core.context import RunContext
from jarvis_agent.core.errors import (
    AllCandidatesFailedError,
    AttemptTimeoutError,
    BudgetError,
    ConfigError,
    DeadlineError,
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
from jarvis_agent.core.notes import Note, limit_of
from jarvis_agent.core.tasks.registry import find_task
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Attempt, Candidate, Resource, Selection, Task, TaskResult
from jarvis_agent.execution.inputs import TaskCall
from jarvis_agent.media.run_directory import AttemptFiles
from jarvis_agent.selection.model_registry import ModelRegistry
from jarvis_agent.selection.placement import runs_here
from jarvis_agent.selection.store import Outcome, open_store

logger = logging.getLogger(__name__)

_DISK_FULL = {errno.ENOSPC, errno.EDQUOT}
_FREE_DISK = "free space on that disk, or move the results (JARVIS_OUTPUT_DIR) or the models (HF_HOME)"

_TIME_SHARE, _LAST_TIME_SHARE = 2 / 3, 0.9
"""Share of a task's remaining time for a candidate, and for the last one."""

RETRIES = 2
"""Further tries of one candidate after transient failures."""

_MAX_WAIT_S = 30.0
"""Longest wait that a provider may ask for, in seconds."""

_JSON: TypeAdapter[Any] = TypeAdapter(Any)

_backoff = wait_random_exponential(multiplier=0.5, max=8.0)


@dataclass(frozen=True, slots=True)
class HFTaskRunner:
    """Runs a task type of the Hub on the models of a registry."""

    spec: TaskSpec
    registry: ModelRegistry

    def __deepcopy__(self, memo: Any) -> Self:
        """This runner: copies of a tool share its loaded models."""
        return self

    async def select(self, task: Task, context: RunContext) -> Selection:
        """Choose the model. Raises NoCandidateError, whose message says what would help."""
        return await self.registry.selector.select(task, self.spec, context)

    async def run(self, selection: Selection | None, call: TaskCall) -> TaskResult:
        """Run the candidates of a selection until one succeeds, as a tool run. A failure is in the result."""
        task, config = call.task, call.context.config
        if (manager := _manager(config)) is None:
            return await self.run_candidates(selection, call, config)
        manager.add_metadata({"jarvis_task_id": task.id}, inherit=False)
        inputs = _to_plain(dict(call.inputs))
        shown = json.dumps(inputs, ensure_ascii=False)
        run = await manager.on_tool_start({"name": task.task}, shown, name=task.task, inputs=inputs)
        try:
            child = patch_config(config, callbacks=run.get_child())
            result = await self.run_candidates(selection, call, child)
        except BaseException as error:  # a cancelled task has ended too
            await run.on_tool_error(error)
            raise
        if result.status == "ok":
            artifact = {"output": result.output, "resources": result.resources, "model": result.model}
            await run.on_tool_end(_to_plain(artifact))
        else:
            await run.on_tool_error(ExpertError(result.error or result.status))
        return result

    async def run_candidates(
        self, selection: Selection | None, call: TaskCall, config: RunnableConfig | None
    ) -> TaskResult:
        """The candidates in turn, with the config of the tool run, if there is one."""
        selection = selection or await self.select(call.task, call.context)
        # A selection may name a similar task type.
        registry, spec = self.registry, (find_task(selection.task or "") or self.spec)
        chain = FallbackChain(call, spec, selection, registry.backends, config, registry.fallback_on)
        return await chain.run()


@dataclass(slots=True)
class FallbackChain:
    """The candidates of one task, in the order of `selection`."""

    task_call: TaskCall
    """Every attempt is appended to it, also if the chain is cancelled."""
    spec: TaskSpec
    selection: Selection
    backends: Mapping[str, Backend]
    config: RunnableConfig | None = None
    fallback_on: FallbackOn | None = None
    """The errors after which the next candidate is tried; None: by ERROR_POLICIES."""
    _outcomes: list[Outcome] = field(default_factory=list)

    async def run(self) -> TaskResult:
        """Run the candidates in order, and record how each did. A failure is in the result."""
        outcome: dict[str, Any]
        try:
            outcome = {"status": "ok", **await self._try_candidates()}
        except JarvisError as error:
            outcome = {"status": "failed", "error": error.note, "failure": error.kind}
        finally:
            store = open_store()
            if store.path is not None and self._outcomes:
                await asyncio.to_thread(store.record, self._outcomes)
        call = self.task_call
        return TaskResult(task=call.task, selection=self.selection, attempts=call.attempts, **outcome)

    async def _try_candidates(self) -> dict[str, Any]:
        """Output, resources and notes of the first candidate that succeeds. Raises JarvisError."""
        task_call, clock = self.task_call, self.task_call.context.clock
        settings = task_call.settings.model_copy(update={"seed": task_call.seed})
        inputs = {name: value for name, value in task_call.inputs.items() if self.spec.arg(name) is not None}
        purpose = task_call.task.purpose
        deadline = clock() + settings.task_timeout
        failures: list[tuple[Candidate, JarvisError]] = []
        remaining = list(self.selection.candidates)
        while remaining:
            candidate = remaining.pop(0)
            share = (_TIME_SHARE if remaining else _LAST_TIME_SHARE) * (deadline - clock())
            call = Call(self.spec, candidate, inputs, task_call.new_path, settings, purpose=purpose)
            try:
                output, resources = await self._run_candidate(call, min(share, settings.attempt_timeout))
            except JarvisError as error:
                if not self._falls_back(error):
                    raise
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
                if failures and self.selection.chosen_by == "own":
                    note = "{model} did this, since {other} failed"
                    call.notes.insert(0, Note(note, model=candidate.id, other=failures[0][0].id))
                return {"output": output, "resources": resources, "notes": call.notes}
        raise _all_failed(self.spec, failures)

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
        clock = self.task_call.context.clock
        began = clock()

        def gives_up(state: RetryCallState) -> bool:
            # After a slow failure the remaining time belongs to the next candidate.
            is_late = clock() + state.upcoming_sleep - began > seconds / 2
            return is_late or state.attempt_number > RETRIES

        retrying = AsyncRetrying(
            retry=retry_if_exception(_is_retryable), stop=gives_up, wait=_pause, reraise=True
        )
        return await retrying(self._trace_attempt, call, began + seconds)

    async def _trace_attempt(self, call: Call, ends: float) -> tuple[Any, list[Resource]]:
        """Run one attempt as a chain run, below which a chat model that it calls is traced and counted."""
        clock, model, manager = self.task_call.context.clock, call.candidate, _manager(self.config)
        if manager is None:
            with _parent(ensure_config(self.config)):
                return await self._run_attempt(call, ends - clock())
        metadata = {"ls_model_name": model.id, "task": self.spec.name, "backend": model.backend}
        metadata["ls_provider"] = model.backend if model.local or not model.providers else model.providers[0]
        manager.add_metadata(metadata, inherit=False)
        run = await manager.on_chain_start(None, _to_plain(dict(call.inputs)), name=model.id)
        try:
            with _parent(patch_config(self.config, callbacks=run.get_child())):
                output, resources = await self._run_attempt(call, ends - clock())
        except BaseException as error:
            await run.on_chain_error(error)
            raise
        await run.on_chain_end(_to_plain({"output": output, "resources": resources, **call.trace}))
        return output, resources

    async def _run_attempt(self, call: Call, seconds: float) -> tuple[Any, list[Resource]]:
        """Run one attempt. It is recorded however it ends."""
        clock, model, task = self.task_call.context.clock, call.candidate, self.spec.name
        started = clock()
        backend_name = model.backend or ""
        error: str | None = "cancelled"
        error_class: str | None = None
        files = AttemptFiles(call.new_path)
        call = replace(call, new_path=files.new_path, cleanup=files.cleanup)  # it shares notes and trace
        call.trace.clear()
        backend = self.backends.get(backend_name)
        try:
            if backend is not None and not runs_here(backend, model):
                self.task_call.context.reserve_hosted(task, model.id)
            result = await self._run_in_time(call, seconds)
        except JarvisError as failure:
            error, error_class = failure.note, failure.kind
            raise
        else:
            error = None
            return result
        finally:
            if error is not None:
                files.rollback()
            if error is None or error_class:
                self._outcomes.append(Outcome(model.id, task, error_class, clock() - started))
            self.task_call.attempts.append(
                Attempt(
                    model=model.id,
                    backend=backend_name,
                    endpoint=call.trace.get("endpoint"),
                    revision=model.revision,
                    seed=call.settings.seed,
                    started=started,
                    ended=clock(),
                    error=error,
                )
            )

    async def _run_in_time(self, call: Call, seconds: float) -> tuple[Any, list[Resource]]:
        """The candidate's adapted result. Every failure is raised as a JarvisError."""
        model = call.candidate.id
        try:
            limit = limit_of("JARVIS_TASK_TIMEOUT")
            return await run_with_timeout(seconds, self._run_backend(call), model, limit)
        except DeadlineError as timeout:
            raise AttemptTimeoutError(timeout.note) from timeout
        except TimeoutError as failure:
            raise TransientError(describe_error(failure)) from failure
        except JarvisError:
            raise
        except Exception as failure:
            # An error of a model's library is this candidate's failure, not the run's.
            log_error(logger, f"{model} failed at {self.spec.name}", failure)
            is_full = isinstance(failure, OSError) and failure.errno in _DISK_FULL
            name, helps = type(failure).__name__, _FREE_DISK if is_full else ()
            raise ExpertError(name, detail=failure, advice=helps) from failure

    async def _run_backend(self, call: Call) -> tuple[Any, list[Resource]]:
        """The backend's adapted output. After a timeout this may continue; its files are then deleted."""
        backend = self.backends.get(call.candidate.backend or "")
        if backend is None:
            wanted = call.candidate.backend
            raise ConfigError(f"{call.candidate.id} needs the backend {wanted!r}, which is not installed")

        def adapted(raw: Any) -> tuple[Any, list[Resource]]:  # its thread may outlive the attempt
            try:
                return adapt(self.spec, raw, call)
            finally:
                call.cleanup()

        try:
            return await asyncio.to_thread(adapted, await backend.run(call))
        finally:
            call.cleanup()


@contextmanager
def _parent(config: RunnableConfig | None) -> Iterator[None]:
    """Within the block, `config` is that of the parent of Runnables that are called without one."""
    token = var_child_runnable_config.set(config)
    try:
        yield
    finally:
        var_child_runnable_config.reset(token)


def _manager(config: RunnableConfig | None) -> AsyncCallbackManager | None:
    """The callback manager, or None if no handler listens to chains or tools."""
    manager = get_async_callback_manager_for_config(ensure_config(config))
    listening = any(not (handler.ignore_agent and handler.ignore_chain) for handler in manager.handlers)
    return manager if listening else None


def _to_plain(value: Any) -> Any:
    """The value as plain JSON; values without a JSON form become text."""
    return _JSON.dump_python(value, mode="json", fallback=str, exclude_none=True)


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
        return NoCandidateError("no model is left for {task}", task=spec.name)
    is_over_budget = any(isinstance(error, BudgetError) for _, error in failures)
    error_class = BudgetError if is_over_budget else AllCandidatesFailedError
    ids = [candidate.id for candidate, _ in failures]
    if len(failures) == 1:
        return error_class("{model} failed: {reason}", model=ids[0], reason=failures[0][1].note)
    reasons: dict[Note, list[str]] = {}
    for model, error in failures:
        # A model with two backends is listed with their names.
        name = f"{model.id} by {model.backend}" if ids.count(model.id) > 1 else model.id
        reasons.setdefault(error.note, []).append(name)
    details = [
        Note("{model}: {reason}", model=", ".join(names), reason=reason) for reason, names in reasons.items()
    ]
    return error_class("all {number} candidates failed: {reasons}", number=len(failures), reasons=details)
