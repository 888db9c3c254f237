"""Executor: runs the tasks of a plan as a dependency graph, one coroutine per task.

Each coroutine awaits the futures of its dependencies: no polling, no barrier. Tasks can be added while others
run, so execution starts while the planner still writes.

    async with Executor(runners, store, context, settings, emit) as executor:
        executor.add(task)
        results = await executor.join(plan.tasks)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Protocol, Self

from jarvis_agent.core.concurrency import StageTimeoutError, cancel_and_wait, run_with_timeout
from jarvis_agent.core.errors import (
    DeadlineError,
    JarvisError,
    NoCandidateError,
    describe_error,
    format_traceback,
)
from jarvis_agent.core.references import refs_in
from jarvis_agent.core.request import RunContext
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Attempt, Selection, Status, Task, TaskResult
from jarvis_agent.execution.inputs import bind_inputs
from jarvis_agent.execution.run import Event
from jarvis_agent.media.store import ResourceStore

logger = logging.getLogger(__name__)

Emit = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class TaskCall:
    """A task whose inputs are bound.

    Attributes:
        task: the task of the plan, with references.
        inputs: its arguments with references replaced: a `Resource` for media, text, or plain JSON.
        context: the request it belongs to.
        new_path: returns an output path for a suffix.
        clock: seconds since the run began.
        settings: limits and policies.
        attempts: every attempt is appended here, also of a task that is cancelled.
    """

    task: Task
    inputs: Mapping[str, Any]
    context: RunContext
    new_path: Callable[[str], Path]
    clock: Callable[[], float]
    settings: Settings
    attempts: list[Attempt] = field(default_factory=list)


class TaskRunner(Protocol):
    """Runs the tasks of one type: an HFTaskTool, or a LangChainTask around any other tool."""

    @property
    def spec(self) -> TaskSpec:
        """The task type."""
        ...

    async def select(self, task: Task, context: RunContext) -> Selection | None:
        """Choose the model, as soon as the task is known; None if the runner has no choice of models."""
        ...

    async def run(self, selection: Selection | None, call: TaskCall) -> TaskResult:
        """Run the task. Failures are in the result."""
        ...


class ResultStore(Protocol):
    """Stores task results, so that a resumed run does not repeat them (agent/checkpoints.py)."""

    async def get_or_run(self, task: Task, work: Callable[[], Awaitable[TaskResult]]) -> TaskResult:
        """The stored result of the task, else the result of `work` once it is stored.

        Called in the order in which tasks were added.
        """
        ...


@dataclass(slots=True)
class _TaskState:
    """The progress of one task, for its result."""

    task: Task
    clock: Callable[[], float]
    running: asyncio.Task[None] | None = None
    selection: Selection | None = None
    started: float | None = None
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def needs(self) -> set[int]:
        """Ids of the tasks that must end first."""
        return {*self.task.deps, *refs_in(self.task.args)}

    def result(self, status: Status, error: str, failure: str | None = None) -> TaskResult:
        """A failed or skipped result with the attempts so far."""
        attempts = list(self.attempts)
        return self.finalise(
            TaskResult(task=self.task, status=status, attempts=attempts, error=error, failure=failure)
        )

    def finalise(self, result: TaskResult) -> TaskResult:
        """The result with its task, selection and times. It ends now."""
        now = self.clock()
        known = {
            "task": self.task,
            "selection": result.selection or self.selection,
            "started": now if self.started is None else self.started,
            "ended": now,
        }
        return result.model_copy(update=known)


class Executor:
    """Runs the tasks of one plan. No coroutine outlives the `async with` block."""

    def __init__(
        self,
        runners: Mapping[str, TaskRunner],
        store: ResourceStore,
        context: RunContext,
        settings: Settings,
        emit: Emit = lambda event: None,
        clock: Callable[[], float] | None = None,
        results: ResultStore | None = None,
    ) -> None:
        """`runners` are by task name; `clock` returns seconds since the run began, by default since now."""
        began = perf_counter()
        self._runners = runners
        self._store = store
        self._context = context
        self._settings = settings
        self._emit = emit
        self._clock = clock or (lambda: perf_counter() - began)
        self._results = results
        self._slots = asyncio.Semaphore(settings.max_parallel)
        self._ended: dict[int, asyncio.Future[TaskResult]] = {}
        self._states: dict[int, _TaskState] = {}
        self._variables = Context()

    async def __aenter__(self) -> Self:
        self._variables = copy_context()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._cancel("the run was stopped")

    def add(self, task: Task) -> None:
        """Start a task: its model is selected at once, and it runs when its dependencies have ended.

        Raises:
            RuntimeError: called in another thread than the event loop's.
        """
        if task.id in self._states:
            return
        loop = asyncio.get_running_loop()
        state = _TaskState(task, self._clock)
        # The caller may be the planner, whose time limit does not apply to the task.
        state.running = loop.create_task(
            self._settle(state), name=f"{task.task}-{task.id}", context=self._variables.copy()
        )
        self._states[task.id] = state
        self._emit(Event(kind="task", seconds=self._clock(), task=task))

    async def join(self, tasks: Sequence[Task], deadline: float | None = None) -> list[TaskResult]:
        """Wait until every task has ended; return the results in the order of `tasks`.

        Tasks that were not added yet are added now. At `deadline`, by the clock, running tasks are cancelled
        and count as failed.
        """
        for task in tasks:
            self.add(task)
        self._fail_unknown_dependencies()
        self._fail_cycles()
        waiting = [state.running for state in self._states.values() if state.running is not None]
        left = None if deadline is None else max(0.0, deadline - self._clock())
        if waiting:
            done, _ = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_EXCEPTION)
            await asyncio.gather(*done)  # an error of the result store ends the run
        await self._cancel(f"the run's time was over ({self._settings.run_timeout:g} s, JARVIS_RUN_TIMEOUT)")
        return [self._ended[task.id].result() for task in tasks]

    def _future(self, task_id: int) -> asyncio.Future[TaskResult]:
        if task_id not in self._ended:
            self._ended[task_id] = asyncio.get_running_loop().create_future()
        return self._ended[task_id]

    def _fail_unknown_dependencies(self) -> None:
        known = self._states.keys()
        for missing in {needed for state in self._states.values() for needed in state.needs} - known:
            if not self._future(missing).done():
                lost = _TaskState(Task(task="unknown", id=missing), self._clock)
                self._future(missing).set_result(lost.result("failed", "it is not in the plan"))

    def _fail_cycles(self) -> None:
        """Fail tasks that depend on their own results, which would otherwise wait forever."""
        graph = {i: state.needs for i, state in self._states.items() if not self._future(i).done()}
        while cycle := _find_cycle(graph):
            for i in cycle:
                self._end(self._states[i].result("failed", "it waits for its own result"))
                del graph[i]

    async def _cancel(self, why: str) -> None:
        """Cancel the running tasks; their results say why."""
        unfinished = {
            state.running: state
            for state in self._states.values()
            if state.running is not None and not state.running.done()
        }
        await cancel_and_wait(unfinished)
        for state in unfinished.values():
            self._end(state.result("failed", why, DeadlineError.__name__))

    def _end(self, result: TaskResult) -> None:
        future = self._future(result.task.id)
        if future.done():
            return
        future.set_result(result)
        self._emit(Event(kind="finished", seconds=self._clock(), task=result.task, result=result))

    async def _settle(self, state: _TaskState) -> None:
        """Run one task to its result. With a result store, dependants start after the commit."""
        if self._results is None:
            result = await self._attempt(state)
        else:
            result = await self._results.get_or_run(state.task, lambda: self._attempt(state))
        self._store.admit(result.resources)
        self._end(result)

    async def _attempt(self, state: _TaskState) -> TaskResult:
        """Select, wait for the dependencies, and run. Errors are in the result."""
        selecting = asyncio.create_task(self._select(state))
        try:
            result = await self._run(state, selecting)
        except JarvisError as error:
            return state.result("failed", str(error), type(error).__name__)
        except Exception as error:
            # An error of one tool must not stop the other tasks.
            logger.error("task %s (%s) failed: %s", state.task.id, state.task.task, format_traceback(error))
            return state.result("failed", describe_error(error))
        finally:
            selecting.cancel()
            await asyncio.gather(selecting, return_exceptions=True)
        return state.finalise(result)

    async def _select(self, state: _TaskState) -> None:
        task, seconds = state.task, self._settings.task_timeout
        what = f"model selection for {task.task}"
        selecting = self._runner(task).select(task, self._context)
        try:
            chosen: Any = await run_with_timeout(seconds, selecting, what)
        except StageTimeoutError as error:
            limit = f"{seconds:g} s (JARVIS_TASK_TIMEOUT)"
            raise DeadlineError(f"no model for {task.task} was chosen within {limit}") from error
        if not (chosen is None or isinstance(chosen, Selection)):
            raise TypeError(f"{what} returned no Selection: {chosen!r}")
        state.selection = chosen
        selected = TaskResult(task=task, status="ok", selection=chosen)
        self._emit(Event(kind="selected", seconds=self._clock(), task=task, result=selected))

    def _runner(self, task: Task) -> TaskRunner:
        runner = self._runners.get(task.task)
        if runner is None:
            raise NoCandidateError(f"there is no task {task.task!r} here; the planner made it up")
        return runner

    async def _run(self, state: _TaskState, selecting: asyncio.Task[None]) -> TaskResult:
        needed = await self._dependencies(state)
        failed = next((result for result in needed.values() if result.status != "ok"), None)
        if failed is not None:
            verb = "failed" if failed.status == "failed" else "was skipped"
            return state.result(
                "skipped", f"it needs task {failed.task.id} ({failed.task.task}), which {verb}"
            )
        await selecting
        async with self._slots:
            state.started = self._clock()
            self._emit(Event(kind="started", seconds=state.started, task=state.task))
            seconds = self._settings.task_timeout
            try:
                return await run_with_timeout(seconds, self._call(state, needed), state.task.task)
            except StageTimeoutError as error:
                limit = f"{seconds:g} s (JARVIS_TASK_TIMEOUT)"
                raise DeadlineError(f"{state.task.task} did not finish within {limit}") from error

    async def _call(self, state: _TaskState, needed: Mapping[int, TaskResult]) -> TaskResult:
        task = state.task
        runner = self._runner(task)
        stem = f"{task.id}-{task.task}"
        call = TaskCall(
            task=task,
            inputs=await bind_inputs(task, runner.spec, needed, self._store),
            context=self._context,
            new_path=lambda suffix: self._store.new_path(suffix, stem),
            clock=self._clock,
            settings=self._settings,
            attempts=state.attempts,
        )
        result: Any = await runner.run(state.selection, call)
        if not isinstance(result, TaskResult):
            raise TypeError(f"the runner of {task.task} returned no TaskResult: {result!r}")
        return result

    async def _dependencies(self, state: _TaskState) -> dict[int, TaskResult]:
        """The results of the task's dependencies, once all have ended."""
        futures = {i: self._future(i) for i in sorted(state.needs)}
        if pending := [future for future in futures.values() if not future.done()]:
            await asyncio.wait(pending)
        return {i: future.result() for i, future in futures.items()}


def _find_cycle(graph: Mapping[int, set[int]]) -> set[int]:
    """Ids of tasks that depend on each other; empty if there are none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return set(error.args[1])
    return set()
