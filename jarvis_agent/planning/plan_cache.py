"""Plans that were made before: the same request, with the same files and chat, gets the same plan.

    planner = CachedPlanner(LLMPlanner(...), Shelf(settings.plan_cache, settings.cache_days), "gpt-5-mini")

The key holds all that a plan depends on: the request's words, the names and kinds of its files, the chat
before it, the task types that are offered, the language model, its prompt with the worked examples, and the
settings that say what is shown of them. A plan says what to do with a file, whatever is in it, so a changed
file is no other key. Words count letter for letter but for white space around them, since quoted words become
a part of the plan.
"""

from __future__ import annotations

import asyncio
import json
import unicodedata
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from jarvis_agent.core.chat_log import chat_log
from jarvis_agent.llm.errors import describe_model
from jarvis_agent.planning.plan import Plan
from jarvis_agent.planning.chain import Planner
from jarvis_agent.core.request import RunContext
from jarvis_agent.core.disk_cache import Shelf
from jarvis_agent.core.types import Task

if TYPE_CHECKING:
    from jarvis_agent.llm.client import LLMClient
    from jarvis_agent.llm.prompts import PromptSet
    from jarvis_agent.core.settings import Settings

_SHOWN = ("demos", "demos_shown", "tools_offered", "context_tokens", "structured", "logit_bias")
"""The settings that say what the language model is shown, and in what form it replies."""

FROM_CACHE = "this plan was made for an earlier request in the same words"


class CachedPlanner:
    """Looks for a plan before it has one made. Only plans in which nothing had to be mended are kept."""

    def __init__(self, planner: Planner, shelf: Shelf, by: str) -> None:
        """`by` stands for the language model, and what it is shown (see `planned_by`)."""
        self._planner = planner
        self._shelf = shelf
        self._by = by

    async def plan(self, brief: RunContext, on_task: Callable[[Task], None]) -> Plan:
        """As `Planner.plan`; a plan from the cache has a note that says so."""
        key = plan_key(brief, self._by)
        if tasks := _tasks(await asyncio.to_thread(self._shelf.get, key)):
            for task in tasks:
                on_task(task)
            return Plan(tasks=tasks, notes=[FROM_CACHE])
        plan = await self._planner.plan(brief, on_task)
        if plan.tasks and not plan.notes:
            kept = [task.model_dump(mode="json") for task in plan.tasks]
            await asyncio.to_thread(self._shelf.put, key, kept)
        return plan


def kept(planner: Planner, settings: Settings, controller: LLMClient, prompts: PromptSet) -> Planner:
    """The planner behind the cache that the settings want; as it is where they want none."""
    if settings.plan_cache is None:
        return planner
    by = planned_by(describe_model(controller.model), settings, prompts)
    return CachedPlanner(planner, Shelf(settings.plan_cache, settings.cache_days), by)


def planned_by(model: str, settings: Settings, prompts: PromptSet) -> str:
    """All that a plan depends on besides its request, as text."""
    demos = [(demo.request, demo.written) for demo in prompts.demonstrations]
    shown = {name: getattr(settings, name) for name in _SHOWN}
    return json.dumps([model, prompts.texts["plan"], demos, shown])


def plan_key(brief: RunContext, by: str) -> list[Any]:
    """What a plan depends on, as plain JSON."""
    files = [[file.kind, file.name] for file in brief.files]
    specs = sorted(repr(spec) for spec in brief.specs.values())
    return [by, normalised(brief.request), files, chat_log(brief.turns), specs]


def normalised(request: str) -> str:
    """A request as it is in a key: composed letters, one kind of line end, no white space around it."""
    return unicodedata.normalize("NFC", request).replace("\r\n", "\n").strip()


def _tasks(kept: Any) -> list[Task]:
    try:
        return [Task.model_validate(task) for task in kept or []]
    except (ValidationError, TypeError):
        return []
