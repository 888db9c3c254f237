"""Planner: a request becomes a plan. LLMPlanner is the paper's: a language model writes it.

    planner = LLMPlanner(controller, settings, load_prompts("default"))
    plan = await planner.plan(brief, on_task=executor.add)     # tasks start while the model still writes

It is shown the task types that are likely for the request where its context may be short, and the worked
examples that are nearest to it. A plan may use every task type of the brief, shown or not.

What the model wrote wrong and no rule can mend goes back to it, with what is wrong and nothing else, at most
once. What is broken then is left out, with a note; if nothing is left, planning has
failed, and whoever called may try another planner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from jarvis_agent.core.concurrency import run_cpu_bound
from jarvis_agent.core.errors import LLMError
from jarvis_agent.core.tasks.registry import find_task
from jarvis_agent.core.types import Task
from jarvis_agent.planning.demonstrated_schema import demonstrated_schema
from jarvis_agent.planning.example_selector import Demonstration, load_bank, nearest
from jarvis_agent.planning.narrowing import narrowed, narrows
from jarvis_agent.planning.plan import Plan, StreamingPlanParser
from jarvis_agent.planning.retrieval import Similarity
from jarvis_agent.planning.schema import files_by_kind, plan_schema

if TYPE_CHECKING:
    from jarvis_agent.core.request import RunContext
    from jarvis_agent.core.settings import Settings
    from jarvis_agent.llm.client import LLMClient
    from jarvis_agent.llm.prompts import PromptSet


SHOWN, SHOWN_ALONE = 6, 3
"""How many of the nearest demonstrations are shown: beside the list of tasks, and in its place. A model that
needs the latter often takes the wrong one of many."""


class Planner(Protocol):
    """Plans requests."""

    async def plan(self, brief: RunContext, on_task: Callable[[Task], None]) -> Plan:
        """Plan a request.

        Args:
            brief: the request, and the task types that may be used.
            on_task: called with each task as soon as it is final, in the order of the plan.

        Returns:
            The plan, with the tasks that `on_task` was given.

        Raises:
            LLMError: the language model failed before its first task, or wrote nothing that can be used.
        """
        ...


class LLMPlanner:
    """Has a language model write the plan, and reads it while it is being written."""

    def __init__(self, controller: LLMClient, settings: Settings, prompts: PromptSet) -> None:
        """Of the settings: `logit_bias`, `context_window`."""
        self._controller = controller
        self._settings = settings
        self._prompts = prompts
        self._similarity = Similarity(settings)

    async def plan(self, brief: RunContext, on_task: Callable[[Task], None]) -> Plan:
        """As `Planner.plan`."""
        builder = StreamingPlanParser(brief.specs)

        def give_out(tasks: list[Task]) -> None:
            for task in tasks:
                on_task(task)

        shown, demonstrations = await run_cpu_bound(self._shown, brief)
        form = self._form(shown, demonstrations)
        messages = self._prompts.plan_messages(shown, demonstrations, self._controller.asks_schema)
        try:
            async with aclosing(self._controller.stream("plan", messages, brief, **form)) as pieces:
                async for piece in pieces:
                    give_out(builder.feed(piece))
        except LLMError as error:
            give_out(builder.finish())
            if not builder.plan.tasks:
                raise
            builder.note(f"the language model stopped before its plan was complete: {error}")
            return builder.plan
        give_out(builder.finish())
        if builder.broken:
            give_out(builder.mend(await self._written_again(builder, shown, form)))
        if builder.broken and not builder.plan.tasks:
            raise LLMError(
                f"it wrote nothing that can be used: {'; '.join(builder.plan.notes)}. "
                "Use a larger model; for one of about a billion weights, JARVIS_PROMPTS=small may help."
            )
        return builder.plan

    async def _written_again(
        self, builder: StreamingPlanParser, brief: RunContext, form: Mapping[str, Any]
    ) -> str:
        """What the language model writes for what is broken; nothing if it fails."""
        broken = [(each.raw, each.error) for each in builder.broken]
        messages = self._prompts.repair_messages(broken, brief.specs)
        try:
            return await self._controller.complete("repair", messages, brief, **form)
        except LLMError as error:
            builder.note(f"the language model could not mend its plan: {error}")
            return ""

    def _shown(self, brief: RunContext) -> tuple[RunContext, Sequence[Demonstration]]:
        """What the language model is shown: the brief with the likely task types, and worked examples."""
        same = self._same_for_all()
        if narrows(self._controller.model, self._settings):
            found = (find_task(name, brief.specs) for demo in same or () for name in demo.tasks)
            keep = {spec.name for spec in found if spec is not None}
            brief = replace(brief, specs=narrowed(brief, self._similarity, load_bank(), keep))
        demos = same
        if demos is None:
            demos = nearest(load_bank(), brief, self._similarity, self._count)
        if not self._prompts.lists_tasks:
            used = {name for demo in demos for name in demo.tasks}
            brief = replace(brief, specs={name: spec for name, spec in brief.specs.items() if name in used})
        return brief, demos

    @property
    def _count(self) -> int:
        """How many of the nearest demonstrations are shown."""
        return SHOWN if self._prompts.lists_tasks else SHOWN_ALONE

    def _same_for_all(self) -> Sequence[Demonstration] | None:
        """The demonstrations that every request is shown; None: those nearest to it."""
        return self._prompts.demonstrations if self._prompts.has_own_demonstrations else None

    def _form(self, brief: RunContext, demonstrations: Sequence[Demonstration]) -> dict[str, Any]:
        """What the reply should look like, for models that can be held to it."""
        names = list(brief.specs) if self._settings.logit_bias else []
        if self._prompts.lists_tasks:
            return {"schema": plan_schema(brief.specs, files_by_kind(brief)), "bias": names}
        return {"schema": demonstrated_schema(demonstrations, brief), "bias": names}
