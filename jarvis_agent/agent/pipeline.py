"""One request from beginning to end: plan, execute while the plan is being written, answer.

async for event in RunPipeline(agent_parts).events(request, config):
    ...                                   # the last event is "done" and carries the Run
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

from langchain_core.runnables import RunnableConfig

from jarvis_agent.agent.memory import ChatMemory
from jarvis_agent.core.chat_log import turns_of
from jarvis_agent.core.concurrency import (
    StageTimeoutError,
    gather_limited,
    limits,
    run_with_timeout,
    start_daemon_thread,
)
from jarvis_agent.core.errors import (
    DeadlineError,
    InputError,
    JarvisError,
    LLMError,
    describe_error,
    format_traceback,
)
from jarvis_agent.core.messages import phrases
from jarvis_agent.core.request import ChatTurn, Request, RunContext, mentions
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Resource, Task, TaskResult
from jarvis_agent.execution.executor import Emit, Executor, TaskRunner
from jarvis_agent.execution.run import Event, Run
from jarvis_agent.media.store import ResourceStore
from jarvis_agent.planning.chain import Planner
from jarvis_agent.planning.plan import Plan
from jarvis_agent.planning.replanner import Replanner
from jarvis_agent.response.chain import Responder

logger = logging.getLogger(__name__)


class TaskRunnerProvider(Protocol):
    """Gives the workers that a run may use, by task name."""

    async def __call__(self) -> Mapping[str, TaskRunner]:
        """The workers; called once a run."""
        ...


@dataclass(frozen=True, slots=True)
class PipelineStages:
    """What an agent is made of.

    Attributes:
        workers: gives what does the tasks.
        planner: makes the plan.
        fallback: makes it when the planner's language model fails; None: the failure is the plan's note.
        responder: writes the answer.
        report: writes it without a language model, when there is no time left for one.
        replanner: plans again where tasks have failed; None: nobody does.
    """

    workers: TaskRunnerProvider
    planner: Planner
    fallback: Planner | None
    responder: Responder
    report: Responder
    settings: Settings
    memory: ChatMemory
    replanner: Replanner | None = None


class RunPipeline:
    """The run of one request."""

    def __init__(
        self, stages: PipelineStages, config: RunnableConfig | None = None, directory: Path | None = None
    ) -> None:
        """`directory` is where files are written; None: a new one."""
        self._stages = stages
        self._settings = stages.settings
        self._config = config
        self._thread = str((config or {}).get("configurable", {}).get("thread_id") or "")
        self._began = perf_counter()
        self._deadline = self._settings.run_timeout
        self._store = ResourceStore(stages.settings, directory=directory)
        self._timings: dict[str, float] = {}

    async def events(self, request: Request) -> AsyncGenerator[Event, None]:
        """Everything that happens, as it happens; the last event is "done". Leaving early cancels the run.

        Raises:
            InputError: the request is empty, or one of its files can not be used.
            DeadlineError: its files were not there when the run's time was over.
        """
        queue: asyncio.Queue[Event | None] = asyncio.Queue()

        async def work() -> None:
            try:
                await self._run(request, queue.put_nowait)
            finally:
                queue.put_nowait(None)

        working = asyncio.create_task(work())
        try:
            while (event := await queue.get()) is not None:
                yield event
            await working
        finally:
            working.cancel()
            await asyncio.wait([working])

    async def plan(self, request: Request) -> Plan:
        """The plan only; nothing is run. Raises as `events`."""
        try:
            _, brief = await self._begin(request)
            return await self._plan_in_time(brief, lambda task: None)
        finally:
            await self._close_store()

    def _clock(self) -> float:
        return perf_counter() - self._began

    async def _run(self, request: Request, emit: Emit) -> Run:
        try:
            workers, brief = await self._begin(request, self._store.prepare)
            plan, results = await self._execute(brief, workers, emit)
            answer = await self._respond(brief, plan, results, emit)
        finally:
            await self._close_store()
        self._remember(brief, answer, results)
        self._timings["total"] = self._clock()
        run = Run(answer=answer, plan=plan, results=results, usage=brief.meter.usage, timings=self._timings)
        emit(Event(kind="done", seconds=self._clock(), run=run))
        return run

    def _limit(self, stage: float, variable: str) -> tuple[float, str]:
        """Seconds that a stage has, by its own limit or what is left of the run; and by which, for people."""
        left = self._deadline - self._clock()
        if stage < left:
            return stage, f"{stage:g} s, {variable}"
        return left, f"{self._settings.run_timeout:g} s, JARVIS_RUN_TIMEOUT"

    async def _close_store(self) -> None:
        try:
            await run_with_timeout(
                limits.CANCEL_GRACE_S, asyncio.to_thread(self._store.close), "the end of a run"
            )
        except StageTimeoutError:
            logger.warning(
                "the directory %s of a run does not answer; it is left as it is", self._store.directory
            )
        except asyncio.CancelledError:
            # Who stops a run twice is not kept waiting, and its empty directory does not stay.
            start_daemon_thread(self._store.close)
            raise

    async def _begin(
        self, request: Request, prepare: Callable[[], None] = lambda: None
    ) -> tuple[Mapping[str, TaskRunner], RunContext]:
        """Who can do what, and what there is to do."""

        async def begin() -> tuple[Mapping[str, TaskRunner], RunContext]:
            await asyncio.to_thread(prepare)
            workers = await self._stages.workers()
            return workers, await self._brief(request, workers)

        try:
            return await run_with_timeout(self._deadline - self._clock(), begin(), "the beginning of a run")
        except StageTimeoutError as error:
            limit = f"{self._settings.run_timeout:g} s (JARVIS_RUN_TIMEOUT)"
            raise DeadlineError(
                f"the request's files and what there is to work with were not there within {limit}; "
                "try again with fewer files, or files of this machine"
            ) from error

    async def _brief(self, request: Request, workers: Mapping[str, TaskRunner]) -> RunContext:
        if not request.text and not request.blocks:
            raise InputError('the request is empty; write what is to be done, such as "what is in cat.jpg?"')
        turns = tuple([await self._recall(turn) for turn in self._turns(request)])
        return RunContext(
            request=request.text,
            files=tuple(await self._files(request)),
            turns=turns,
            specs={name: worker.spec for name, worker in workers.items()},
            config=self._config,
            confined=not self._settings.allow_request_paths,
        )

    async def _files(self, request: Request) -> list[Resource]:
        """What the request gives and names; the run may read it from now on."""
        count, most = len(request.files) + len(request.blocks), self._settings.max_files
        if count > most:
            raise InputError(f"the request has {count} files, more than {most} (JARVIS_MAX_FILES)")
        files = await gather_limited(self._store.grant, request.files, self._settings.max_parallel)
        files += await gather_limited(self._store.keep, request.blocks, self._settings.max_parallel)
        known = {file.name for file in files}
        for name in await asyncio.to_thread(mentions, request.text, self._store.knows):
            if name in known:
                continue
            file = await self._store.grant_mention(name)
            if file not in files:
                files.append(file)
        return files

    def _turns(self, request: Request) -> tuple[ChatTurn, ...]:
        """Earlier turns: those of the request's history, and those remembered, which know their resources."""
        remembered = self._stages.memory.turns(self._thread)
        known = {(turn.request, turn.answer) for turn in remembered}
        told = (turn for turn in turns_of(request.history) if (turn.request, turn.answer) not in known)
        return (*told, *remembered)

    async def _recall(self, turn: ChatTurn) -> ChatTurn:
        """The turn with its files, which may be read again: those it was given, and those it made."""
        for name in await asyncio.to_thread(mentions, turn.request, self._store.knows):
            await self._store.grant_mention(name)
        self._store.admit(turn.resources)
        if turn.resources:
            return turn
        recalled = [await self._store.recall(block) for block in turn.blocks]
        given = [resource for resource in recalled if resource is not None]
        made = await self._store.grant_outputs(turn.answer)
        return replace(turn, resources=(*given, *made), blocks=())

    async def _plan_in_time(self, brief: RunContext, on_task: Callable[[Task], None]) -> Plan:
        """The plan, or what there is of it when its time is over.

        What was given out may run already, so the plan holds it, whatever becomes of the planner.
        """
        started = self._clock()
        given: list[Task] = []
        over = False

        def give(task: Any) -> None:
            if not isinstance(task, Task):
                raise TypeError(f"what the planner gives out is no Task: {task!r}")
            # A planner that does not stop when it is told to may still write.
            if not over:
                given.append(task)
                on_task(task)

        try:
            rest = await self._plan(brief, give, given)
            return Plan(tasks=given) + rest
        finally:
            over = True
            self._timings["plan"] = self._clock() - started

    async def _plan(self, brief: RunContext, give: Callable[[Task], None], given: Sequence[Task]) -> Plan:
        """The planner's plan; the fallback's if the planner fails or is late before its first task."""
        seconds, limit = self._limit(self._settings.plan_timeout, "5 × JARVIS_LLM_TIMEOUT")
        try:
            return Plan() + await run_with_timeout(
                seconds, self._stages.planner.plan(brief, give), "the planner"
            )
        except StageTimeoutError:
            note = f"planning did not finish in its time ({limit})"
        except LLMError as error:
            logger.warning("planning with the language model failed: %s", error)
            note = f"the language model could not plan: {error}"
        except JarvisError as error:
            return Plan(notes=[str(error)])
        except Exception as error:
            # A fault of the planner's code is for the log: its words may be none for those who asked.
            logger.error("planning failed: %s", format_traceback(error))
            return Plan(notes=[f"planning failed ({type(error).__name__}); the log says more"])
        return Plan(notes=[note]) + (Plan() if given else await self._plan_without_llm(brief, give))

    async def _plan_without_llm(self, brief: RunContext, give: Callable[[Task], None]) -> Plan:
        left = self._deadline - self._clock()
        if self._stages.fallback is None or left <= 0:
            return Plan()
        name = "the planner without a language model"
        try:
            return Plan() + await run_with_timeout(left, self._stages.fallback.plan(brief, give), name)
        except StageTimeoutError:
            return Plan(notes=["planning without a language model did not finish in the run's time"])
        except JarvisError as error:
            return Plan(notes=[str(error)])
        except Exception as error:
            logger.error("planning without a language model failed: %s", format_traceback(error))
            return Plan(notes=[f"planning failed ({type(error).__name__}); the log says more"])

    async def _execute(
        self, brief: RunContext, workers: Mapping[str, TaskRunner], emit: Emit
    ) -> tuple[Plan, list[TaskResult]]:
        """Plan and run at the same time: a task starts as soon as it is known."""
        async with Executor(workers, self._store, brief, self._settings, emit, self._clock) as executor:
            plan = await self._plan_in_time(brief, executor.add)
            emit(Event(kind="planned", seconds=self._clock(), plan=plan))
            results = await executor.join(plan.tasks, self._deadline)
            plan, results = await self._go_on(executor, brief, plan, results, emit)
        self._time_execution(results)
        return plan, results

    async def _go_on(
        self, executor: Executor, brief: RunContext, plan: Plan, results: list[TaskResult], emit: Emit
    ) -> tuple[Plan, list[TaskResult]]:
        """Run what is planned in the place of tasks that failed, `Settings.max_replans` times at most."""
        for turn in range(self._settings.max_replans):
            started = self._clock()
            more = await self._replan(turn, brief, plan, results)
            if more == Plan():
                break
            self._timings["replan"] = self._timings.get("replan", 0.0) + self._clock() - started
            plan += more
            emit(Event(kind="planned", seconds=self._clock(), plan=plan))
            if not more.tasks:
                break
            results = await executor.join(plan.tasks, self._deadline)
        return plan, results

    async def _replan(self, turn: int, brief: RunContext, plan: Plan, results: Sequence[TaskResult]) -> Plan:
        """What to add to the plan; nothing where there is no time for it."""
        seconds, limit = self._limit(self._settings.plan_timeout, "5 × JARVIS_LLM_TIMEOUT")
        if self._stages.replanner is None or seconds <= 0:
            return Plan()
        again = self._stages.replanner.replan(brief, plan, results)
        try:
            return Plan() + await run_with_timeout(seconds, again, "planning again")
        except StageTimeoutError:
            return Plan(notes=[f"planning again did not finish in its time ({limit})"])
        except Exception as error:
            # What was done is worth more than the chance to do the rest.
            logger.error("planning again failed: %s", format_traceback(error))
            return Plan(notes=[f"planning again failed ({type(error).__name__}); the log says more"])

    def _time_execution(self, results: Sequence[TaskResult]) -> None:
        ended = max((result.ended for result in results), default=0.0)
        self._timings["execute"] = ended - min((result.started for result in results), default=0.0)

    async def _respond(self, brief: RunContext, plan: Plan, results: list[TaskResult], emit: Emit) -> str:
        """The answer; the report where its writer fails or is late."""
        started = self._clock()
        seconds, limit = self._limit(self._settings.respond_timeout, "2 × JARVIS_LLM_TIMEOUT")
        pieces: list[str] = []
        over = False

        def say(piece: Any) -> None:
            if not isinstance(piece, str):
                raise TypeError(f"a piece of the answer is no text: {piece!r}")
            pieces.append(piece)
            emit(Event(kind="token", seconds=self._clock(), text=piece))

        async def write() -> None:
            async for piece in self._responder(plan).respond(brief, plan, results):
                # A writer that does not stop when it is told to may still write.
                if over:
                    return
                say(piece)
                # One that never waits would let no deadline pass.
                await asyncio.sleep(0)

        try:
            await run_with_timeout(seconds, write(), "the answer's writer")
        except Exception as error:
            # The work is done: a writer that fails must not take its results along.
            over = True
            why = (
                f"there was no time left ({limit})"
                if isinstance(error, StageTimeoutError)
                else describe_error(error)
            )
            logger.warning("the answer could not be written: %s: %s", why, format_traceback(error))
            words = phrases(brief.request)
            if pieces:
                say(f"\n\n{words.broke_off.format(error=why)}\n\n")
            begun = bool(pieces)
            async for piece in self._stages.report.respond(brief, plan, results):
                say(piece)
            if not begun:
                say(f"\n\n{words.no_answer.format(error=why)}")
        self._timings["respond"] = self._clock() - started
        return "".join(pieces)

    def _responder(self, plan: Plan) -> Responder:
        return self._stages.responder

    def _remember(self, brief: RunContext, answer: str, results: list[TaskResult]) -> None:
        if self._thread:
            self._stages.memory.add(self._thread, turn_of(brief, answer, results))


def turn_of(brief: RunContext, answer: str, results: Sequence[TaskResult]) -> ChatTurn:
    """What later turns know of this one: its words, its answer, the files that it was given or made."""
    made = [resource for result in results for resource in result.resources if resource.path is not None]
    return ChatTurn(brief.request, answer, (*(file for file in brief.files if file.path is not None), *made))
