"""Reader of all-MiniLM-L6-v2: embeddings, and comparisons of texts by their cosine similarity.

Raw outputs by task:
    feature-extraction        [[[…384 numbers…]]] as in transformers, with one vector for the whole text
    sentence-similarity       [score of each sentence], cosines in [-1, 1]
    text-ranking              [{"index": int, "text": str, "score": float}], best first
    zero-shot-classification  [{"label": str, "similarity": float}]: cosines, which are no probabilities
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.starter.embeddings import load_embedder
from jarvis_agent.core.errors import BadInputError
from jarvis_agent.core.settings import Settings


def load(weights: Path, settings: Settings) -> Expert:
    """The embeddings that the offline planner uses too."""
    encode = load_embedder(settings).encode

    def expert(call: Call) -> Any:
        task, text = call.spec.name, call.inputs["text"]
        if not text.strip():
            raise BadInputError(f"{task} needs a text, and this one is empty")
        if task == "feature-extraction":
            return [encode([text]).tolist()]
        others = _texts(call, "labels" if task == "zero-shot-classification" else "sentences")
        if task == "zero-shot-classification":
            cosines = _cosines(encode([text, *(f"It is {label}." for label in others)])).tolist()
            return [{"label": label, "similarity": each} for label, each in zip(others, cosines, strict=True)]
        scores = _cosines(encode([text, *others])).tolist()
        if task == "sentence-similarity":
            return scores
        rows = zip(range(len(others)), others, scores, strict=True)
        ranked = [{"index": index, "text": other, "score": score} for index, other, score in rows]
        return sorted(ranked, key=lambda row: -row["score"])

    return expert


def _texts(call: Call, name: str) -> list[str]:
    """The texts of an argument; labels also from one text with commas, and without duplicates."""
    given = call.inputs[name]
    texts = [given] if isinstance(given, str) else [str(item) for item in given]
    if name == "labels":
        labels = (label.strip() for text in texts for label in text.split(","))
        texts = list(dict.fromkeys(label for label in labels if label))
    if not texts:
        raise BadInputError(f"{call.spec.name} needs {name}, and there are none")
    return texts


def _cosines(vectors: Any) -> Any:
    """Cosines of the first vector and each of the others; vectors have length 1."""
    return vectors[1:] @ vectors[0]
