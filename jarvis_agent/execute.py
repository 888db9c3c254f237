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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Protocol, Self

from jarvis_agent.errors import DeadlineError, InputError, JarvisError
from jarvis_agent.refs import refs_in, substitute
from jarvis_agent.request import Brief
from jarvis_agent.resources import ResourceStore
from jarvis_agent.run import Event
from jarvis_agent.settings import Settings
from jarvis_agent.tools.spec import MEDIA, Arg, TaskSpec
from jarvis_agent.types import Resource, Selection, Task, TaskResult

logger = logging.getLogger(__name__)

Emit = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Step:
    """A task that is about to run.

    Attributes:
        task: the task of the plan, references and all.
        inputs: its arguments with every reference replaced: `Resource`s for media, text, or plain JSON.
        brief: the request that it belongs to.
        new_path: makes a path for a file; takes its suffix.
        clock: seconds since the run began.
        settings: limits and policies.
    """

    task: Task
    inputs: Mapping[str, Any]
    brief: Brief
    new_path: Callable[[str], Path]
    clock: Callable[[], float]
    settings: Settings


class Worker(Protocol):
    """What does the tasks of one type: an HFTaskTool, or any other LangChain tool behind its adapter."""

    @property
    def spec(self) -> TaskSpec:
        """The task type."""
        ...

    async def select(self, task: Task, brief: Brief) -> Selection | None:
        """Choose the model; called as soon as the task is known. None where there is nothing to choose."""
        ...

    async def perform(self, selection: Selection | None, step: Step) -> TaskResult:
        """Do the task. Raises nothing but what it can not help; failures are in the result."""
        ...


class Executor:
    """Runs the tasks of one plan. Leaves no coroutine behind, however the `async with` block is left."""

    def __init__(
        self,
        workers: Mapping[str, Worker],
        store: ResourceStore,
        brief: Brief,
        settings: Settings,
        emit: Emit = lambda event: None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`workers` are by task name; `clock` gives seconds since the run began, by default since now."""
        began = perf_counter()
        self._workers = workers
        self._store = store
        self._brief = brief
        self._settings = settings
        self._emit = emit
        self._clock = clock or (lambda: perf_counter() - began)
        self._slots = asyncio.Semaphore(settings.max_parallel)
        self._ended: dict[int, asyncio.Future[TaskResult]] = {}
        self._running: dict[int, tuple[Task, asyncio.Task[None]]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop("the run was stopped")

    @property
    def tasks(self) -> list[Task]:
        """The tasks that were added, in that order."""
        return [task for task, _ in self._running.values()]

    def add(self, task: Task) -> None:
        """Start a task: its model is selected at once, and it runs when its dependencies have ended."""
        if task.id in self._running:
            return
        self._emit(Event(kind="task", seconds=self._clock(), task=task))
        coroutine = self._settle(task)
        self._running[task.id] = (task, asyncio.create_task(coroutine, name=f"{task.task}-{task.id}"))

    async def join(self, tasks: Sequence[Task], deadline: float | None = None) -> list[TaskResult]:
        """Wait until every task has ended and return the results in the order of `tasks`.

        Tasks that were not added yet are added now. `deadline` is the time, by the clock, at which what is
        still running is stopped; it then counts as failed.
        """
        for task in tasks:
            self.add(task)
        self._give_up_unknown_dependencies()
        waiting = [running for _, running in self._running.values()]
        left = None if deadline is None else max(0.0, deadline - self._clock())
        if waiting:
            await asyncio.wait(waiting, timeout=left)
        await self._stop(f"the run's time was over ({self._settings.run_timeout:g} s, JARVIS_RUN_TIMEOUT)")
        return [self._ended[task.id].result() for task in tasks]

    def _future(self, task_id: int) -> asyncio.Future[TaskResult]:
        if task_id not in self._ended:
            self._ended[task_id] = asyncio.get_running_loop().create_future()
        return self._ended[task_id]

    def _give_up_unknown_dependencies(self) -> None:
        """A dependency that no task of the plan has can never end: say so instead of waiting."""
        for task, _ in list(self._running.values()):
            for missing in {*task.deps, *refs_in(task.args)} - self._running.keys():
                future = self._future(missing)
                if not future.done():
                    lost = Task(task="unknown", id=missing)
                    future.set_result(TaskResult(task=lost, status="failed", error="it is not in the plan"))

    async def _stop(self, why: str) -> None:
        """Cancel what still runs; its results say why."""
        unfinished = [(task, running) for task, running in self._running.values() if not running.done()]
        for _, running in unfinished:
            running.cancel()
        if unfinished:
            await asyncio.wait([running for _, running in unfinished])
        for task, _ in unfinished:
            self._end(TaskResult(task=task, status="failed", error=why, ended=self._clock()))

    def _end(self, result: TaskResult) -> None:
        future = self._future(result.task.id)
        if future.done():
            return
        future.set_result(result)
        self._emit(Event(kind="finished", seconds=self._clock(), task=result.task, result=result))

    async def _settle(self, task: Task) -> None:
        """Run one task to its end, which is always a result."""
        selecting = asyncio.create_task(self._select(task))
        started = self._clock()
        try:
            result = await self._run(task, selecting)
        except asyncio.CancelledError:
            raise
        except JarvisError as error:
            result = TaskResult(task=task, status="failed", error=str(error), started=started)
        except Exception as error:
            # A fault of a tool must not take the other tasks with it.
            logger.exception("task %s (%s) failed", task.id, task.task)
            message = f"{type(error).__name__}: {error}"
            result = TaskResult(task=task, status="failed", error=message, started=started)
        finally:
            if not selecting.done():
                selecting.cancel()
            await asyncio.gather(selecting, return_exceptions=True)
        chosen = None if selecting.cancelled() or selecting.exception() else selecting.result()
        self._end(result.model_copy(update={"ended": self._clock(), "selection": result.selection or chosen}))

    async def _select(self, task: Task) -> Selection | None:
        selection = await self._workers[task.task].select(task, self._brief)
        chosen = TaskResult(task=task, status="ok", selection=selection)
        self._emit(Event(kind="selected", seconds=self._clock(), task=task, result=chosen))
        return selection

    async def _run(self, task: Task, selecting: asyncio.Task[Selection | None]) -> TaskResult:
        needed = await self._needed(task)
        failed = [result for result in needed.values() if result.status != "ok"]
        if failed:
            return TaskResult(task=task, status="skipped", error=_because(failed[0]), started=self._clock())
        selection = await selecting
        async with self._slots:
            started = self._clock()
            self._emit(Event(kind="started", seconds=started, task=task))
            try:
                async with asyncio.timeout(self._settings.task_timeout):
                    result = await self._work(task, needed, selection)
            except TimeoutError as late:
                limit = f"{self._settings.task_timeout:g} s (JARVIS_TASK_TIMEOUT)"
                raise DeadlineError(f"{task.task} did not finish within {limit}") from late
        return result.model_copy(update={"started": started})

    async def _work(
        self, task: Task, needed: Mapping[int, TaskResult], selection: Selection | None
    ) -> TaskResult:
        worker = self._workers[task.task]
        inputs = await inputs_of(task, worker.spec, needed, self._store)
        stem = f"{task.id}-{task.task}"
        step = Step(
            task=task,
            inputs=inputs,
            brief=self._brief,
            new_path=lambda suffix: self._store.new_path(suffix, stem),
            clock=self._clock,
            settings=self._settings,
        )
        result = await worker.perform(selection, step)
        self._store.admit(result.resources)
        return result

    async def _needed(self, task: Task) -> dict[int, TaskResult]:
        """The results of the task's dependencies, once all of them have ended."""
        ids = sorted({*task.deps, *refs_in(task.args)} - {task.id})
        futures = [self._future(i) for i in ids]
        pending = [future for future in futures if not future.done()]
        if pending:
            await asyncio.wait(pending)
        return {i: future.result() for i, future in zip(ids, futures, strict=True)}


def _because(failed: TaskResult) -> str:
    verb = "failed" if failed.status == "failed" else "was skipped"
    return f"it needs task {failed.task.id} ({failed.task.task}), which {verb}"


async def inputs_of(
    task: Task, spec: TaskSpec, results: Mapping[int, TaskResult], store: ResourceStore
) -> dict[str, Any]:
    """The task's arguments with references replaced and files opened.

    Raises:
        InputError: a file is not there or of the wrong kind, or a result is not of the kind that is needed.
    """
    unknown = Arg("", "any")
    return {
        name: await _input(value, spec.arg(name) or unknown, results, store)
        for name, value in task.args.items()
    }


async def _input(value: Any, arg: Arg, results: Mapping[int, TaskResult], store: ResourceStore) -> Any:
    if isinstance(value, list):
        return [await _input(item, arg, results, store) for item in value]
    if arg.kind in MEDIA:
        refs = refs_in(value)
        return await store.resolve(_made(results[refs[0]], arg.kind) if refs else value, arg.kind)  # type: ignore[arg-type]
    if isinstance(value, dict):
        return {key: await _input(item, arg, results, store) for key, item in value.items()}
    if not isinstance(value, str):
        return value
    if not refs_in(value):
        return await store.text_of(value) if arg.kind == "text" else await store.path_of(value)
    return substitute(value, lambda i: _put(results[i], arg.kind))


def _put(result: TaskResult, kind: str) -> Any:
    """What a reference stands for in an argument that is not a file."""
    if kind == "data":
        return _made(result, "data").data
    if kind == "text":
        return _made(result, "text").as_text()
    first = next(iter(result.resources), None)
    if first is None:
        return "" if result.output is None else result.output
    return str(first.path) if first.path is not None else first.as_text()


def _made(result: TaskResult, kind: str) -> Resource:
    resource = result.resource(kind)
    if resource is None:
        made = ", ".join(r.kind for r in result.resources) or "nothing"
        raise InputError(f"task {result.task.id} ({result.task.task}) made {made}, and its {kind} is needed")
    return resource
