"""The graph executor: one coroutine a task, each waiting for its dependencies' futures.

There is no polling and no barrier: a task starts in the moment in which its last dependency ends. Tasks may
be added while others run, so execution begins while the planner is still writing.

    async with Executor(workers, store, brief, settings, emit) as executor:
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

from jarvis_agent.core.concurrency import StageTimeoutError, run_with_timeout, stop
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
from jarvis_agent.execution.inputs import inputs_of
from jarvis_agent.execution.run import Event
from jarvis_agent.media.store import ResourceStore

logger = logging.getLogger(__name__)

Emit = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class TaskCall:
    """A task that is about to run.

    Attributes:
        task: the task of the plan, references and all.
        inputs: its arguments with every reference replaced: `Resource`s for media, text, or plain JSON.
        brief: the request that it belongs to.
        new_path: makes a path for a file; takes its suffix.
        clock: seconds since the run began.
        settings: limits and policies.
        attempts: where every try is noted, so that it is known even of a task that is stopped.
    """

    task: Task
    inputs: Mapping[str, Any]
    brief: RunContext
    new_path: Callable[[str], Path]
    clock: Callable[[], float]
    settings: Settings
    attempts: list[Attempt] = field(default_factory=list)


@dataclass(slots=True)
class _TaskState:
    """How far a task has come; it is told of a task that fails or is stopped."""

    task: Task
    clock: Callable[[], float]
    running: asyncio.Task[None] | None = None
    selection: Selection | None = None
    started: float | None = None
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def needs(self) -> set[int]:
        """Ids of the tasks that must end before this one."""
        return {*self.task.deps, *refs_in(self.task.args)}

    def failed(self, why: str, failure: str | None = None) -> TaskResult:
        return self._ended("failed", why, failure)

    def skipped(self, why: str) -> TaskResult:
        return self._ended("skipped", why)

    def _ended(self, status: Status, why: str, failure: str | None = None) -> TaskResult:
        tried = list(self.attempts)
        return self.told(
            TaskResult(task=self.task, status=status, attempts=tried, error=why, failure=failure)
        )

    def told(self, result: TaskResult) -> TaskResult:
        """The result with what only the executor knows; it ends now."""
        now = self.clock()
        known = {
            "task": self.task,
            "selection": result.selection or self.selection,
            "started": now if self.started is None else self.started,
            "ended": now,
        }
        return result.model_copy(update=known)


class TaskRunner(Protocol):
    """What does the tasks of one type: an HFTaskTool, or any other LangChain tool behind its adapter."""

    @property
    def spec(self) -> TaskSpec:
        """The task type."""
        ...

    async def select(self, task: Task, brief: RunContext) -> Selection | None:
        """Choose the model; called as soon as the task is known. None where there is nothing to choose."""
        ...

    async def perform(self, selection: Selection | None, step: TaskCall) -> TaskResult:
        """Do the task. Raises nothing but what it can not help; failures are in the result."""
        ...


class Journal(Protocol):
    """Remembers what tasks came to, so that none is done twice (see jarvis_agent.agent.graph)."""

    async def once(self, task: Task, work: Callable[[], Awaitable[TaskResult]]) -> TaskResult:
        """The result that is stored for the task; else that of `work`, once it is stored.

        It is called for the tasks in the order in which they were added.
        """
        ...


class NoJournal:
    """Stores nothing: every task is done."""

    async def once(self, task: Task, work: Callable[[], Awaitable[TaskResult]]) -> TaskResult:
        """As `Journal.once`."""
        return await work()


class Executor:
    """Runs the tasks of one plan. Leaves no coroutine behind, however the `async with` block is left."""

    def __init__(
        self,
        workers: Mapping[str, TaskRunner],
        store: ResourceStore,
        brief: RunContext,
        settings: Settings,
        emit: Emit = lambda event: None,
        clock: Callable[[], float] | None = None,
        journal: Journal | None = None,
    ) -> None:
        """`workers` are by task name; `clock` gives seconds since the run began, by default since now."""
        began = perf_counter()
        self._workers = workers
        self._store = store
        self._brief = brief
        self._settings = settings
        self._emit = emit
        self._clock = clock or (lambda: perf_counter() - began)
        self._journal = journal or NoJournal()
        self._slots = asyncio.Semaphore(settings.max_parallel)
        self._ended: dict[int, asyncio.Future[TaskResult]] = {}
        self._courses: dict[int, _TaskState] = {}
        self._context = Context()

    async def __aenter__(self) -> Self:
        self._context = copy_context()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop("the run was stopped")

    @property
    def tasks(self) -> list[Task]:
        """The tasks that were added, in that order."""
        return [course.task for course in self._courses.values()]

    def add(self, task: Task) -> None:
        """Start a task: its model is selected at once, and it runs when its dependencies have ended.

        Raises:
            RuntimeError: it is called in another thread than that of the event loop.
        """
        if task.id in self._courses:
            return
        loop = asyncio.get_running_loop()
        course = _TaskState(task, self._clock)
        # The planner calls this: its time limit and its span are not the task's.
        context = self._context.copy()
        course.running = loop.create_task(
            self._settle(course), name=f"{task.task}-{task.id}", context=context
        )
        self._courses[task.id] = course
        self._emit(Event(kind="task", seconds=self._clock(), task=task))

    async def join(self, tasks: Sequence[Task], deadline: float | None = None) -> list[TaskResult]:
        """Wait until every task has ended and return the results in the order of `tasks`.

        Tasks that were not added yet are added now. `deadline` is the time, by the clock, at which what is
        still running is stopped; it then counts as failed.
        """
        for task in tasks:
            self.add(task)
        self._give_up_unknown_dependencies()
        self._give_up_circles()
        waiting = [course.running for course in self._courses.values() if course.running is not None]
        left = None if deadline is None else max(0.0, deadline - self._clock())
        if waiting:
            done, _ = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_EXCEPTION)
            await asyncio.gather(*done)  # what the journal raised: nothing may be built on what is not stored
        await self._stop(f"the run's time was over ({self._settings.run_timeout:g} s, JARVIS_RUN_TIMEOUT)")
        return [self._ended[task.id].result() for task in tasks]

    def _future(self, task_id: int) -> asyncio.Future[TaskResult]:
        if task_id not in self._ended:
            self._ended[task_id] = asyncio.get_running_loop().create_future()
        return self._ended[task_id]

    def _give_up_unknown_dependencies(self) -> None:
        """A dependency that no task of the plan has can never end: say so instead of waiting."""
        known = self._courses.keys()
        for missing in {needed for course in self._courses.values() for needed in course.needs} - known:
            if not self._future(missing).done():
                lost = _TaskState(Task(task="unknown", id=missing), self._clock)
                self._future(missing).set_result(lost.failed("it is not in the plan"))

    def _give_up_circles(self) -> None:
        """Tasks that wait for each other would wait for ever: they fail, and say why."""
        graph = {i: course.needs for i, course in self._courses.items() if not self._future(i).done()}
        while circle := _circle(graph):
            for i in circle:
                self._end(self._courses[i].failed("it waits for its own result"))
                del graph[i]

    async def _stop(self, why: str) -> None:
        """Cancel what still runs; its results say why."""
        unfinished = {
            course.running: course
            for course in self._courses.values()
            if course.running is not None and not course.running.done()
        }
        await stop(unfinished)
        for course in unfinished.values():
            self._end(course.failed(why, DeadlineError.__name__))

    def _end(self, result: TaskResult) -> None:
        future = self._future(result.task.id)
        if future.done():
            return
        future.set_result(result)
        self._emit(Event(kind="finished", seconds=self._clock(), task=result.task, result=result))

    async def _settle(self, course: _TaskState) -> None:
        """Bring one task to its end, which is always a result. Nobody builds on it before it is stored."""
        result = await self._journal.once(course.task, lambda: self._attempt(course))
        self._store.admit(result.resources)
        self._end(result)

    async def _attempt(self, course: _TaskState) -> TaskResult:
        """Run one task; what goes wrong is in the result."""
        selecting = asyncio.create_task(self._select(course))
        try:
            result = await self._run(course, selecting)
        except JarvisError as error:
            result = course.failed(str(error), type(error).__name__)
        except Exception as error:
            # A fault of a tool must not take the other tasks with it.
            logger.error("task %s (%s) failed: %s", course.task.id, course.task.task, format_traceback(error))
            result = course.failed(describe_error(error))
        finally:
            selecting.cancel()
            await asyncio.gather(selecting, return_exceptions=True)
        return course.told(result)

    async def _select(self, course: _TaskState) -> None:
        task = course.task
        course.selection = await self._chosen(task)
        chosen = TaskResult(task=task, status="ok", selection=course.selection)
        self._emit(Event(kind="selected", seconds=self._clock(), task=task, result=chosen))

    async def _chosen(self, task: Task) -> Selection | None:
        seconds, what = self._settings.task_timeout, f"the choice of a model for {task.task}"
        try:
            chosen: Any = await run_with_timeout(seconds, self._worker(task).select(task, self._brief), what)
        except StageTimeoutError as error:
            limit = f"{seconds:g} s (JARVIS_TASK_TIMEOUT)"
            raise DeadlineError(f"no model for {task.task} was chosen within {limit}") from error
        if chosen is None or isinstance(chosen, Selection):
            return chosen
        raise TypeError(f"{what} is no Selection: {chosen!r}")

    def _worker(self, task: Task) -> TaskRunner:
        worker = self._workers.get(task.task)
        if worker is None:
            raise NoCandidateError(f"there is no task {task.task!r} here; the planner made it up")
        return worker

    async def _run(self, course: _TaskState, selecting: asyncio.Task[None]) -> TaskResult:
        needed = await self._needed(course)
        failed = [result for result in needed.values() if result.status != "ok"]
        if failed:
            return course.skipped(_because(failed[0]))
        await selecting
        async with self._slots:
            course.started = self._clock()
            self._emit(Event(kind="started", seconds=course.started, task=course.task))
            seconds = self._settings.task_timeout
            try:
                return await run_with_timeout(seconds, self._work(course, needed), course.task.task)
            except StageTimeoutError as error:
                limit = f"{seconds:g} s (JARVIS_TASK_TIMEOUT)"
                raise DeadlineError(f"{course.task.task} did not finish within {limit}") from error

    async def _work(self, course: _TaskState, needed: Mapping[int, TaskResult]) -> TaskResult:
        task = course.task
        worker = self._worker(task)
        inputs = await inputs_of(task, worker.spec, needed, self._store)
        stem = f"{task.id}-{task.task}"
        step = TaskCall(
            task=task,
            inputs=inputs,
            brief=self._brief,
            new_path=lambda suffix: self._store.new_path(suffix, stem),
            clock=self._clock,
            settings=self._settings,
            attempts=course.attempts,
        )
        result: Any = await worker.perform(course.selection, step)
        if isinstance(result, TaskResult):
            return result
        raise TypeError(f"what does {task.task} gave no TaskResult: {result!r}")

    async def _needed(self, course: _TaskState) -> dict[int, TaskResult]:
        """The results of the task's dependencies, once all of them have ended."""
        ids = sorted(course.needs)
        futures = [self._future(i) for i in ids]
        pending = [future for future in futures if not future.done()]
        if pending:
            await asyncio.wait(pending)
        return {i: future.result() for i, future in zip(ids, futures, strict=True)}


def _circle(graph: Mapping[int, set[int]]) -> set[int]:
    """Ids of tasks that need each other; empty if there are none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return set(error.args[1])
    return set()


def _because(failed: TaskResult) -> str:
    verb = "failed" if failed.status == "failed" else "was skipped"
    return f"it needs task {failed.task.id} ({failed.task.task}), which {verb}"
