"""A session in steps: plan, let somebody approve, execute, answer; each is stored before the next begins."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig
from pydantic import TypeAdapter

from jarvis_agent.agent.checkpoints import CheckpointedSteps, CheckpointStore
from jarvis_agent.agent.memory import TURNS
from jarvis_agent.agent.pipeline import PipelineStages, RunPipeline, turn_of
from jarvis_agent.core.chat_log import turns_of
from jarvis_agent.core.messages import phrases
from jarvis_agent.core.request import ChatTurn, Request, RunContext
from jarvis_agent.core.types import Resource, TaskResult
from jarvis_agent.execution.executor import Emit, Executor, TaskRunner
from jarvis_agent.execution.run import Event
from jarvis_agent.planning.parser import StreamingPlanParser
from jarvis_agent.planning.plan import Plan
from jarvis_agent.response.chain import Responder

Ask = Callable[[dict[str, Any]], Any]
"""Shows a plan, stops the run until somebody has decided, and returns what was decided."""

REJECTED = "the plan was rejected, so nothing was run"

_WORDS = dict.fromkeys(("true", "yes", "y", "ok", "okay", "approve", "approved"), True) | dict.fromkeys(
    ("false", "no", "n", "reject", "rejected"), False
)
"""What people say for True and False."""

_TURNS = TypeAdapter(list[ChatTurn])
_JSON: TypeAdapter[Any] = TypeAdapter(Any)


def as_json(decision: Any) -> Any:
    """What was decided on a plan, such as a Plan or a list of Tasks, as plain JSON, which can be stored."""
    return _JSON.dump_python(decision, mode="json", fallback=str)


def turns_from(stored: Any) -> list[ChatTurn]:
    """The turns of a thread, from the JSON that `turns_to` made of them; [] from None."""
    return _TURNS.validate_python(stored or [])


def turns_to(turns: Sequence[ChatTurn]) -> Any:
    """The turns as plain JSON."""
    return _TURNS.dump_python(list(turns), mode="json")


class DurableSession(RunPipeline):
    """The run of one request, whose stages are steps.

    `turns` are the newest of the thread's earlier turns, and this one when it is over. With `ask`, the plan
    is put before somebody ahead of its execution. Times count from `began` (seconds since the epoch), when
    the run began for the first time; the deadline, from now.
    """

    def __init__(
        self,
        stages: PipelineStages,
        config: RunnableConfig,
        directory: Path,
        *,
        steps: CheckpointedSteps,
        began: float,
        turns: Sequence[ChatTurn] = (),
        ask: Ask | None = None,
    ) -> None:
        super().__init__(stages, config, directory)
        elapsed = max(0.0, time.time() - began)
        self._began -= elapsed
        self._deadline += elapsed
        self.turns = list(turns)
        self._steps = steps
        self._ask = ask

    def _turns(self, request: Request) -> tuple[ChatTurn, ...]:
        known = {(turn.request, turn.answer) for turn in self.turns}
        told = (turn for turn in turns_of(request.history) if (turn.request, turn.answer) not in known)
        return (*told, *self.turns)

    async def _files(self, request: Request) -> list[Resource]:
        """As a step: what was opened once is not asked for again, and may be gone where no task needs it."""

        async def look() -> list[Any]:
            files = await super(DurableSession, self)._files(request)
            return [file.model_dump(mode="json") for file in files]

        files = [Resource.model_validate(file) for file in await self._steps.once("files", look)]
        self._store.admit(files)
        for file in files:
            if file.path is None:
                await self._store.grant_mention(file.name)
        return files

    async def _execute(
        self, brief: RunContext, workers: Mapping[str, TaskRunner], emit: Emit
    ) -> tuple[Plan, list[TaskResult]]:
        async def make_plan() -> dict[str, Any]:
            plan = await self._plan_in_time(brief, lambda task: None)
            return {"plan": plan.model_dump(mode="json"), "seconds": self._timings["plan"]}

        stored = await self._steps.once("plan", make_plan, brief.meter)
        self._timings["plan"] = stored["seconds"]
        plan = await self._decided(Plan.model_validate(stored["plan"]), brief)
        emit(Event(kind="planned", seconds=self._clock(), plan=plan))
        stored_results = CheckpointStore(self._steps, brief.meter)
        async with Executor(
            workers, self._store, brief, self._settings, emit, self._clock, stored_results
        ) as executor:
            results = await executor.join(plan.tasks, self._deadline)
            plan, results = await self._go_on(executor, brief, plan, results, emit)
        self._time_execution(results)
        return plan, results

    async def _replan(self, turn: int, brief: RunContext, plan: Plan, results: Sequence[TaskResult]) -> Plan:
        """As a step, which is taken even where nothing failed: what is stored comes in a fixed order.

        Where somebody approves plans, none is run that nobody has seen.
        """
        if self._ask is not None or self._stages.replanner is None or not plan.tasks:
            return Plan()

        async def plan_again() -> dict[str, Any]:
            more = await super(DurableSession, self)._replan(turn, brief, plan, results)
            return more.model_dump(mode="json")

        return Plan.model_validate(await self._steps.once(f"replan {turn}", plan_again, brief.meter))

    async def _decided(self, plan: Plan, brief: RunContext) -> Plan:
        """As a step: what was decided holds, whether or not the process that goes on would ask."""

        async def decide() -> Any:
            decided = self._approved(plan, brief)
            return None if decided is plan else decided.model_dump(mode="json")

        stored = await self._steps.once("decision", decide)
        return plan if stored is None else Plan.model_validate(stored)

    def _approved(self, plan: Plan, brief: RunContext) -> Plan:
        """The plan that somebody decided on: this one, an edited one, or none.

        It asks until the decision is one. An edited plan that had to be mended is shown again as it is now:
        none is run that nobody has seen.
        """
        if self._ask is None or not plan.tasks:
            return plan
        shown: dict[str, Any] = {"request": brief.request, "plan": _rows(plan), "notes": plan.notes}
        while True:
            decision = as_json(self._ask(shown))
            for name in ("plan", "tasks"):
                if isinstance(decision, Mapping):
                    decision = decision.get(name, decision)
            if isinstance(decision, str):
                decision = _WORDS.get(decision.strip().strip(".!").casefold(), decision)
            if decision is True:
                return plan
            if decision is False or decision == []:
                return Plan(notes=[REJECTED])
            edited = _edited(decision, brief)
            if edited.tasks and not edited.notes:
                return edited
            if edited.tasks:
                plan = edited
            shown |= {"plan": _rows(plan), "notes": plan.notes, "given": decision}
            shown["problem"] = "; ".join(edited.notes)

    async def _respond(self, brief: RunContext, plan: Plan, results: list[TaskResult], emit: Emit) -> str:
        said: list[str] = []

        async def write() -> str:
            said.append(await super(DurableSession, self)._respond(brief, plan, results, emit))
            return said[0]

        answer = str(await self._steps.once("answer", write, brief.meter))
        if not said:
            emit(Event(kind="token", seconds=self._clock(), text=answer))
        return answer

    def _responder(self, plan: Plan) -> Responder:
        return _Refusal() if plan.notes == [REJECTED] else super()._responder(plan)

    def _remember(self, brief: RunContext, answer: str, results: list[TaskResult]) -> None:
        self.turns = [*self.turns, turn_of(brief, answer, results)][-TURNS:]


class _Refusal:
    """Answers where a plan was rejected: nothing was misunderstood, so there is nothing to explain."""

    async def respond(
        self, brief: RunContext, plan: Plan, results: Sequence[TaskResult]
    ) -> AsyncGenerator[str, None]:
        """As `jarvis_agent.response.chain.Responder`."""
        yield phrases(brief.request).rejected


def _rows(plan: Plan) -> Any:
    return json.loads(plan.to_json())


def _edited(decision: Any, brief: RunContext) -> Plan:
    """The plan that somebody put in the place of another one; its notes tell what is wrong with it."""
    if not isinstance(decision, list | str):
        return Plan(
            notes=[
                "a plan is approved with True, rejected with False, or replaced by a list of tasks; "
                f"this is none of them: {decision!r}"
            ]
        )
    builder = StreamingPlanParser(brief.specs)
    builder.feed(decision if isinstance(decision, str) else json.dumps(decision))
    builder.finish()
    return Plan(tasks=builder.tasks, notes=builder.notes)
