"""A session in steps: plan, let somebody approve, execute, answer; each is stored before the next begins."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig
from pydantic import TypeAdapter

from jarvis_agent.durable.steps import Steps, TaskJournal
from jarvis_agent.errors import InputError
from jarvis_agent.execute import Emit, Executor, Worker
from jarvis_agent.memory import turns_of
from jarvis_agent.plan import Plan, PlanBuilder
from jarvis_agent.request import Brief, Request, Turn
from jarvis_agent.respond import Responder
from jarvis_agent.run import Event
from jarvis_agent.session import Session, Stages, announce, turn_of
from jarvis_agent.types import TaskResult, Usage

Ask = Callable[[dict[str, Any]], Any]
"""Shows a plan, stops the run until somebody has decided, and returns what was decided."""

REJECTED = "the plan was rejected, so nothing was run"

_TURNS = TypeAdapter(list[Turn])
_USAGE = TypeAdapter(dict[str, Usage])


def turns_from(stored: Any) -> list[Turn]:
    """The turns of a thread, from the JSON that `turns_to` made of them; [] from None."""
    return _TURNS.validate_python(stored or [])


def turns_to(turns: Sequence[Turn]) -> Any:
    """The turns as plain JSON."""
    return _TURNS.dump_python(list(turns), mode="json")


class DurableSession(Session):
    """The run of one request, whose stages are steps.

    `turns` are the thread's earlier turns, and this one when it is over. With `ask`, the plan is put before
    somebody ahead of its execution.
    """

    def __init__(
        self,
        stages: Stages,
        config: RunnableConfig,
        directory: Path,
        *,
        steps: Steps,
        turns: Sequence[Turn] = (),
        ask: Ask | None = None,
    ) -> None:
        super().__init__(stages, config, directory)
        self.turns = list(turns)
        self._steps = steps
        self._ask = ask

    def _turns(self, request: Request) -> tuple[Turn, ...]:
        known = {(turn.request, turn.answer) for turn in self.turns}
        told = (turn for turn in turns_of(request.history) if (turn.request, turn.answer) not in known)
        return (*told, *self.turns)

    async def _execute(
        self, brief: Brief, workers: Mapping[str, Worker], emit: Emit
    ) -> tuple[Plan, list[TaskResult]]:
        async def make_plan() -> dict[str, Any]:
            plan = await self._plan_in_time(brief, lambda task: None)
            return {"plan": plan.model_dump(mode="json"), "usage": _dumped(brief)}

        stored = await self._steps.once("plan", make_plan)
        brief.meter.usage.update(_USAGE.validate_python(stored["usage"]))
        plan = self._approved(Plan.model_validate(stored["plan"]), brief)
        announce(brief, plan)
        emit(Event(kind="planned", seconds=self._clock(), plan=plan))
        journal = TaskJournal(self._steps)
        async with Executor(
            workers, self._store, brief, self._settings, emit, self._clock, journal
        ) as executor:
            results = await executor.join(plan.tasks, self._settings.run_timeout)
            plan, results = await self._go_on(executor, brief, plan, results, emit)
        self._time_execution(results)
        return plan, results

    async def _replan(self, turn: int, brief: Brief, plan: Plan, results: Sequence[TaskResult]) -> Plan:
        """As a step, which is taken even where nothing failed: what is stored comes in a fixed order.

        Where somebody approves plans, none is run that nobody has seen.
        """
        if self._ask is not None or self._stages.replanner is None or not plan.tasks:
            return Plan()

        async def plan_again() -> dict[str, Any]:
            more = await super(DurableSession, self)._replan(turn, brief, plan, results)
            return {"plan": more.model_dump(mode="json"), "usage": _dumped(brief)}

        stored = await self._steps.once(f"replan {turn}", plan_again)
        brief.meter.usage.update(_USAGE.validate_python(stored["usage"]))
        return Plan.model_validate(stored["plan"])

    def _approved(self, plan: Plan, brief: Brief) -> Plan:
        """The plan that somebody decided on: this one, an edited one, or none.

        Raises:
            InputError: the decision is none of these.
        """
        if self._ask is None or not plan.tasks:
            return plan
        shown = {"request": brief.request, "plan": json.loads(plan.to_json()), "notes": plan.notes}
        decision = self._ask(shown)
        if decision in (True, "approve"):
            return plan
        if decision in (False, None, "reject"):
            return Plan(notes=[REJECTED])
        if isinstance(decision, Mapping):
            decision = decision.get("plan")
        if not isinstance(decision, list | str):
            raise InputError(
                "a plan is approved with True, rejected with False, or replaced by a list of tasks; "
                f"this is none of them: {decision!r}"
            )
        builder = PlanBuilder(brief.specs)
        builder.feed(decision if isinstance(decision, str) else json.dumps(decision))
        builder.finish()
        return builder.plan

    async def _respond(self, brief: Brief, plan: Plan, results: list[TaskResult], emit: Emit) -> str:
        said: list[str] = []

        async def write() -> dict[str, Any]:
            said.append(await super(DurableSession, self)._respond(brief, plan, results, emit))
            return {"answer": said[0], "usage": _dumped(brief)}

        stored = await self._steps.once("answer", write)
        brief.meter.usage.update(_USAGE.validate_python(stored["usage"]))
        if not said:
            emit(Event(kind="token", seconds=self._clock(), text=stored["answer"]))
        return str(stored["answer"])

    def _responder(self, plan: Plan) -> Responder:
        return self._stages.report if plan.notes == [REJECTED] else super()._responder(plan)

    def _remember(self, brief: Brief, answer: str, results: list[TaskResult]) -> None:
        self.turns.append(turn_of(brief, answer, results))


def _dumped(brief: Brief) -> Any:
    return _USAGE.dump_python(brief.meter.usage, mode="json")
