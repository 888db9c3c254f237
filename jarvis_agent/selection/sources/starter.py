"""The starter models, which come inside packages, and the algorithms that need no model."""

import asyncio
from collections.abc import Iterator
from importlib.util import find_spec
from typing import ClassVar

from jarvis_agent.backends.algorithms.backend import ALGORITHMS
from jarvis_agent.backends.starter.backend import STARTERS, find_weights
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate
from jarvis_agent.selection.ranking import BY_SIMILARITY

_BY_SIMILARITY = ("zero-shot-classification", "question-answering", "document-question-answering")


class StarterSource:
    """Lists starter models and algorithms.

    A model whose reader or weights are missing is listed too: its backend's `unsupported_reason` gives the
    command that installs them.
    """

    name: ClassVar[str] = "starter"

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    async def candidates(self, spec: TaskSpec, limit: int) -> list[Candidate]:
        """Return at most `limit` starter models for a task, without network or heavy imports."""
        return (await asyncio.to_thread(lambda: list(self._candidates(spec))))[:limit]

    def _candidates(self, spec: TaskSpec) -> Iterator[Candidate]:
        if algorithm := ALGORITHMS.get(spec.name):
            yield Candidate(
                id=algorithm.id,
                task=spec.name,
                source=self.name,
                backend="algorithms",
                description=algorithm.description,
                local=find_spec(algorithm.library) is not None,
                size=0,
                license=algorithm.license,
            )
        for model in STARTERS.values():
            if spec.name in model.tasks:
                weights = find_weights(model)
                yield Candidate(
                    id=model.id,
                    task=spec.name,
                    source=self.name,
                    backend="starter",
                    description=model.description,
                    local=weights is not None,
                    path=weights,
                    size=model.size,
                    license=model.license,
                    languages=model.languages,
                    traits=(*model.traits, *([BY_SIMILARITY] if spec.name in _BY_SIMILARITY else [])),
                )
