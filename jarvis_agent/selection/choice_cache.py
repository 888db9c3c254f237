"""Choices that the language model made before: the same task of the same request, from the same models.

    kept = KeptChoices(Shelf(settings.selection_cache, settings.cache_days), "gpt-5-mini")
    await kept.find(task, candidates, brief)      # (candidate, "it knows zebras (chosen before)"), or None

What counts is the ids and revisions of the candidates: downloads change daily, and who is best does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from jarvis_agent.planning.plan_cache import normalised
from jarvis_agent.core.request import RunContext
from jarvis_agent.selection.chain import Choice
from jarvis_agent.core.disk_cache import Shelf
from jarvis_agent.core.types import Candidate, Task


class KeptChoices:
    """See the module."""

    def __init__(self, shelf: Shelf, by: str) -> None:
        """`by` is the name of the language model."""
        self._shelf = shelf
        self._by = by

    async def find(self, task: Task, candidates: Sequence[Candidate], brief: RunContext) -> Choice | None:
        """The candidate that was chosen before, and why."""
        kept = await asyncio.to_thread(self._shelf.get, self._key(task, candidates, brief))
        if not isinstance(kept, dict):
            return None
        chosen = next((one for one in candidates if one.id == kept.get("id")), None)
        return (chosen, f"{kept.get('reason')} (chosen before)") if chosen is not None else None

    async def keep(self, task: Task, candidates: Sequence[Candidate], brief: RunContext, choice: Choice) -> None:
        """Keep a choice, if it is one."""
        chosen, reason = choice
        if chosen is not None:
            value = {"id": chosen.id, "reason": reason}
            await asyncio.to_thread(self._shelf.put, self._key(task, candidates, brief), value)

    def _key(self, task: Task, candidates: Sequence[Candidate], brief: RunContext) -> list[Any]:
        models = sorted([one.id, one.revision or ""] for one in candidates)
        return [self._by, normalised(brief.request), task.task, task.args, models]
