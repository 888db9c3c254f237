"""Tools that the classifier was not fitted for, found by what they say of themselves.

add_strangers(rows, texts, {"weather": spec}, embedder)
rows[0]["weather"]       # -0.4: beside the log-probabilities of the known tools
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jarvis_agent.backends.starter.embeddings import StarterEmbeddings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.planning.offline.wordings import wording

NEAR, STEEP = 0.6, 8.0
"""The cosine at which a stranger is as likely as a tool that the classifier is sure of, and how fast its
log-probability falls below that."""


def add_strangers(
    rows: Sequence[dict[str, float]],
    texts: Sequence[str],
    strangers: Mapping[str, TaskSpec],
    embedder: StarterEmbeddings,
) -> None:
    """Put into each clause's row how likely the tools are that no class stands for, by class."""
    if not strangers:
        return
    clauses = embedder.encode([text or "." for text in texts])
    for name, spec in strangers.items():
        nearest = (clauses @ embedder.encode(wording(spec).phrases).T).max(axis=1)
        for row, cosine in zip(rows, nearest, strict=True):
            row[name] = STEEP * (float(cosine) - NEAR)
