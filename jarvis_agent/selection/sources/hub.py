"""The models of the Hugging Face Hub: one request lists the candidates for a task and says who serves them.

source = HubSource(settings)
await source.candidates(TASKS["object-detection"], limit=20)
await source.find(TASKS["object-detection"], "facebook/detr-resnet-50", "v1.0")
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from jarvis_agent.core.errors import NoCandidateError, describe_error
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.single_flight import SingleFlight
from jarvis_agent.backends.hub import model_card as cards
from jarvis_agent.selection.sources.hub_api import HubApi, Row
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate

EXPAND = (
    "cardData",
    "downloads",
    "gated",
    "inferenceProviderMapping",
    "library_name",
    "likes",
    "pipeline_tag",
    "safetensors",
    "sha",
    "tags",
)
"""What the Hub is asked to say of each model."""

logger = logging.getLogger(__name__)

_PAUSE = 60.0
"""Seconds for which a card that could not be had is not asked for again."""

_MOST_TOLD = 4096
"""How many cards are remembered; a model that changes has a new one."""

NOT_OF_THE_HUB = frozenset({"control", "media", "tool"})
"""Categories whose task types are ours: the Hub tags no model with them, though it may list some."""

_BYTES_OF_DTYPE = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2}
_SERVED_AS = {
    "text-generation": {"text-generation", "conversational"},
    "image-text-to-text": {"image-text-to-text", "conversational"},
    "image-text-to-image": {"image-text-to-image", "image-to-image"},
    "image-text-to-video": {"image-text-to-video", "image-to-video"},
}
"""The names that providers give to the tasks which they do not call as the Hub does."""


class HubSource:
    """Lists the Hub's models by downloads. `HF_ENDPOINT`, `HF_TOKEN` and offline mode are honoured.

    The parameters after `settings` are those of `HubApi`.
    """

    name: ClassVar[str] = "hub"

    def __init__(
        self,
        settings: Settings,
        *,
        endpoint: str | None = None,
        cache_dir: Path | None = None,
        fresh: float = 3600.0,
        timeout: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._timeout = timeout
        self._clock = clock
        self._told: dict[tuple[str, str | None], tuple[float, str]] = {}
        self._asking = SingleFlight[str | None]()
        self._lists = HubApi(
            settings, endpoint=endpoint, cache_dir=cache_dir, fresh=fresh, timeout=timeout, clock=clock
        )

    async def candidates(self, spec: TaskSpec, limit: int) -> list[Candidate]:
        """The most downloaded models that the Hub lists for the task; [] offline.

        These are those that it tags with the task, unless the task asks for others (`spec.listing`).

        Raises:
            TransientError: the Hub can not be reached or is in trouble, and no older list is there.
            ConfigError: it refuses the token.
        """
        if not self.likely(spec):
            return []
        asked = dict(spec.listing) or {"pipeline_tag": spec.name}
        params = {**asked, "sort": "downloads", "limit": limit, "expand": list(EXPAND)}
        rows = await self._lists.rows("/api/models", params)
        return [candidate_of(row, spec) for row in rows if isinstance(row.get("id"), str)]

    def likely(self, spec: TaskSpec) -> list[Candidate]:
        """Any model of the task, served by anybody; [] offline, and for tasks that are not the Hub's."""
        if self._is_offline() or not is_of_the_hub(spec):
            return []
        return [Candidate(id="any model of the Hub", task=spec.name, source=self.name, providers=("any",))]

    async def find(self, spec: TaskSpec, model_id: str, revision: str | None = None) -> Candidate | None:
        """One model of the Hub, at a revision; None if the Hub has none of that id.

        Raises:
            TransientError, ConfigError: as `candidates`.
        """
        if self._is_offline():
            return None
        path = f"/api/models/{quote(model_id)}" + (
            f"/revision/{quote(revision, safe='')}" if revision else ""
        )
        try:
            rows = await self._lists.rows(path, {"expand": list(EXPAND)})
        except NoCandidateError:
            return None
        return candidate_of({"id": model_id, **rows[0]}, spec) if rows else None

    async def describe(self, candidate: Candidate) -> str:
        """The first paragraph of the model's card, which is remembered; "" if it can not be had soon.

        A card that could not be had is asked for again after a minute.
        """
        key = (candidate.id, candidate.revision)
        until, told = self._told.get(key, (0.0, ""))
        if until > self._clock() or self._is_offline():
            return told
        text = await self._asking.join(key, lambda: asyncio.to_thread(self._card_text, candidate))
        self._told[key] = (inf, text) if text is not None else (self._clock() + _PAUSE, "")
        for oldest in list(self._told)[:-_MOST_TOLD]:
            self._told.pop(oldest, None)
        return text or ""

    def _card_text(self, candidate: Candidate) -> str | None:
        """The first paragraph of a model's card; None if the card can not be had."""
        from huggingface_hub.utils import (  # type: ignore[attr-defined]
            build_hf_headers,
            get_session,
            hf_raise_for_status,
            httpx,
        )

        path = f"{quote(candidate.id)}/resolve/{quote(candidate.revision or 'main', safe='')}/README.md"
        try:
            reply = get_session().get(
                f"{self._lists.endpoint}/{path}",
                headers=build_hf_headers(token=self._settings.token),
                timeout=self._timeout,
                follow_redirects=True,
            )
            hf_raise_for_status(reply)
        except (httpx.HTTPError, OSError) as error:
            logger.info("the card of %s could not be read: %s", candidate.id, describe_error(error))
            return None
        return cards.first_paragraph(cards.card_of(reply.text)[1])

    def _is_offline(self) -> bool:
        from huggingface_hub import constants

        return self._settings.offline or constants.HF_HUB_OFFLINE


def is_of_the_hub(spec: TaskSpec) -> bool:
    """Whether the Hub lists models for a task type."""
    return bool(spec.listing) or spec.category not in NOT_OF_THE_HUB


def candidate_of(row: Row, spec: TaskSpec) -> Candidate:
    """A row of the Hub's API as a candidate for a task."""
    data = row.get("cardData")
    card: dict[str, Any] = data if isinstance(data, dict) else {}
    tags = cards.strings(row.get("tags"))
    served = _served(row.get("inferenceProviderMapping"), spec)
    return Candidate(
        id=row["id"],
        task=spec.name,
        source="hub",
        library=row.get("library_name") or None,
        description=cards.describe(card, tags),
        revision=row.get("sha") or None,
        size=_size(row.get("safetensors")),
        downloads=row.get("downloads") or 0,
        likes=row.get("likes") or 0,
        gated=bool(row.get("gated")),
        providers=tuple(served),
        tags=tags,
        traits=cards.traits(spec.name, row["id"], tags),
        metadata={**({"providers": served} if served else {}), **cards.base_of(card)},
        **cards.facts(card, tags),
    )


def _served(mapping: Any, spec: TaskSpec) -> dict[str, dict[str, str]]:
    """The providers that serve a model live for a task: `{"fal-ai": {"id": …, "task": …}}`."""
    if isinstance(mapping, dict):
        mapping = [{"provider": name, **entry} for name, entry in mapping.items() if isinstance(entry, dict)]
    entries = [entry for entry in mapping if isinstance(entry, dict)] if isinstance(mapping, list) else []
    wanted = _SERVED_AS.get(spec.name, {spec.name})
    return {
        str(entry.get("provider")): {"id": str(entry.get("providerId")), "task": entry["task"]}
        for entry in entries
        if entry.get("status") == "live" and entry.get("task") in wanted
    }


def _size(safetensors: Any) -> int | None:
    """Bytes of the weights, from the count of parameters of each type of number."""
    counts = safetensors.get("parameters") if isinstance(safetensors, dict) else None
    if not isinstance(counts, dict) or not counts:
        return None
    return sum(int(count) * _BYTES_OF_DTYPE.get(dtype, 1) for dtype, count in counts.items())
