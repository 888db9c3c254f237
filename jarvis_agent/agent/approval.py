"""Approval of a plan before it is run: `Command(resume=True | False | [tasks])` answers the question.

    plan = approve(plan, context, ask=interrupt)

A decision may also be a word ("yes", "no"), a plan as JSON text, or a dict with "plan" or "tasks".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import TypeAdapter

from jarvis_agent.core.request import RunContext
from jarvis_agent.planning.parser import StreamingPlanParser
from jarvis_agent.planning.plan import Plan

Ask = Callable[[dict[str, Any]], Any]
"""Shows a plan, stops the run until it is resumed, and returns the decision (LangGraph's `interrupt`)."""

REJECTED = "the plan was rejected, so nothing was run"

_WORDS = dict.fromkeys(("true", "yes", "y", "ok", "okay", "approve", "approved"), True) | dict.fromkeys(
    ("false", "no", "n", "reject", "rejected"), False
)
_JSON: TypeAdapter[Any] = TypeAdapter(Any)


def approve(plan: Plan, context: RunContext, ask: Ask) -> Plan:
    """The approved plan: this one, an edited one, or an empty one with the note REJECTED.

    Asks until the decision is valid. An edited plan that needed repairs is shown again with its `problem`: no
    plan is run that was not shown.
    """
    if not plan.tasks:
        return plan
    shown: dict[str, Any] = {"request": context.request, "plan": _rows(plan), "notes": plan.notes}
    while True:
        decision = decision_of(ask(shown))
        if decision is True:
            return plan
        if decision is False or decision == []:
            return Plan(notes=[REJECTED])
        edited = _edited(decision, context)
        if edited.tasks and not edited.notes:
            return edited
        if edited.tasks:
            plan = edited
        shown |= {"plan": _rows(plan), "notes": plan.notes, "given": decision}
        shown["problem"] = "; ".join(edited.notes)


def to_json(decision: Any) -> Any:
    """A decision, such as a Plan or a list of Tasks, as plain JSON, which can be stored."""
    return _JSON.dump_python(decision, mode="json", fallback=str)


def decision_of(value: Any) -> Any:
    """True, False, or an edited plan as JSON."""
    decision = to_json(value)
    for name in ("plan", "tasks"):
        if isinstance(decision, Mapping):
            decision = decision.get(name, decision)
    if isinstance(decision, str):
        return _WORDS.get(decision.strip().strip(".!").casefold(), decision)
    return decision


def _rows(plan: Plan) -> Any:
    return json.loads(plan.to_json())


def _edited(decision: Any, context: RunContext) -> Plan:
    """The plan of a decision; its notes say what is wrong with it."""
    if not isinstance(decision, list | str):
        return Plan(
            notes=[
                "a plan is approved with True, rejected with False, or replaced by a list of tasks; "
                f"this is none of them: {decision!r}"
            ]
        )
    parser = StreamingPlanParser(context.specs)
    parser.feed(decision if isinstance(decision, str) else json.dumps(decision))
    parser.finish()
    return Plan(tasks=parser.tasks, notes=parser.notes)
