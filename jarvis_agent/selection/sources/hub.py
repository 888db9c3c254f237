"""The models of the Hugging Face Hub: one request lists the candidates of a task and their providers."""

import asyncio
import logging
from typing import Any, ClassVar
from urllib.parse import quote

from jarvis_agent.backends.hub import model_card
from jarvis_agent.backends.hub.api import HubApi, Row
from jarvis_agent.core.errors import JarvisError, NoCandidateError, describe_error
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.text import brief_text
from jarvis_agent.core.types import Candidate, Task
from jarvis_agent.selection.ranking import WORD, named_languages

EXPAND = (
    "cardData", "downloads", "evalResults", "gated", "inferenceProviderMapping", "library_name", "likes",
    "model-index", "pipeline_tag", "safetensors", "sha", "tags", "widgetData",
)  # fmt: skip
"""The fields that are requested of each model."""

MAX_SEARCHES, MAX_TAGS = 4, 2
"""Queries for the languages and words of one task, and for words that are tags."""

_SEARCH_S = 5.0
"""Longest wait for them; the most used models are known without them."""
_SHORTEST_WORD, _STEM = 4, 6
_MAX_EXAMPLE_CHARS, _MAX_NAME_CHARS, _MAX_RESULTS = 600, 80, 4

OWN_CATEGORIES = frozenset({"control", "media", "tool"})
"""Categories of task types that the Hub does not have as pipeline tags."""

_BYTES_OF_DTYPE = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2}
_PROVIDER_TASKS = {
    "text-generation": {"text-generation", "conversational"},
    "image-text-to-text": {"conversational"},
    "image-text-to-image": {"image-to-image"},
    "image-text-to-video": {"image-to-video"},
}
"""The task names of providers where those that huggingface_hub calls differ from the Hub's."""

logger = logging.getLogger(__name__)


class HubSource:
    """Lists the Hub's models by downloads, and searches for a purpose."""

    name: ClassVar[str] = "hub"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._api = HubApi(settings)

    async def candidates(self, spec: TaskSpec, limit: int) -> list[Candidate]:
        """Return the most downloaded models with a task's pipeline tag, or its own listing; [] offline.

        Raises TransientError or ConfigError.
        """
        return await self._list(spec, limit) if self.estimate(spec) else []

    async def search(self, spec: TaskSpec, task: Task, limit: int) -> list[Candidate]:
        """Return models for a task, by its languages and the longest words of its purpose, in names and tags.

        A query that fails or is slow gives none. The words go to the Hub, so that the policy `local-only`
        and offline mode allow no search, nor does a task type with a query of its own.
        """
        if not self.estimate(spec) or spec.listing or self._settings.policy == "local-only":
            return []
        named = dict.fromkeys(WORD.findall(task.purpose.lower()))
        words = sorted((word for word in named if len(word) >= _SHORTEST_WORD), key=len, reverse=True)
        # The Hub finds parts of names: "financ" is in "financial", and "plate" where "plates" is not.
        stems = dict.fromkeys(word.removesuffix("s")[:_STEM] for word in words)
        queries = [{"filter": code} for code in sorted(named_languages(task) - {"en"})]
        queries += [{"search": stem} for stem in stems]
        queries = queries[:MAX_SEARCHES] + [{"filter": word} for word in words[:MAX_TAGS]]

        async def ask(query: dict[str, str]) -> list[Candidate]:
            async with asyncio.timeout(_SEARCH_S):
                return await self._list(spec, limit, **query)

        answers = await asyncio.gather(*map(ask, queries), return_exceptions=True)
        for error in (answer for answer in answers if isinstance(answer, BaseException)):
            logger.info("a search on the Hub for %s failed: %s", spec.name, describe_error(error))
        return [model for answer in answers if not isinstance(answer, BaseException) for model in answer]

    async def _list(self, spec: TaskSpec, limit: int, **more: str) -> list[Candidate]:
        query = dict(spec.listing) or {"pipeline_tag": spec.name}
        params = {**query, **more, "sort": "downloads", "limit": limit, "expand": list(EXPAND)}
        rows = await self._api.get("/api/models", params)
        return [candidate_of(row, spec) for row in rows if isinstance(row.get("id"), str)]

    def estimate(self, spec: TaskSpec) -> list[Candidate]:
        """Return a placeholder for any model of the task; [] offline and for tasks that the Hub lacks."""
        is_listed = bool(spec.listing) or spec.category not in OWN_CATEGORIES
        if self._is_offline() or not is_listed:
            return []
        return [Candidate(id="any model of the Hub", task=spec.name, source=self.name, providers=("any",))]

    async def find(self, spec: TaskSpec, model_id: str, revision: str | None = None) -> Candidate | None:
        """Return one model at a revision; None if the Hub does not have it. Raises as `candidates`."""
        if self._is_offline():
            return None
        at = f"/revision/{quote(revision, safe='')}" if revision else ""
        try:
            rows = await self._api.get(f"/api/models/{quote(model_id)}{at}", {"expand": list(EXPAND)})
        except NoCandidateError:
            return None
        return candidate_of({"id": model_id, **rows[0]}, spec) if rows else None

    async def describe(self, candidate: Candidate) -> str:
        """Return the first paragraph of the model card; "" if the card is missing or the Hub fails."""
        if self._is_offline():
            return ""
        path = f"/{quote(candidate.id)}/resolve/{quote(candidate.revision or 'main', safe='')}/README.md"

        def read(card: str) -> str:
            return model_card.first_paragraph(model_card.split_card(card)[1])

        try:
            return str(await self._api.get(path, parse=read))
        except JarvisError as error:
            logger.info("the card of %s cannot be read: %s", candidate.id, error)
            return ""

    def _is_offline(self) -> bool:
        from huggingface_hub import constants

        return self._settings.offline or constants.HF_HUB_OFFLINE


def candidate_of(row: Row, spec: TaskSpec) -> Candidate:
    """Return a row of the Hub's API as a candidate for a task."""
    data = row.get("cardData")
    card: dict[str, Any] = data if isinstance(data, dict) else {}
    tags = model_card.strings(row.get("tags"))
    providers = _providers(row.get("inferenceProviderMapping"), spec)
    return Candidate(
        id=row["id"],
        task=spec.name,
        source="hub",
        library=row.get("library_name") or None,
        description=model_card.describe(card, tags),
        revision=row.get("sha") or None,
        size=_size(row.get("safetensors")),
        downloads=row.get("downloads") or 0,
        likes=row.get("likes") or 0,
        gated=bool(row.get("gated")),
        providers=tuple(providers),
        tags=tags,
        traits=model_card.capabilities(spec.name, row["id"], tags),
        metadata={
            **({"providers": providers} if providers else {}),
            **_evidence(row, spec),
            **model_card.base_models(card),
        },
        **model_card.metadata(card, tags),
    )


def _evidence(row: Row, spec: TaskSpec) -> dict[str, Any]:
    """Return as metadata the data sets with published results for a task, and the card's example inputs."""
    results = [result for entry in _rows(row.get("model-index")) for result in _rows(entry.get("results"))]
    of_task = (result for result in results if _field(result, "task", "type") in ("", spec.name))
    names = [_field(result, "dataset", "name") for result in of_task]
    names += ["the Hub's benchmarks"] if _rows(row.get("evalResults")) else []
    values = [value for example in _rows(row.get("widgetData")) for value in example.values()]
    examples = [value for value in values if isinstance(value, str) and "://" not in value]
    evidence = {
        "results": list(dict.fromkeys(filter(None, names)))[:_MAX_RESULTS],
        "examples": " ".join(examples)[:_MAX_EXAMPLE_CHARS],
    }
    return {name: value for name, value in evidence.items() if value}


def _rows(value: Any) -> list[dict[str, Any]]:
    """The objects in a list."""
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _field(value: dict[str, Any], *path: str) -> str:
    """A text inside nested dicts; "" if there is none."""
    field: Any = value
    for name in path:
        field = field.get(name) if isinstance(field, dict) else None
    return brief_text(field, _MAX_NAME_CHARS) if isinstance(field, str) else ""


def _providers(mapping: Any, spec: TaskSpec) -> dict[str, str]:
    """Return the providers that serve a model live for a task, with its name there."""
    if isinstance(mapping, dict):
        mapping = [{"provider": name, **entry} for name, entry in mapping.items() if isinstance(entry, dict)]
    tasks = _PROVIDER_TASKS.get(spec.name, {spec.name})
    return {
        str(entry.get("provider")): entry["task"]
        for entry in _rows(mapping)
        if entry.get("status") == "live" and entry.get("task") in tasks
    }


def _size(safetensors: Any) -> int | None:
    """Return the bytes of the weights, from the parameter count of each data type."""
    counts = safetensors.get("parameters") if isinstance(safetensors, dict) else None
    if not isinstance(counts, dict) or not counts:
        return None
    return sum(int(count) * _BYTES_OF_DTYPE.get(dtype, 1) for dtype, count in counts.items())
