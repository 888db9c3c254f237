"""Planner: a request becomes a plan. LLMPlanner is the paper's: a language model writes it.

    planner = LLMPlanner(controller, settings, load_prompts("default"))
    plan = await planner.plan(brief, on_task=executor.add)     # tasks start while the model still writes

What the model wrote wrong and no rule can mend goes back to it, with what is wrong and nothing else, at most
`Settings.repair_rounds` times. What is broken then is left out, with a note.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Protocol

from jarvis_agent.errors import LLMError
from jarvis_agent.plan import Plan, PlanBuilder
from jarvis_agent.tools.spec import Arg, TaskSpec
from jarvis_agent.types import Task

if TYPE_CHECKING:
    from jarvis_agent.llm import Controller
    from jarvis_agent.prompting import PromptSet
    from jarvis_agent.request import Brief
    from jarvis_agent.settings import Settings


class Planner(Protocol):
    """Plans requests."""

    async def plan(self, brief: Brief, on_task: Callable[[Task], None]) -> Plan:
        """Plan a request.

        Args:
            brief: the request, and the task types that may be used.
            on_task: called with each task as soon as it is final, in the order of the plan.

        Returns:
            The plan, with the tasks that `on_task` was given.

        Raises:
            LLMError: the language model failed before its first task.
        """
        ...


class LLMPlanner:
    """Has a language model write the plan, and reads it while it is being written."""

    def __init__(self, controller: Controller, settings: Settings, prompts: PromptSet) -> None:
        """`settings.repair_rounds` and `settings.logit_bias` matter here."""
        self._controller = controller
        self._settings = settings
        self._prompts = prompts

    async def plan(self, brief: Brief, on_task: Callable[[Task], None]) -> Plan:
        """As `Planner.plan`."""
        builder = PlanBuilder(brief.specs)

        def give_out(tasks: list[Task]) -> None:
            for task in tasks:
                on_task(task)

        messages = self._prompts.plan_messages(brief)
        try:
            async with aclosing(
                self._controller.stream("plan", messages, brief, **self._form(brief))
            ) as pieces:
                async for piece in pieces:
                    give_out(builder.feed(piece))
        except LLMError as error:
            give_out(builder.finish())
            if not builder.plan.tasks:
                raise
            builder.note(f"the language model stopped before its plan was complete: {error}")
            return builder.plan
        give_out(builder.finish())
        for _ in range(self._settings.repair_rounds):
            if not builder.broken:
                break
            give_out(builder.mend(await self._written_again(builder, brief)))
        return builder.plan

    async def _written_again(self, builder: PlanBuilder, brief: Brief) -> str:
        """What the language model writes for what is broken; nothing if it fails."""
        broken = [(each.raw, each.error) for each in builder.broken]
        messages = self._prompts.repair_messages(broken, brief.specs)
        try:
            return await self._controller.complete("repair", messages, brief, **self._form(brief))
        except LLMError as error:
            builder.note(f"the language model could not mend its plan: {error}")
            return ""

    def _form(self, brief: Brief) -> dict[str, Any]:
        """What the reply should look like, for models that can be held to it."""
        names = list(brief.specs) if self._settings.logit_bias else []
        return {"schema": plan_schema(brief.specs), "bias": names}


def plan_schema(specs: Mapping[str, TaskSpec]) -> dict[str, Any] | None:
    """The JSON schema of a plan of these tasks; None where there are none to choose from.

    Tasks that take the same arguments share one form, so that a task has its own arguments and no others. It
    is closed, as strict structured output wants it (every argument is there, and null where it may be left
    out), unless a tool takes arguments that are not known.
    """
    if not specs:
        return None
    closed = not any(spec.is_open or any(arg.kind == "any" for arg in spec.inputs) for spec in specs.values())
    forms: dict[str, tuple[list[str], dict[str, Any]]] = {}
    for spec in specs.values():
        args = {arg.name: _value(arg) for arg in spec.inputs}
        forms.setdefault(json.dumps(args), ([], args))[0].append(spec.name)
    tasks = [_task_form(names, args, closed) for names, args in forms.values()]
    return _object({"tasks": {"type": "array", "items": {"anyOf": tasks}}}, closed)


def _task_form(names: list[str], args: dict[str, Any], closed: bool) -> dict[str, Any]:
    task = {
        "task": {"type": "string", "enum": names},
        "id": {"type": "integer"},
        # Held to a list without an end, small models write -1 until their tokens are spent.
        "dep": {"type": "array", "items": {"type": "integer"}, "maxItems": 8},
        "args": _object(args, closed, optional=not closed),
    }
    return _object(task, closed)


def _object(properties: dict[str, Any], closed: bool, optional: bool = False) -> dict[str, Any]:
    required = [] if optional else list(properties)
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        **({"additionalProperties": False} if closed else {}),
    }


def _value(arg: Arg) -> dict[str, Any]:
    if arg.kind == "any":
        return {}
    if arg.many:
        forms: list[dict[str, Any]] = [{"type": "array", "items": {"type": "string"}}]
    elif arg.kind == "data":
        numbers = {"type": "array", "items": {"type": "number"}}
        forms = [{"type": "number"}, {"type": "string"}, numbers]
    else:
        forms = [{"type": "string"}]
    if not arg.required:
        forms.append({"type": "null"})
    return forms[0] if len(forms) == 1 else {"anyOf": forms}
