"""Executor: runs the tasks of a plan as a dependency graph, one coroutine per task.

A task that takes one image, say, and refers to several (frames, or the images of a task that ran several
times) runs once for each. The first run keeps the task's id, the others have ids of their own.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from graphlib import CycleError, TopologicalSorter
from itertools import count
from typing import Any, Protocol, Self

from jarvis_agent.core.concurrency import MAX_PARALLEL, cancel_and_wait, run_with_timeout
from jarvis_agent.core.context import RunContext
from jarvis_agent.core.errors import (
    DeadlineError,
    InputError,
    JarvisError,
    NoCandidateError,
    describe_error,
    log_error,
)
from jarvis_agent.core.notes import Note, limit_of
from jarvis_agent.core.references import refs_in
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Attempt, Resource, Selection, Status, Task, TaskResult
from jarvis_agent.execution.checkpointed_steps import CheckpointedSteps
from jarvis_agent.execution.inputs import TaskCall, bind_inputs, runs_of
from jarvis_agent.execution.run import Event
from jarvis_agent.media.store import ResourceStore
from jarvis_agent.planning.binding import MAX_FAN_OUT
from jarvis_agent.planning.plan import Plan

logger = logging.getLogger(__name__)

_READING = "image-to-text"

Emit = Callable[[Event], None]


class TaskRunner(Protocol):
    """Runs the tasks of one type: an HFTaskRunner (fallback.py), or a LangChainTask around any other tool."""

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


@dataclass(slots=True)
class _TaskState:
    """The progress of one task."""

    task: Task
    clock: Callable[[], float]
    running: asyncio.Task[None] | None = None
    selection: Selection | None = None
    started: float | None = None
    answer: str | None = None
    """What a person gave as its result."""
    attempts: list[Attempt] = field(default_factory=list)
    others: list[int] = field(default_factory=list)
    """Ids of its further runs."""
    notes: list[str] = field(default_factory=list)

    @property
    def needs(self) -> set[int]:
        """Ids of the tasks that must end first."""
        return {*self.task.deps, *refs_in(self.task.args)}

    def result(self, status: Status, error: str, failure: str | None = None) -> TaskResult:
        """A failed or skipped result with the attempts so far."""
        attempts = list(self.attempts)
        result = TaskResult(task=self.task, status=status, attempts=attempts, error=error, failure=failure)
        return self.finalise(result)

    def finalise(self, result: TaskResult) -> TaskResult:
        """The result with its task, selection and times. It ends now."""
        now = self.clock()
        fields = {
            "task": self.task,
            "selection": result.selection or self.selection,
            "notes": [*self.notes, *result.notes],
            "started": now if self.started is None else self.started,
            "ended": now,
        }
        return result.model_copy(update=fields)


class Executor:
    """Runs the tasks of one plan: tasks go in as they are planned, a TaskResult for each comes out.

        async with Executor(runners, store, context, settings, emit) as executor:
            executor.add(task)                              # starts it when its dependencies have ended
            results = await executor.join(plan.tasks)       # in the order of the plan

    A coroutine for each task awaits the futures of its dependencies: no polling, no barrier. No coroutine
    outlives the `async with` block, unless it ignores its cancellation.
    """

    def __init__(
        self,
        runners: Mapping[str, TaskRunner],
        store: ResourceStore,
        context: RunContext,
        settings: Settings,
        emit: Emit = lambda event: None,
        steps: CheckpointedSteps | None = None,
    ) -> None:
        """`runners` are by task name. `steps` stores each result: a resumed run does not repeat the task."""
        self._runners = runners
        self._store = store
        store.read_page = self._read_page
        self._context = context
        self._settings = settings
        self._emit = emit
        self._clock = context.clock
        self._steps = steps or CheckpointedSteps()
        self._slots = asyncio.Semaphore(MAX_PARALLEL)
        self._states: dict[int, _TaskState] = {}
        self._ended: defaultdict[int, asyncio.Future[TaskResult]] = defaultdict(asyncio.Future)
        self.notes: list[str] = []
        """Which tasks ran several times."""
        # `add` may be called while a planner streams, whose context variables, such as its span, may be set.
        self._variables = copy_context()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._cancel(Note("the run was stopped"))

    def start(
        self,
        part: Plan,
        models: Mapping[int, Selection | None] = {},
        answers: Mapping[int, str] = {},
    ) -> None:
        """Add the tasks of a plan, or of a part of it; its preference chooses the models from now on.

        `models` are known selections, and `answers` known results, by task id.
        """
        if part.preference:
            self._context = replace(self._context, preference=part.preference)
        for task in part.tasks:
            self.add(task, models.get(task.id), answer=answers.get(task.id))

    def add(self, task: Task, selection: Selection | None = None, *, answer: str | None = None) -> None:
        """Start a task: its model is selected at once, and it runs when its dependencies have ended.

        One that was added before is left alone. `answer` is the result, a text, of a task that does not run.
        Raises RuntimeError: called in another thread than the event loop's.
        """
        if task.id in self._states:
            return
        loop, variables = asyncio.get_running_loop(), self._variables.copy()
        state = _TaskState(task, self._clock, selection=selection, answer=answer)
        self._states[task.id] = state
        state.running = loop.create_task(self._settle(state), name=f"task {task.id}", context=variables)
        self._emit(Event(kind="task", seconds=self._clock(), task=task))

    async def join(self, tasks: Sequence[Task], deadline: float | None = None) -> list[TaskResult]:
        """Wait until every task has ended; return the results in the order of `tasks`.

        The results of further runs of a task follow that of the first. Tasks that were not added yet are
        added now. At `deadline`, by the clock, running tasks are cancelled and count as failed.
        """
        for task in tasks:
            self.add(task)
        self._fail_what_cannot_run()
        waiting = [state.running for state in self._states.values() if state.running is not None]
        left = None if deadline is None else max(0.0, deadline - self._clock())
        if waiting:
            done, _ = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_EXCEPTION)
            await asyncio.gather(*done)  # an error of the checkpointer ends the run
        seconds, helps = self._settings.budget.run_seconds, limit_of("JARVIS_BUDGET")
        await self._cancel(Note("the run's time was over ({time:g} s)", time=seconds, advice=helps))
        ids = dict.fromkeys(i for task in tasks for i in self._runs(task.id))
        return [self._ended[i].result() for i in ids]

    async def _settle(self, state: _TaskState) -> None:
        """Run one task, so that dependants start when its result is stored; wait for its further runs."""
        result = await self._steps.get_or_run(state.task, lambda: self._select_and_run(state))
        if result.task.args != state.task.args:  # a stored result of a task that had several runs
            state.selection = result.selection
            self._start_runs(state, await self._dependencies(state))
        self._store.grant_resources(result.resources)
        self._end(result)
        # An error of the checkpointer in one of them ends the run too.
        others = [self._states[i].running for i in state.others]
        await asyncio.gather(*(running for running in others if running is not None))

    async def _select_and_run(self, state: _TaskState) -> TaskResult:
        """Select while the dependencies run, then run. Errors are in the result."""
        if (answer := state.answer) is not None:
            text, notes = Resource(kind="text", text=answer), ["a person gave this result"]
            result = TaskResult(task=state.task, status="ok", resources=[text], output=answer, notes=notes)
            return state.finalise(result)
        selecting = asyncio.create_task(self._select(state))
        try:
            needed = await self._dependencies(state)
            dead = (runs[0] for runs in needed.values() if all(run.status != "ok" for run in runs))
            if failed := next(dead, None):
                has_failed = failed.status == "failed"
                why = "it needs {task}, which failed" if has_failed else "it needs {task}, which was skipped"
                return state.result("skipped", Note(why, task=failed.task.title))
            await selecting
            self._start_runs(state, needed)
            async with self._slots:
                state.started = self._clock()
                self._emit(Event(kind="started", seconds=state.started, task=state.task))
                return state.finalise(await self._limited(self._call(state, needed), state.task.task))
        except JarvisError as error:
            return state.result("failed", error.note, error.kind)
        except Exception as error:
            # An error of one tool must not stop the other tasks.
            log_error(logger, f"task {state.task.id} ({state.task.task}) failed", error)
            return state.result("failed", describe_error(error))
        finally:
            selecting.cancel()
            await asyncio.gather(selecting, return_exceptions=True)

    async def _select(self, state: _TaskState) -> None:
        task, name = state.task, f"model selection for {state.task.task}"
        chosen = state.selection
        if chosen is None:
            chosen = await self._limited(self._runner(task).select(task, self._context), name)
        if not (chosen is None or isinstance(chosen, Selection)):
            raise TypeError(f"{name} returned no Selection: {chosen!r}")
        state.selection = chosen
        self._emit(Event(kind="selected", seconds=self._clock(), task=task, selection=chosen))

    async def _dependencies(self, state: _TaskState) -> dict[int, list[TaskResult]]:
        """The results of each dependency, once all its runs have ended."""
        results = {}
        for i in sorted(state.needs):
            await asyncio.wait([self._ended[i]])
            await asyncio.wait([self._ended[run] for run in self._runs(i)])
            results[i] = [self._ended[run].result() for run in self._runs(i)]
        return results

    def _runs(self, task_id: int) -> list[int]:
        """The ids of all runs of a task."""
        return [task_id, *(self._states[task_id].others if task_id in self._states else ())]

    def _start_runs(self, state: _TaskState, needed: Mapping[int, Sequence[TaskResult]]) -> None:
        """Make the task the first of its runs, and add the others."""
        task = state.task
        for results in needed.values():
            if failed := sum(result.status != "ok" for result in results):
                runs = "{failed} of the {all} runs of {task} failed"
                first = results[0].task
                state.notes.append(Note(runs, failed=failed, all=len(results), task=first.title))
        tasks, is_cut = runs_of(task, self._runner(task).spec, needed)
        if not tasks:
            raise InputError(f"no results of {' and '.join(f'task {i}' for i in needed)} belong together")
        state.task, *others = tasks
        if is_cut:
            cut = "there are more than {number} results; only the first were used"
            state.notes.append(Note(cut, number=MAX_FAN_OUT))
        # The same in a resumed run.
        ids = (i for i in count(1000 * (task.id + 1) + 1) if i not in self._states)
        for other in others:
            run = other.model_copy(update={"id": next(ids)})
            state.others.append(run.id)
            self.add(run, state.selection)
        if others:
            changed = [value for name, value in task.args.items() if value != state.task.args[name]]
            sources = " and ".join(f"task {i}" for i in refs_in(changed))
            often = "{task} was run {times} times, once for each result of {sources}"
            self.notes.append(Note(often, task=task.title, times=len(others) + 1, sources=sources))

    async def _call(self, state: _TaskState, needed: Mapping[int, Sequence[TaskResult]]) -> TaskResult:
        task = state.task
        runner = self._runner(task)
        stem = f"{task.id}-{task.task}"
        used = {run.task.id: run for runs in needed.values() for run in runs if run.status == "ok"}
        call = TaskCall(
            task=task,
            inputs=await bind_inputs(task, runner.spec, used, self._store, state.notes),
            context=self._context,
            new_path=lambda suffix: self._store.directory.new_path(suffix, stem),
            settings=self._settings,
            attempts=state.attempts,
        )
        result: Any = await runner.run(state.selection, call)
        if not isinstance(result, TaskResult):
            raise TypeError(f"the runner of {task.task} returned no TaskResult: {result!r}")
        return result

    async def _read_page(self, page: Resource) -> str:
        """The printed text of a page; "" without a model that reads it."""
        if (runner := self._runners.get(_READING)) is None:
            return ""
        task = Task(task=_READING, id=0, args={"text": "read"})
        with suppress(NoCandidateError):
            selection = await runner.select(task, self._context)
            if selection is not None and "ocr" in selection.candidates[0].traits:
                inputs = {"image": page, "text": "read"}
                new_path = partial(self._store.directory.new_path, stem="page")
                call = TaskCall(task, inputs, self._context, new_path, self._settings)
                text = (await runner.run(selection, call)).resource("text")
                return (text.text if text else None) or ""
        return ""

    async def _limited(self, work: Coroutine[Any, Any, Any], name: str) -> Any:
        limit = limit_of("JARVIS_TASK_TIMEOUT")
        return await run_with_timeout(self._settings.task_timeout, work, name, limit)

    def _runner(self, task: Task) -> TaskRunner:
        runner = self._runners.get(task.task)
        if runner is None:
            raise NoCandidateError(f"there is no task {task.task!r} here; the planner made it up")
        return runner

    def _end(self, result: TaskResult) -> None:
        if not self._ended[result.task.id].done():
            self._ended[result.task.id].set_result(result)
            self._emit(Event(kind="finished", seconds=self._clock(), task=result.task, result=result))

    async def _cancel(self, why: str) -> None:
        """Cancel the running tasks; their results say why."""
        unfinished = [state for state in self._states.values() if state.running and not state.running.done()]
        await cancel_and_wait([state.running for state in unfinished if state.running])
        for state in unfinished:
            self._end(state.result("failed", why, DeadlineError.__name__))

    def _fail_what_cannot_run(self) -> None:
        """Fail dependencies that are not in the plan, and tasks that would wait for their own results."""
        needed = {i for state in self._states.values() for i in state.needs}
        for missing in needed - self._states.keys():
            if not self._ended[missing].done():
                state = _TaskState(Task(task="unknown", id=missing), self._clock)
                self._ended[missing].set_result(state.result("failed", "it is not in the plan"))
        graph = {i: state.needs for i, state in self._states.items() if not self._ended[i].done()}
        while True:
            try:
                TopologicalSorter(graph).prepare()
                return
            except CycleError as error:
                for i in set(error.args[1]):
                    self._end(self._states[i].result("failed", "it waits for its own result"))
                    del graph[i]
