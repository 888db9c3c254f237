"""Narrowing: which of many task types a language model is shown for a request.

    narrowed(brief, similarity, load_bank())      # the 16 likeliest of its task types, in their order

Seventy task types make a prompt of thousands of tokens, in which a small model loses its way. A task counts
as likely when its description or a demonstration that uses it is near the request, when a way to ask for it
is near a step of the request, when it takes a file that there is, and for certain when the request names it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import canonical, find_task
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.llm.budget import context_window
from jarvis_agent.planning.example_selector import Demonstration
from jarvis_agent.planning.inputs import PlanRequest
from jarvis_agent.planning.offline.phrases import bank_name
from jarvis_agent.planning.retrieval import Similarity

SHOWN, SHOWN_BY_WORDS = 16, 30
"""How many task types are shown: by sentence embeddings, and where only shared words tell."""
LONG_CONTEXT = 32_000
"""Tokens of context from which on a model is trusted with the whole list."""

_TAKES_FILE = 0.1
_NAMED = 2.0


def narrows(model: Any, settings: Settings) -> bool:
    """Whether a model is shown a narrowed list: it is, unless its context window is long."""
    return context_window(model, settings) < LONG_CONTEXT


def narrowed(
    brief: PlanRequest, similarity: Similarity, bank: Sequence[Demonstration], keep: Collection[str] = ()
) -> Mapping[str, TaskSpec]:
    """The likeliest task types for a request, in the order of the offer; all, if they are few.

    `keep` names tasks that are shown in any case.
    """
    count = SHOWN if similarity.knows_meaning else SHOWN_BY_WORDS
    if len(brief.specs) <= count:
        return brief.specs
    scores = _scores(brief, similarity, bank)
    likely = sorted(brief.specs, key=lambda name: -scores[name])
    kept = {*keep, *likely[:count], *(name for name in likely if scores[name] >= _NAMED)}
    return {name: spec for name, spec in brief.specs.items() if name in kept}


def _scores(brief: PlanRequest, similarity: Similarity, bank: Sequence[Demonstration]) -> dict[str, float]:
    words = [spec.description or spec.name for spec in brief.specs.values()]
    near = similarity.scores(brief.request, [*words, *(demo.request for demo in bank)])
    scores = dict(zip(brief.specs, near, strict=False))
    for demo, score in zip(bank, near[len(words) :], strict=True):
        for name in demo.tasks:
            spec = find_task(name, brief.specs)
            if spec is not None and spec.name in scores:
                scores[spec.name] = max(scores[spec.name], score)
    for step in similarity.tasks(brief):
        for name, spec in brief.specs.items():
            scores[name] = max(scores[name], step.get(bank_name(spec) or name, 0.0))
    request = canonical(brief.request)
    kinds = {file.kind for file in brief.files}
    for name, spec in brief.specs.items():
        scores[name] += _TAKES_FILE * any(arg.kind in kinds for arg in spec.inputs)
        named = (canonical(each) in request for each in (name, *spec.aliases) if len(each) > 3)
        scores[name] += _NAMED * any(named)
    return scores
