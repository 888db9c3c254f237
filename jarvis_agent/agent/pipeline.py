"""RunPipeline: one request from beginning to end. Plan, select, execute, respond (see `RunPipeline._run`).

    async for event in RunPipeline(stages, config).events(request): ...     # "done" is last, with the Run

Without a checkpointer, tasks start while the planner still writes. With one, planning is one stored step, and
execution starts after it.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any, TypeVar, cast

from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import merge_configs
from pydantic import TypeAdapter

from jarvis_agent.agent.approval import (
    REJECTED,
    ApprovalPolicy,
    Approved,
    Ask,
    PlannedTask,
    approve,
    needs_approval,
    planned_task,
)
from jarvis_agent.agent.stages import PipelineStages
from jarvis_agent.core.concurrency import (
    cancellation,
    gather_limited,
    run_in_daemon_thread,
    run_with_timeout,
)
from jarvis_agent.core.context import ChatTurn, Clock, RunContext
from jarvis_agent.core.errors import (
    InputError,
    JarvisError,
    PlanError,
    describe_error,
    log_error,
)
from jarvis_agent.core.notes import AnyNote, ModelT, Note, as_public, limit_of
from jarvis_agent.core.phrases import phrases
from jarvis_agent.core.request import Request
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Resource, Selection, Task, TaskResult
from jarvis_agent.execution.checkpointed_steps import DECISION, PROPOSAL, CheckpointedSteps
from jarvis_agent.execution.executor import Emit, Executor, TaskRunner
from jarvis_agent.execution.run import Event, Run
from jarvis_agent.media.run_directory import RunDirectory
from jarvis_agent.media.store import ResourceStore
from jarvis_agent.planning.plan import Plan
from jarvis_agent.response.chain import report_after_failure
from jarvis_agent.selection.store import open_store

T = TypeVar("T")

logger = logging.getLogger(__name__)

MAX_ROUNDS = 3
"""How often tasks are planned in one run: the LLM looks at the results, and may add tasks that need them."""

_START = TypeAdapter(tuple[str, float])
_OPENED = TypeAdapter(tuple[list[Resource], list[ChatTurn], list[AnyNote]])
_TIMED_PLAN = TypeAdapter(tuple[Plan, float])
_PLANNED_TASKS = TypeAdapter(list[PlannedTask])
_APPROVED = TypeAdapter(Approved)
_REPLY: TypeAdapter[str | Plan] = TypeAdapter(str | Plan)
_STRUCTURED = TypeAdapter(tuple[Any, list[str]])
_READING = "reading the request's files, perhaps too many,"


@dataclass(eq=False)
class RunPipeline:
    """The run of one request.

    `turns` are earlier turns of the chat; `request_count` is that of the RunContext. `steps` stores the
    results of steps. `ask` shows the plan and returns the decision on it, if the `approval_policy` wants one.
    `remember` gets the run as a chat turn when it has ended. `language` is that of the answer, if not the
    request's.
    """

    stages: PipelineStages
    config: RunnableConfig | None = None
    _: KW_ONLY
    turns: Sequence[ChatTurn] = ()
    request_count: int = 1
    steps: CheckpointedSteps = field(default_factory=CheckpointedSteps)
    ask: Ask | None = None
    approval_policy: ApprovalPolicy = True
    remember: Callable[[ChatTurn], None] | None = None
    language: str = ""

    def __post_init__(self) -> None:
        self._settings = self.stages.settings
        self.steps.meter.budget, self.steps.meter.price = self._settings.budget, self.stages.price
        self._config = merge_configs(self.config, {"callbacks": [self.steps.meter]})
        self._config.pop("run_id", None)
        self._clock = Clock()
        self._deadline = self._settings.budget.run_seconds
        self._emit: Emit = lambda event: None
        self._runners: Mapping[str, TaskRunner]
        self._store: ResourceStore
        self._notes: list[str] = []
        self._timings: dict[str, float] = {}
        self._approvals = 0
        self._asked = 0
        """Questions that a resumed run has asked before, and not yet passed over."""

    async def events(self, request: Request) -> AsyncGenerator[Event, None]:
        """The events of a run as they happen. Closing the generator cancels the run.

        Raises InputError: the request is empty or too long, or one of its files cannot be used;
        DeadlineError: they could not be read within the seconds of the budget.
        """
        queue: asyncio.Queue[Event | None] = asyncio.Queue()

        def emit(event: Event) -> None:
            queue.put_nowait(self._shown(event))

        self._emit = emit
        working = asyncio.create_task(self._run(request))
        working.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (event := await queue.get()) is not None:
                yield event
            await working
        finally:
            working.cancel()
            await asyncio.wait([working])

    async def plan(self, request: Request) -> Plan:
        """The plan only; nothing is run. Raises as `events`."""
        await self._start(request)
        try:
            context = await self._in_time(self._open(request, makes_files=False), _READING)
            return (await self._run_planners(context))[0]
        finally:
            await self._close_store()

    async def _run(self, request: Request) -> None:
        """Plan, select, execute, respond. The run itself is emitted, as the event "done".

        Where the steps are:
            _open               media/store.py          the request's files
            _plan_and_start     planning/chain.py       the plan, in chunks for `Executor.start`
              Executor          execution/executor.py   a coroutine for each task
                select          selection/selector.py   its candidates, while its dependencies run
                run             execution/fallback.py   one candidate after the other, with retries
                  Backend.run   backends/               the model, on this machine in the pool; its result
            _join_and_respond   response/chain.py       the answer, or further tasks
        """
        await self._start(request)
        try:
            context = await self._in_time(self._open(request), _READING)
            async with Executor(
                self._runners, self._store, context, self._settings, self._emit, self.steps
            ) as executor:
                plan = await self._plan_and_start(context, executor)
                plan, results, answer = await self._join_and_respond(context, executor, plan)
            structured, notes = await self._structure(context, plan, results, answer)
            plan += Plan(notes=notes)
        finally:
            await self._close_store()
        self._finish(context, plan, results, answer, structured)

    def _finish(
        self, context: RunContext, plan: Plan, results: list[TaskResult], answer: str, structured: Any
    ) -> None:
        """Remember the run as a chat turn, and emit it."""
        now, usage = self._clock(), self.steps.meter.usage
        times = [time for result in results for time in (result.started, result.ended)] or [0.0]
        timings = {**self._timings, "execute": max(times) - min(times), "total": now}
        run = Run(
            answer=answer,
            plan=plan,
            results=results,
            usage=usage,
            timings=timings,
            structured_response=structured,
        )
        if self.remember is not None:
            files = tuple(part for part in (*context.files, *run.resources) if part.path is not None)
            number = context.turn_number
            self.remember(ChatTurn(context.request, answer, files, made=run.made, number=number))
        self._emit(Event(kind="done", seconds=now, run=run))

    async def _start(self, request: Request) -> None:
        """Name the run's directory. A resumed run keeps name and beginning, with a later deadline."""
        request.check_length()
        if not request.text and not request.blocks:
            raise InputError('the request is empty; write what is to be done, such as "what is in cat.jpg?"')

        def start() -> tuple[str, float]:
            return str(RunDirectory(self._settings).path), time.time()

        directory, began = await self.steps.run_once("begin", lambda: asyncio.to_thread(start), _START)
        self._store = ResourceStore(self._settings, directory=Path(directory))
        elapsed = max(0.0, time.time() - began)
        self._clock.began -= elapsed
        self._deadline += elapsed

    async def _open(self, request: Request, *, makes_files: bool = True) -> RunContext:
        """Find the runners and open the files."""
        if makes_files:
            await asyncio.to_thread(self._store.directory.prepare)
        self._runners = await self.stages.find_runners()
        files, turns, self._notes = await self.steps.run_once(
            "files", lambda: self._store.open(request, self.turns), _OPENED
        )
        if self.steps.is_stored:
            await self._store.reopen(files, turns)
        return RunContext(
            request=request.text,
            files=tuple(files),
            turns=tuple(turns),
            request_count=self.request_count,
            specs={name: runner.spec for name, runner in self._runners.items()},
            config=self._config,
            restricted=not self._settings.allow_request_paths,
            reserve_hosted=self.steps.meter.reserve_hosted,
            hosted_price=self.steps.meter.hosted_price,
            clock=self._clock,
        )

    async def _plan_and_start(self, context: RunContext, executor: Executor) -> Plan:
        """The plan. Its tasks start as they come; with a checkpointer, once it is stored and approved."""
        start = None if self.steps.is_stored else executor.start
        plan, self._timings["plan"] = await self.steps.run_once(
            "plan", lambda: self._run_planners(context, start), _TIMED_PLAN
        )
        return await self._start_tasks(plan, context, executor)

    async def _start_tasks(
        self,
        new: Plan,
        context: RunContext,
        executor: Executor,
        earlier: Plan | None = None,
        results: Sequence[TaskResult] = (),
    ) -> Plan:
        """Start the approved tasks of a plan; those that were streamed run already.

        Returns the plan after an `earlier` one, which has these results.
        """
        approved, models = Approved(plan=new), dict[int, Selection | None]()
        if self.steps.is_stored and new.tasks:
            approved, models = await self._approve(new, context, results)
        plan = (earlier or Plan()) + approved.plan
        self._emit(Event(kind="planned", seconds=self._clock(), plan=plan))
        executor.start(approved.plan, models, approved.answers)
        return plan

    async def _approve(
        self, plan: Plan, context: RunContext, results: Sequence[TaskResult]
    ) -> tuple[Approved, dict[int, Selection | None]]:
        """The approved plan, and the models that were shown for approval, by task id."""
        self._approvals += 1
        suffix = f" {self._approvals}" if self._approvals > 1 else ""
        was_asked = False

        async def decide() -> Approved:
            nonlocal was_asked
            was_asked = True
            if self.ask is None:
                return Approved(plan=plan)
            while self._asked:  # LangGraph tells the interrupts of a node apart by their order
                self._asked -= 1
                self.ask({})
            return approve(plan, planned, context, self.ask, results)

        planned: list[PlannedTask] = []
        if self.ask is not None:
            planned = await self.steps.run_once(
                f"{PROPOSAL}{suffix}", lambda: self._preview_models(plan, context), _PLANNED_TASKS
            )
        approved = await self.steps.run_once(f"{DECISION}{suffix}", decide, _APPROVED)
        self._asked += 0 if was_asked else approved.asked
        kept = [step for step in planned if step.task in approved.plan.tasks]
        return approved, {step.task.id: step.selection for step in kept}

    async def _preview_models(self, plan: Plan, context: RunContext) -> list[PlannedTask]:
        """Select the models of all tasks in advance, to show them for approval."""
        context = replace(context, preference=plan.preference)

        async def preview(task: Task) -> PlannedTask:
            runner = self._runners.get(task.task)
            if runner is None:
                return PlannedTask(task=task)
            try:
                selection = await run_with_timeout(
                    self._settings.task_timeout, runner.select(task, context), f"the choice for {task.task}"
                )
            except Exception as error:
                # The task fails with the same error when it runs, and its result says so.
                logger.debug("no model is known for %s: %s", task.task, describe_error(error))
                return PlannedTask(task=task)
            backends = getattr(runner, "registry", self.stages.registry).backends
            store, meter = open_store(), self.steps.meter
            step = await asyncio.to_thread(planned_task, task, selection, backends, meter, store)
            return step.model_copy(update={"read_only": runner.spec.read_only})

        async def judge(step: PlannedTask) -> PlannedTask:
            asks = await needs_approval(self.approval_policy, step, context)
            return step.model_copy(update={"needs_approval": asks})

        steps = await gather_limited(preview, plan.tasks)
        return await gather_limited(judge, steps)

    async def _run_planners(
        self, context: RunContext, start: Callable[[Plan], None] | None = None
    ) -> tuple[Plan, float]:
        """The plan, as far as it was written in time, and the seconds it took."""
        started, plan = self._clock(), Plan(notes=self._notes)
        inputs = _inputs(context, tools=context.specs)
        for planner in filter(None, (self.stages.planner, self.stages.fallback_planner)):
            part, is_complete = await self._ask_planner(planner, inputs, start)
            plan += part
            if is_complete or plan.tasks:
                break
        if not plan.tasks:  # whatever the notes say, nothing is done
            plan = plan.model_copy(update={"removed": plan.notes})
        return self._shown(plan), self._clock() - started

    async def _ask_planner(
        self,
        planner: Runnable[Any, Plan],
        inputs: Any,
        start: Callable[[Plan], None] | None = None,
    ) -> tuple[Plan, bool]:
        """What a planner wrote, and whether it came to its end; a note says why not. `start` gets parts."""
        plan = Plan()

        def read(chunk: Any) -> None:
            nonlocal plan
            if not isinstance(chunk, Plan):
                raise PlanError(
                    f"the planner returned a {type(chunk).__name__}, not a Plan; `Plan(tasks=[…])` makes one "
                    "of tasks, `Plan.parse` of a language model's text"
                )
            plan += chunk
            if start is not None:
                start(chunk)

        try:
            await self._stream(planner, inputs, read, "the planner", 5)
        except Exception as error:
            note = Note("planning failed: {reason}", reason=describe_error(error))
            if not isinstance(error, JarvisError):
                log_error(logger, "planning failed", error)
        else:
            return plan, True
        return plan + Plan(notes=[note], removed=[note] if plan.tasks else []), False

    async def _join_and_respond(
        self, context: RunContext, executor: Executor, plan: Plan
    ) -> tuple[Plan, list[TaskResult], str]:
        """The whole plan, its results and the answer. In each round, the responder looks at the results.

        It adds tasks that need them, or answers: at the latest in the last round, or after a list without a
        new task.
        """
        left, number = MAX_ROUNDS if plan.tasks and self.stages.goes_on else 1, 0
        while True:
            results = [*map(self._shown, await executor.join(plan.tasks, self._deadline))]
            if len(results) > len(plan.tasks):  # some ran once for each of several results
                tasks, notes = [result.task for result in results], [*plan.notes, *executor.notes]
                plan = plan.model_copy(update={"tasks": tasks, "notes": list(dict.fromkeys(notes))})
                self._emit(Event(kind="planned", seconds=self._clock(), plan=plan))
            left, number = left - 1, number + 1
            reply = await self._respond(context, plan, results, number, context.specs if left > 0 else None)
            if isinstance(reply, str):
                return plan, results, reply
            count = len(plan.tasks)
            plan = await self._start_tasks(reply, context, executor, plan, results)
            left = left if len(plan.tasks) > count else 0

    async def _respond(
        self,
        context: RunContext,
        plan: Plan,
        results: list[TaskResult],
        number: int,
        tools: Mapping[str, TaskSpec] | None = None,
    ) -> str | Plan:
        """The answer, or with `tools` a Plan of further tasks.

        If the writer of the answer fails or exceeds its time, the report completes it.
        """
        started, pieces, further = self._clock(), list[str](), list[Plan]()

        def show(piece: Any) -> None:
            if isinstance(piece, Plan) and tools is not None:
                further.append(piece)
                return
            if not isinstance(piece, str):
                raise TypeError(f"the responder returned no text: {piece!r}")
            pieces.append(piece)
            self._emit(Event(kind="token", seconds=self._clock(), text=piece))

        async def write() -> str | Plan:
            if not plan.tasks and plan.notes == [REJECTED]:
                show(phrases(context.request).rejected)
                return pieces[0]
            options = {"restricted": context.restricted, "language": self.language, "tools": tools}
            options["available"] = context.specs
            inputs = _inputs(context, plan=plan, results=results, **options)
            try:
                await self._stream(self.stages.responder, inputs, show, "the responder", 2)
            except Exception as error:
                if not isinstance(error, JarvisError):
                    log_error(logger, "the answer could not be written", error)
                for piece in report_after_failure(inputs, bool(pieces), describe_error(error)):
                    show(piece)
            if further and not pieces:
                return sum(further, Plan())
            if plan.preference and plan.tasks:
                show(f"\n\n{phrases(context.request).preferred[plan.preference]}")
            return "".join(pieces)

        step = "answer" if number == 1 else f"answer {number}"
        reply = await self.steps.run_once(step, write, _REPLY)
        if isinstance(reply, str) and not pieces:
            show(reply)
        self._timings["respond"] = self._timings.get("respond", 0.0) + self._clock() - started
        return reply

    async def _structure(
        self, context: RunContext, plan: Plan, results: list[TaskResult], answer: str
    ) -> tuple[Any, list[str]]:
        """The answer as plain JSON of the response format, or a note why there is none."""
        structure = self.stages.structure
        if structure is None or plan.notes == [REJECTED]:
            return None, []

        async def write() -> tuple[Any, list[str]]:
            inputs = _inputs(context, plan=plan, results=results, answer=answer)
            try:
                call = structure.ainvoke(inputs, self._config)
                return await self._in_time(call, "the structured answer", 2), []
            except Exception as error:
                if not isinstance(error, JarvisError):
                    log_error(logger, "the structured answer failed", error)
                return None, [f"there is no structured answer: {describe_error(error)}"]

        return await self.steps.run_once("structure", write, _STRUCTURED)

    async def _stream(
        self, stage: Runnable[Any, Any], inputs: Any, read: Callable[[Any], None], name: str, factor: float
    ) -> None:
        """Pass the chunks of a stage to `read` in its time."""
        is_over = False

        async def stream() -> None:
            chunks = cast("AsyncGenerator[Any, None]", stage.astream(inputs, self._config))
            async with aclosing(chunks):
                async for chunk in chunks:
                    if is_over:  # a stage that ignores its cancellation may still write
                        return
                    read(chunk)
                    await asyncio.sleep(0)  # others run, also if the stage never waits

        try:
            await self._in_time(stream(), name, factor)
        finally:
            is_over = True

    def _shown(self, model: ModelT) -> ModelT:
        """A part of the run as who asked may see it: clients of a server get no details and no advice."""
        return model if self._settings.allow_request_paths else as_public(model)

    async def _in_time(self, work: Coroutine[Any, Any, T], name: str, factor: float = inf) -> T:
        """Await a stage for `factor` times the limit of a call, or for what is left of the run's."""
        timeout, seconds = self._settings.llm_timeout, self._settings.budget.run_seconds
        own = factor * timeout, limit_of(f"JARVIS_LLM_TIMEOUT={timeout:g}")
        left = self._deadline - self._clock(), limit_of(f"JARVIS_BUDGET=seconds={seconds:g}")
        limit, advice = min(own, left)
        return await run_with_timeout(limit, work, name, advice)

    async def _close_store(self) -> None:
        try:
            async with asyncio.timeout(cancellation.GRACE_S):
                await run_in_daemon_thread(self._store.directory.close)
        except TimeoutError:
            logger.warning("closing the directory of a run timed out; it is left open")


def _inputs(context: RunContext, **more: Any) -> dict[str, Any]:
    return {"input": context.request, "files": context.files, "chat_history": context.turns, **more}
