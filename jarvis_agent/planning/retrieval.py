"""Retrieval: which task types are similar to a request.

    text_scores("Count the sheep in meadow.jpg", ["How many cars are in e1.jpg?", "Read this out"])
    # [0.38, 0.18]
    tool_scores(request)     # {"object-detection": 0.61, …}

By MiniLM of the starter package; nothing is downloaded. Without it, runs of letters are compared by BM25, and
so are texts in Chinese, Japanese and Korean, since MiniLM knows English only.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from jarvis_agent.core.file_mentions import mentions
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import canonical
from jarvis_agent.llm.budget import clip
from jarvis_agent.media.detect import kind_by_name
from jarvis_agent.planning.examples import CJK
from jarvis_agent.planning.inputs import PlanRequest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_TAKES_FILE = 0.1
_NAMED = 2.0
_MAX_TOKENS = 256
_GRAM = 4
_K1, _B = 1.2, 0.75  # BM25's usual constants
WORD = re.compile(r"[^\W_]+")
_COMMON = frozenset(
    ("a", "an", "the", "of", "in", "on", "to", "and", "or", "is", "are", "it", "me", "my", "i", "please")
)
_VECTORS: dict[str, NDArray[np.float32]] = {}


def text_scores(text: str, others: Sequence[str]) -> list[float]:
    """The similarity of each other text, at most 1. File names count as their kinds.

    The vectors of `others` are kept for the process; they should be a fixed set.
    """
    from jarvis_agent.backends.starter.embeddings import installed_embedder

    text = clip(without_names(text), _MAX_TOKENS)
    others = [_cached_without_names(other) for other in others]
    embedder = None if CJK.search(text) else installed_embedder(Settings())
    if embedder is None:
        scores = bm25(letter_grams(text), list(map(cached_grams, others)))
        best = max(scores, default=0.0) or 1.0
        return [score / best for score in scores]
    if new := [other for other in dict.fromkeys(others) if other not in _VECTORS]:
        _VECTORS.update(zip(new, embedder.encode(new), strict=True))
    query = embedder.encode([text])[0]
    return [float(_VECTORS[other] @ query) for other in others]


def tool_scores(request: PlanRequest) -> dict[str, float]:
    """How likely each task type is: by its description, the files, and its name."""
    phrases = [spec.description or name for name, spec in request.specs.items()]
    scores = dict(zip(request.specs, text_scores(request.text, phrases), strict=True))
    text = canonical(request.text)
    kinds = {kind for file in request.files for kind in (file.kind, "file")}
    for name, spec in request.specs.items():
        scores[name] += _TAKES_FILE * any(arg.kind in kinds for arg in spec.inputs)
        named = (canonical(each) in text for each in (name, *spec.aliases) if len(each) > 3)
        scores[name] += _NAMED * any(named)
    return scores


def without_names(text: str) -> str:
    """The text with its files called by their kinds: "Describe cat.jpg" → "Describe the image"."""
    for name in sorted(mentions(text), key=len, reverse=True):  # "a.jpg" is in "aa.jpg" too.
        text = text.replace(name, f"the {kind_by_name(name)}")
    return text


def letter_grams(text: str, left_out: Collection[str] = _COMMON) -> Mapping[str, int]:
    """How often a text has each run of four letters within a word, or two without spaces (Chinese).

    Runs of letters match across forms and compounds ("dogs", "bulldog") without a stemmer.
    """
    counts: Counter[str] = Counter()
    for word in WORD.findall(text.lower()):
        if word in left_out or len(word) < 2:
            continue
        size = _GRAM if word.isascii() else 2
        framed = f"#{word}#" if word.isascii() else word
        counts.update(framed[start : start + size] for start in range(max(1, len(framed) - size + 1)))
    return counts


# Only the texts that requests are compared with are cached, not the requests.
cached_grams = lru_cache(maxsize=8192)(letter_grams)
_cached_without_names = lru_cache(maxsize=4096)(without_names)


def bm25(query: Iterable[str], documents: Sequence[Mapping[str, int]]) -> list[float]:
    """Okapi BM25 of each document (Robertson and Zaragoza, 2009); they alone give the frequencies."""
    lengths = [sum(document.values()) for document in documents]
    mean = sum(lengths) / max(1, len(lengths)) or 1.0
    scores = [0.0] * len(documents)
    for term in query:
        having = [place for place, document in enumerate(documents) if term in document]
        weight = math.log(1 + (len(documents) - len(having) + 0.5) / (len(having) + 0.5))
        for place in having:
            count = documents[place][term]
            scores[place] += (
                weight * count * (_K1 + 1) / (count + _K1 * (1 - _B + _B * lengths[place] / mean))
            )
    return scores
