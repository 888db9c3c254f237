"""Reader of all-MiniLM-L6-v2: embeddings, and rankings by their cosine similarity.

Raw outputs by task:
    feature-extraction        [[[…384 numbers…]]] as in transformers, with one vector for the whole text
    sentence-similarity       [score of each sentence], cosines in [-1, 1]
    text-ranking              [{"index": int, "text": str, "score": float}], best first
    zero-shot-classification  {"sequence": str, "labels": [str], "scores": [float]}, best first
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.core.errors import BadInputError
from jarvis_agent.core.settings import Settings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Encode = Callable[[list[str]], NDArray[np.float32]]

TEMPERATURE = 0.05
"""Softmax temperature over the cosines of labels, which differ by tenths only."""


def load(weights: Path, settings: Settings) -> Expert:
    """The embeddings that the offline planner uses too."""
    from jarvis_agent.backends.starter.embeddings import load_embedder

    encode = load_embedder(settings).encode

    def expert(call: Call) -> Any:
        if not call.inputs["text"].strip():
            raise BadInputError(f"{call.spec.name} needs a text, and this one is empty")
        return _TASKS[call.spec.name](encode, call)

    return expert


def _features(encode: Encode, call: Call) -> Any:
    return [encode([call.inputs["text"]]).tolist()]


def _similarity(encode: Encode, call: Call) -> list[float]:
    return _cosines(encode, call.inputs["text"], _texts(call, "sentences"))


def _ranking(encode: Encode, call: Call) -> list[dict[str, Any]]:
    texts = _texts(call, "sentences")
    scores = _cosines(encode, call.inputs["text"], texts)
    best_first = sorted(range(len(texts)), key=lambda index: -scores[index])
    return [{"index": index, "text": texts[index], "score": scores[index]} for index in best_first]


def _zero_shot(encode: Encode, call: Call) -> dict[str, Any]:
    import numpy as np

    labels = _labels(call)
    cosines = _cosines(encode, call.inputs["text"], [f"It is {label}." for label in labels])
    weights = np.exp((np.array(cosines) - max(cosines)) / TEMPERATURE)
    scores = (weights / weights.sum()).tolist()
    best_first = sorted(range(len(labels)), key=lambda index: -scores[index])
    return {
        "sequence": call.inputs["text"],
        "labels": [labels[index] for index in best_first],
        "scores": [scores[index] for index in best_first],
    }


def _texts(call: Call, name: str) -> list[str]:
    value = call.inputs[name]
    texts = [value] if isinstance(value, str) else [str(item) for item in value]
    if not texts:
        raise BadInputError(f"{call.spec.name} needs a list of {name}, and this one is empty")
    return texts


def _labels(call: Call) -> list[str]:
    """The labels without duplicates, also from one text with commas."""
    names = (name.strip() for text in _texts(call, "labels") for name in text.split(","))
    labels = list(dict.fromkeys(name for name in names if name))
    if not labels:
        raise BadInputError(f"{call.spec.name} needs at least one label")
    return labels


def _cosines(encode: Encode, text: str, others: list[str]) -> list[float]:
    """Cosines; vectors have length 1."""
    vectors = encode([text, *others])
    return [float(score) for score in vectors[1:] @ vectors[0]]


_TASKS: dict[str, Callable[[Encode, Call], Any]] = {
    "feature-extraction": _features,
    "sentence-similarity": _similarity,
    "text-ranking": _ranking,
    "zero-shot-classification": _zero_shot,
}
