"""Classification: how near a step is to each task, by sentence embeddings and linear models.

    classifier = load_classifier(settings)
    classifier.near(["count the dogs in the image"], specs)[0].cosines     # {"object-detection": 0.81, …}
    classifier.log_probs(["translate it into French"])[0]      # {"translation": -0.1, "none": -4.2, …}
    classifier.recognise(specs)       # tools of unknown names, with the class of task that each one performs

Both models are fitted by benchmarks/train_offline.py and stored without pickle.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from jarvis_agent.backends.starter.embeddings import load_embedder
from jarvis_agent.core.concurrency import check_cancelled
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.planning.offline.phrases import DATA, bank_name, clause_classes, load_bank, wording
from jarvis_agent.planning.offline.weights import WEIGHTS

if TYPE_CHECKING:
    from jarvis_agent.backends.starter.embeddings import Floats, StarterEmbeddings

NONE = "none"
"""The class of clauses that ask for no task."""
CLAUSES_MODEL, PHRASES_MODEL = DATA / "clauses.npz", DATA / "phrases.npz"
WORD_COLUMNS = 4096
"""Columns to which words and pairs of words are hashed."""
_EMBEDDING = 384
_MOST_KEPT = 1024
"""Descriptions whose vectors are kept."""
_BATCH = 16
"""Texts that are embedded in one call; a long request can be cancelled between two calls."""


@dataclass(frozen=True, slots=True)
class Nearness:
    """The similarity of a text to each task, by name.

    Attributes:
        cosines: with the nearest phrase of each task.
        odds: log-odds of each entry of the phrase bank, up to a constant; other tasks have none.
    """

    cosines: Mapping[str, float]
    odds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ClauseModel:
    """A multinomial logistic regression on clauses.

    Attributes:
        names: the classes, `NONE` among them.
        weights: of shape (384 + WORD_COLUMNS, len(names)).
        bias: of shape (len(names),).
    """

    names: tuple[str, ...]
    weights: Floats
    bias: Floats

    def log_probs(self, features: Floats) -> Floats:
        """Logarithms of the probabilities of each class, one row per text."""
        import numpy as np

        scores = features @ self.weights + self.bias
        top = scores.max(axis=1, keepdims=True)
        found: Floats = scores - top - np.log(np.exp(scores - top).sum(axis=1, keepdims=True))
        return found


class Classifier:
    """The stored models and the embedder. Thread-safe."""

    def __init__(self, embedder: StarterEmbeddings) -> None:
        self._embedder = embedder
        self._vectors: dict[tuple[str, ...], Floats] = {}

    def near(self, texts: Sequence[str], specs: Iterable[TaskSpec]) -> list[Nearness]:
        """How near each text is to each task.

        The tasks of the bank are compared even if they are not among `specs`.
        """
        import numpy as np

        bank, weights = self._bank
        rows = self._encode(texts)
        tools = {s.name: self._vectors_of(wording(s).phrases) for s in specs if bank_name(s) is None}
        near = np.concatenate([rows @ vectors.T for vectors in (bank, *tools.values())], axis=1)
        sizes = (len(entry.phrases) for entry in load_bank().values())
        starts = np.cumsum([0, *sizes, *map(len, tools.values())])[:-1]
        nearest = np.maximum.reduceat(near, starts, axis=1)
        odds = np.concatenate([rows, np.ones((len(rows), 1), np.float32)], axis=1) @ weights
        return [
            Nearness(
                dict(zip((*load_bank(), *tools), map(float, cosines), strict=True)),
                dict(zip(load_bank(), map(float, log_odds), strict=True)),
            )
            for cosines, log_odds in zip(nearest, odds, strict=True)
        ]

    def log_probs(self, texts: Sequence[str]) -> list[dict[str, float]]:
        """Log-probabilities of each class of clauses, one mapping per text."""
        model = self._clauses
        rows = model.log_probs(clause_features(self._encode([text or "." for text in texts]), texts))
        return [dict(zip(model.names, map(float, row), strict=True)) for row in rows]

    def recognise(self, specs: Mapping[str, TaskSpec]) -> dict[str, TaskSpec]:
        """The tasks, with the class of each recognised tool among its aliases.

        A tool is recognised by its input and output types and by its description, never by its name.
        Each class is assigned to one tool at most, in the order of similarity.
        """
        unknown = [spec for spec in specs.values() if bank_name(spec) is None and _is_typed(spec)]
        found = dict(specs)
        if not unknown:
            return found
        taken = {bank_name(spec) for spec in specs.values()} - {None}
        classes = {name: one for name, one in clause_classes().items() if one.task not in taken}
        about = self._vectors_of(tuple(one.description for one in classes.values()))
        described = [self._vectors_of((spec.description or spec.name,))[0] for spec in unknown]
        pairs = sorted(
            (
                (float(described[row] @ about[column]), row, name)
                for row, spec in enumerate(unknown)
                for column, (name, one) in enumerate(classes.items())
                if one.fits(spec)
            ),
            reverse=True,
        )
        assigned: set[int | str] = set()
        for similarity, row, name in pairs:
            if similarity < WEIGHTS.recognise or row in assigned or name in assigned:
                continue
            assigned |= {row, name}
            spec = unknown[row]
            found[spec.name] = replace(spec, aliases=(name, classes[name].task))
        return found

    def _encode(self, texts: Sequence[str]) -> Floats:
        import numpy as np

        parts = []
        for start in range(0, max(1, len(texts)), _BATCH):
            check_cancelled()
            parts.append(self._embedder.encode(texts[start : start + _BATCH]))
        return np.concatenate(parts)

    @cached_property
    def _bank(self) -> tuple[Floats, Floats]:
        """Vectors of all entries' phrases, and the weights of the regression on them."""
        import numpy as np

        with np.load(PHRASES_MODEL, allow_pickle=False) as stored:
            return stored["vectors"].astype(np.float32), stored["weights"].astype(np.float32)

    @cached_property
    def _clauses(self) -> ClauseModel:
        import numpy as np

        with np.load(CLAUSES_MODEL, allow_pickle=False) as stored:
            names = tuple(str(name) for name in stored["names"])
            return ClauseModel(names, stored["weights"].astype(np.float32), stored["bias"].astype(np.float32))

    def _vectors_of(self, texts: tuple[str, ...]) -> Floats:
        """The vectors of descriptions, which are the same in every request."""
        if len(self._vectors) > _MOST_KEPT:
            self._vectors.clear()
        if texts not in self._vectors:
            self._vectors[texts] = self._embedder.encode(texts)
        return self._vectors[texts]


_load = lru_cache(maxsize=1)(Classifier)


def load_classifier(settings: Settings) -> Classifier:
    """The classifier, loaded once per process.

    Raises:
        MissingExtraError: the sentence embeddings are not installed.
    """
    return _load(load_embedder(settings))


def clause_features(vectors: Floats, texts: Sequence[str]) -> Floats:
    """What the clause model sees: the embedding of each text, its words and pairs of words."""
    import numpy as np

    found = np.zeros((len(texts), _EMBEDDING + WORD_COLUMNS), np.float32)
    found[:, :_EMBEDDING] = vectors
    for row, text in enumerate(texts):
        columns = [_EMBEDDING + zlib.crc32(term.encode()) % WORD_COLUMNS for term in _terms(text)]
        found[row, columns] = 0.5 / max(1, len(columns)) ** 0.5
    return found


def _terms(text: str) -> set[str]:
    words = [_stem(word) for word in re.findall(r"[a-z]+", text.lower())]
    return {*words, *(f"{one} {two}" for one, two in pairwise(words))}


def _stem(word: str) -> str:
    bare = re.sub(r"(?:ations?|ating|ated|ates?|ions?|ings?|ed|es|s|e)$", "", word)
    return bare if len(bare) > 2 else word


def _is_typed(spec: TaskSpec) -> bool:
    return bool(spec.inputs) and all(arg.kind != "any" for arg in spec.inputs)
