"""RunPipeline: one request from beginning to end. Plan, select, execute, respond.

    pipeline = RunPipeline(stages, config)
    async for event in pipeline.events(request):
        ...                                   # the last event is "done" and has the Run

Without a checkpointer, tasks start while the planner still writes. With one (`Steps.is_stored`), planning is
one stored step, and execution starts after it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar, cast

from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import merge_configs
from pydantic import TypeAdapter

from jarvis_agent.agent.approval import REJECTED, Ask, approve
from jarvis_agent.agent.request_files import grant_files, readmit_files, recall
from jarvis_agent.agent.stages import PipelineStages
from jarvis_agent.agent.steps import DirectSteps, Steps
from jarvis_agent.core.chat_log import turns_of
from jarvis_agent.core.concurrency import StageTimeoutError, limits, run_with_timeout, start_daemon_thread
from jarvis_agent.core.errors import DeadlineError, InputError, JarvisError, describe_error, format_traceback
from jarvis_agent.core.messages import phrases
from jarvis_agent.core.request import ChatTurn, Request, RunContext
from jarvis_agent.core.types import Resource, Task, TaskResult
from jarvis_agent.execution.executor import Emit, Executor, TaskRunner
from jarvis_agent.execution.run import Event, Run
from jarvis_agent.media.store import ResourceStore
from jarvis_agent.planning.plan import Plan
from jarvis_agent.response.chain import report_after_failure

logger = logging.getLogger(__name__)

T = TypeVar("T")

_BEGUN = TypeAdapter(tuple[str, float])
_FILES = TypeAdapter(list[Resource])
_PLANNED = TypeAdapter(tuple[Plan, float])
_PLAN = TypeAdapter(Plan)
_TEXT = TypeAdapter(str)


class RunPipeline:
    """The run of one request. `turn` is its chat turn, for the memory, once the run has ended."""

    def __init__(
        self,
        stages: PipelineStages,
        config: RunnableConfig | None = None,
        *,
        turns: Sequence[ChatTurn] = (),
        steps: Steps | None = None,
        ask: Ask | None = None,
    ) -> None:
        """`turns` are earlier turns of the chat; `ask` lets someone approve the plan before it is run."""
        self._stages = stages
        self._settings = stages.settings
        self._steps: Steps = DirectSteps() if steps is None else steps
        self._meter = self._steps.meter
        self._config = merge_configs(config, {"callbacks": [self._meter]})
        self._config.pop("run_id", None)
        self._turns = turns
        self._ask = ask
        self._began = perf_counter()
        self._deadline = self._settings.run_timeout
        self._open_store: ResourceStore | None = None
        self._timings: dict[str, float] = {}
        self.turn: ChatTurn | None = None

    async def run(self, request: Request, emit: Emit = lambda event: None) -> Run:
        """Plan, select, execute, respond. The executor selects the model of each task when it is added.

        Raises:
            InputError: the request is empty, or one of its files cannot be used.
            DeadlineError: its files could not be read within the run's time.
        """
        try:
            runners, context = await self._prepare(request)
            async with Executor(
                runners, self._store, context, self._settings, emit, self._clock, self._steps.results
            ) as executor:
                plan = await self._plan(context, executor, emit)
                results = await executor.join(plan.tasks, self._deadline)
                plan, results = await self._replan(context, executor, plan, results, emit)
            self._time_execution(results)
            answer = await self._respond(context, plan, results, emit)
        finally:
            await self._close_store()
        self.turn = _turn_of(context, answer, results)
        self._timings["total"] = self._clock()
        usage = self._meter.usage
        run = Run(answer=answer, plan=plan, results=results, usage=usage, timings=self._timings)
        emit(Event(kind="done", seconds=self._clock(), run=run))
        return run

    async def events(self, request: Request) -> AsyncGenerator[Event, None]:
        """The events of `run` as they happen. Closing the generator cancels the run."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue()

        async def work() -> None:
            try:
                await self.run(request, queue.put_nowait)
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
        """The plan only; nothing is run. Raises as `run`."""
        try:
            _, context = await self._prepare(request)
            return (await self._write_plan(context, lambda task: None))[0]
        finally:
            await self._close_store()

    # Prepare

    @property
    def _store(self) -> ResourceStore:
        assert self._open_store is not None
        return self._open_store

    async def _prepare(self, request: Request) -> tuple[Mapping[str, TaskRunner], RunContext]:
        """The runners, and the request with its files opened."""
        if not request.text and not request.blocks:
            raise InputError('the request is empty; write what is to be done, such as "what is in cat.jpg?"')

        store = await asyncio.to_thread(ResourceStore, self._settings)

        async def begin() -> tuple[str, float]:
            return made, time.time()

        made = await asyncio.to_thread(lambda: str(store.directory))
        directory, began = await self._steps.run_once("begin", begin, _BEGUN)
        if directory != made:
            store = await asyncio.to_thread(ResourceStore, self._settings, directory=Path(directory))
        self._open_store = store
        elapsed = max(0.0, time.time() - began)
        self._began -= elapsed
        self._deadline += elapsed
        try:
            left = self._deadline - self._clock()
            return await run_with_timeout(left, self._open(request), "preparing the run")
        except StageTimeoutError as error:
            limit = f"{self._settings.run_timeout:g} s (JARVIS_RUN_TIMEOUT)"
            raise DeadlineError(
                f"the request's files could not be read within {limit}; "
                "try again with fewer files, or files of this machine"
            ) from error

    async def _open(self, request: Request) -> tuple[Mapping[str, TaskRunner], RunContext]:
        await asyncio.to_thread(self._store.prepare)
        runners = await self._stages.runners()
        known = {(turn.request, turn.answer) for turn in self._turns}
        told = [turn for turn in turns_of(request.history) if (turn.request, turn.answer) not in known]
        turns = [await recall(turn, self._store) for turn in (*told, *self._turns)]
        files = await self._steps.run_once(
            "files", lambda: grant_files(request, self._store, self._settings), _FILES
        )
        if self._steps.is_stored:
            await readmit_files(files, self._store)
        context = RunContext(
            request=request.text,
            turns=tuple(turns),
            files=tuple(files),
            specs={name: runner.spec for name, runner in runners.items()},
            config=self._config,
            confined=not self._settings.allow_request_paths,
        )
        return runners, context

    # Plan

    async def _plan(self, context: RunContext, executor: Executor, emit: Emit) -> Plan:
        """The plan. Its tasks are added to the executor as they come; a stored plan's, when it is stored."""
        add: Callable[[Task], None] = (lambda task: None) if self._steps.is_stored else executor.add

        async def decide() -> Plan:
            return plan if self._ask is None else approve(plan, context, self._ask)

        plan, self._timings["plan"] = await self._steps.run_once(
            "plan", lambda: self._write_plan(context, add), _PLANNED
        )
        if self._steps.is_stored:
            plan = await self._steps.run_once("decision", decide, _PLAN)
        emit(Event(kind="planned", seconds=self._clock(), plan=plan))
        return plan

    async def _write_plan(self, context: RunContext, add: Callable[[Task], None]) -> tuple[Plan, float]:
        """The plan, as far as it was written in time, and the seconds it took."""
        started = self._clock()
        plan = Plan()
        seconds, limit = self._limit(self._settings.plan_timeout, "5 × JARVIS_LLM_TIMEOUT")
        late = f"planning did not finish in its time ({limit})"
        for planner in (self._stages.planner, self._stages.fallback_planner):
            if planner is None:
                break
            before = plan
            plan, is_late = await self._ask_planner(planner, context, add, before, seconds, late)
            seconds = self._deadline - self._clock()
            if not is_late or plan.tasks or seconds <= 0:
                break
        return plan, self._clock() - started

    async def _ask_planner(
        self,
        planner: Runnable[Any, Plan],
        context: RunContext,
        add: Callable[[Task], None],
        plan: Plan,
        seconds: float,
        late: str,
    ) -> tuple[Plan, bool]:
        """The plan with what one planner adds, and whether its time was over.

        A task that was added may run already, so it stays in the plan whatever becomes of the planner.
        """

        async def read() -> None:
            nonlocal plan
            stream = planner.astream(_inputs(context, tools=context.specs), self._config)
            async with aclosing(cast("AsyncGenerator[Plan, None]", stream)) as chunks:
                async for chunk in chunks:
                    if not isinstance(chunk, Plan):
                        raise TypeError(f"the planner returned no Plan: {chunk!r}")
                    if is_over:  # a planner that ignores its cancellation may still write
                        return
                    plan += chunk
                    for task in chunk.tasks:
                        add(task)

        is_over = False
        note, is_late = "", False
        try:
            await run_with_timeout(seconds, read(), "the planner")
        except StageTimeoutError:
            note, is_late = late, True
        except JarvisError as error:
            note = str(error)
        except Exception as error:
            logger.error("planning failed: %s", format_traceback(error))
            note = f"planning failed ({type(error).__name__}); see the log"
        finally:
            is_over = True
        return (plan + Plan(notes=[note]) if note else plan), is_late

    async def _replan(
        self, context: RunContext, executor: Executor, plan: Plan, results: list[TaskResult], emit: Emit
    ) -> tuple[Plan, list[TaskResult]]:
        """Plan again for failed tasks, at most `Settings.max_replans` times."""
        if self._stages.replanner is None or self._ask is not None or not plan.tasks:
            return plan, results
        # An approved plan is not changed.
        for turn in range(self._settings.max_replans):
            started = self._clock()
            again = self._write_replan(self._stages.replanner, context, plan, results)
            more = await self._steps.run_once(f"replan {turn}", again, _PLAN)
            if more == Plan():
                break
            self._timings["replan"] = self._timings.get("replan", 0.0) + self._clock() - started
            plan += more
            emit(Event(kind="planned", seconds=self._clock(), plan=plan))
            if not more.tasks:
                break
            results = await executor.join(plan.tasks, self._deadline)
        return plan, results

    def _write_replan(
        self, replanner: Runnable[Any, Plan], context: RunContext, plan: Plan, results: Sequence[TaskResult]
    ) -> Callable[[], Awaitable[Plan]]:
        async def write() -> Plan:
            seconds, limit = self._limit(self._settings.plan_timeout, "5 × JARVIS_LLM_TIMEOUT")
            if seconds <= 0 or all(result.status == "ok" for result in results):
                return Plan()
            inputs = _inputs(context, tools=context.specs, plan=plan, results=results)
            try:
                return Plan() + await run_with_timeout(
                    seconds, replanner.ainvoke(inputs, self._config), "replanning"
                )
            except StageTimeoutError:
                return Plan(notes=[f"planning again did not finish in its time ({limit})"])
            except Exception as error:
                # The results so far are kept.
                logger.error("replanning failed: %s", format_traceback(error))
                return Plan(notes=[f"planning again failed ({type(error).__name__}); see the log"])

        return write

    # Respond

    async def _respond(self, context: RunContext, plan: Plan, results: list[TaskResult], emit: Emit) -> str:
        """The answer. If its writer fails or exceeds its time, the report completes it."""
        started, pieces = self._clock(), list[str]()

        def show(piece: Any) -> None:
            if not isinstance(piece, str):
                raise TypeError(f"the responder returned no text: {piece!r}")
            pieces.append(piece)
            emit(Event(kind="token", seconds=self._clock(), text=piece))

        async def write() -> str:
            if plan.notes == [REJECTED]:
                show(phrases(context.request).rejected)
            else:
                await self._write_answer(context, plan, results, show, pieces)
            return "".join(pieces)

        answer = await self._steps.run_once("answer", write, _TEXT)
        if not pieces:
            show(answer)
        self._timings["respond"] = self._clock() - started
        return answer

    async def _write_answer(
        self,
        context: RunContext,
        plan: Plan,
        results: list[TaskResult],
        show: Callable[[Any], None],
        shown: Sequence[str],
    ) -> None:
        seconds, limit = self._limit(self._settings.respond_timeout, "2 × JARVIS_LLM_TIMEOUT")
        inputs = _inputs(context, plan=plan, results=results, restricted=context.confined)
        is_over = False

        async def write() -> None:
            stream = cast("AsyncGenerator[str, None]", self._stages.responder.astream(inputs, self._config))
            async with aclosing(stream) as pieces:
                async for piece in pieces:
                    if is_over:  # a responder that ignores its cancellation may still write
                        return
                    show(piece)
                    await asyncio.sleep(0)  # lets the time limit pass if the stream never waits

        try:
            await run_with_timeout(seconds, write(), "the responder")
        except Exception as error:
            is_over = True
            late = isinstance(error, StageTimeoutError)
            why = f"there was no time left ({limit})" if late else describe_error(error)
            logger.warning("the answer could not be written: %s: %s", why, format_traceback(error))
            for piece in report_after_failure(inputs, bool(shown), why):
                show(piece)

    # Time

    def _clock(self) -> float:
        return perf_counter() - self._began

    def _limit(self, stage: float, variable: str) -> tuple[float, str]:
        """Seconds for a stage: its own limit or what is left of the run; and the limit's name."""
        left = self._deadline - self._clock()
        if stage < left:
            return stage, f"{stage:g} s, {variable}"
        return left, f"{self._settings.run_timeout:g} s, JARVIS_RUN_TIMEOUT"

    def _time_execution(self, results: Sequence[TaskResult]) -> None:
        ended = max((result.ended for result in results), default=0.0)
        self._timings["execute"] = ended - min((result.started for result in results), default=0.0)

    async def _close_store(self) -> None:
        store = self._open_store
        if store is None:
            return
        try:
            await run_with_timeout(
                limits.CANCEL_GRACE_S, asyncio.to_thread(store.close), "closing the run's directory"
            )
        except StageTimeoutError:
            logger.warning("the directory %s of a run does not respond and is left", store.directory)
        except asyncio.CancelledError:
            # A second cancellation is not delayed; a thread removes the directory if it is empty.
            start_daemon_thread(store.close)
            raise


def _inputs(context: RunContext, **more: Any) -> dict[str, Any]:
    return {"input": context.request, "files": context.files, "chat_history": context.turns, **more}


def _turn_of(context: RunContext, answer: str, results: Sequence[TaskResult]) -> ChatTurn:
    """The run as a chat turn, with the files that it was given or produced."""
    made = [resource for result in results for resource in result.resources if resource.path is not None]
    given = [file for file in context.files if file.path is not None]
    return ChatTurn(context.request, answer, (*given, *made))
