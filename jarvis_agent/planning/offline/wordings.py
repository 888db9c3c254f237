"""How people put each task in words, and how near a step is to that.

    bank = load_bank()
    bank["object-detection"].phrases      # ("detect the objects in the image", "how many objects …", …)
    matcher = Matcher(load_embedder(settings))
    matcher.near(["count the dogs in the image"], specs)[0].cosines     # {"object-detection": 0.81, …}

The phrases stand in data/wordings.json. Their vectors, and the weights of the regression that tells the
entries apart (`odds`), stand in data/wordings.npz. After a change of the phrases,
`python -m jarvis_agent.planning.offline` computes both anew; until then that is done at each start.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from jarvis_agent.backends.starter.embeddings import StarterEmbeddings
from jarvis_agent.backends.starter.models import MINILM
from jarvis_agent.core.tasks.registry import find_task
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.threads import check_cancelled
from jarvis_agent.planning.offline.odds import fit, odds

if TYPE_CHECKING:
    from jarvis_agent.backends.starter.embeddings import Floats

DATA = Path(__file__).parent / "data"
WORDINGS, VECTORS = DATA / "wordings.json", DATA / "wordings.npz"

SMALL_TALK, OUT_OF_SCOPE = "small-talk", "out-of-scope"
"""The bank's entries for what is no task: greetings and the like, and wishes that no expert model fulfils."""

UNKNOWN = "unknown"
"""What stands for the task of a step that is known to be none of the bank's."""

_AT_ONCE = 16
"""Texts that are embedded in one go."""

_TOO_PLAIN = frozenset(
    {"text", "words", "word", "image", "new image", "picture", "photo", "video", "clip", "movie", "result"}
)

Role = Literal["content", "prompt", "question", "instruction", "wish", "request"]


@dataclass(frozen=True, slots=True)
class Wording:
    """How a task is put in words.

    Attributes:
        phrases: examples of a step that asks for it.
        made: nouns by which a later step calls its result.
        named: the task is considered only where this is found in the step; None: everywhere.
        holds: what a text that the step works on has in it, if the task is meant.
        text: what its argument `text` is: the text it works on, a prompt to create from, a question, an
            instruction for a change, a wish (a question or an order) about a file, or a request to a
            language model.
        map: the task that makes the control map which this one takes as its image.
    """

    phrases: tuple[str, ...]
    made: tuple[str, ...] = ()
    named: re.Pattern[str] | None = None
    holds: re.Pattern[str] | None = None
    text: Role = "content"
    map: str | None = None


@lru_cache(maxsize=1)
def load_bank() -> Mapping[str, Wording]:
    """The wordings of the built-in tasks, by task name, and of small talk."""
    return {
        name: Wording(
            phrases=tuple(entry["phrases"]),
            made=tuple(entry.get("made", ())),
            named=_pattern(entry.get("named")),
            holds=_pattern(entry.get("holds")),
            text=entry.get("text", "content"),
            map=entry.get("map"),
        )
        for name, entry in json.loads(WORDINGS.read_text(encoding="utf-8")).items()
    }


@lru_cache(maxsize=1)
def results() -> str:
    """Pattern of the nouns for what tasks make, but for those that say nothing about the task."""
    nouns = {noun for entry in load_bank().values() for noun in entry.made} - _TOO_PLAIN
    return "|".join(re.escape(noun) for noun in sorted(nouns, key=len, reverse=True))


def _pattern(written: str | None) -> re.Pattern[str] | None:
    return None if written is None else re.compile(written, re.IGNORECASE)


@lru_cache(maxsize=1)
def verbs() -> Mapping[str, Mapping[str, float]]:
    """By the word that phrases begin with: the share of each task in these phrases."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for name, entry in load_bank().items():
        for phrase in entry.phrases:
            counts[phrase.split()[0].lower()][name] += 1
    return {verb: {name: n / tasks.total() for name, n in tasks.items()} for verb, tasks in counts.items()}


@lru_cache(maxsize=1024)
def wording(spec: TaskSpec) -> Wording:
    """How a task is put in words; for tasks outside the bank its name and description are the phrases."""
    known = bank_name(spec)
    if known is not None:
        return load_bank()[known]
    words = re.sub(r"[-_]+", " ", spec.name)
    return Wording(phrases=(words, spec.description or words), made=(words,))


def bank_name(spec: TaskSpec) -> str | None:
    """The name under which the bank has a task, by its name or an alias; None if it has not."""
    return _bank_name(spec.name)


@lru_cache(maxsize=1024)
def _bank_name(name: str) -> str | None:
    found = find_task(name)
    known = found.name if found is not None else name
    return known if known in load_bank() else None


@dataclass(frozen=True, slots=True)
class Nearness:
    """How near a text is to each task, by name.

    Attributes:
        cosines: with the nearest phrase of each task; 1 is as near as can be.
        odds: log-odds of each entry of the bank, up to a constant; tasks outside the bank have none.
    """

    cosines: Mapping[str, float]
    odds: Mapping[str, float]


class Matcher:
    """Compares steps with tasks, by sentence embeddings. Thread-safe."""

    def __init__(self, embedder: StarterEmbeddings) -> None:
        self._embedder = embedder
        vectors, self._weights = _stored() or _computed(embedder)
        self._bank = _split(vectors, load_bank())
        self._others: dict[tuple[str, ...], Floats] = {}

    def knows(self, word: str) -> bool:
        """Whether the embedder has a word, which is in small letters, in its dictionary."""
        return self._embedder.knows(word)

    def near(self, texts: Sequence[str], specs: Iterable[TaskSpec]) -> list[Nearness]:
        """For each text how near it is to each task.

        The bank's tasks are compared whether they are among `specs` or not, so that the caller can tell that
        a step asks for something that is not on offer.
        """
        import numpy as np

        # A few at a time, since others wait for the embedder, and this work may have to stop.
        parts = []
        for start in range(0, max(1, len(texts)), _AT_ONCE):
            check_cancelled()
            parts.append(self._embedder.encode(texts[start : start + _AT_ONCE]))
        rows = np.concatenate(parts)
        vectors = {**self._bank, **{s.name: self._vectors_of(s) for s in specs if bank_name(s) is None}}
        near = rows @ np.concatenate(list(vectors.values())).T
        starts = np.cumsum([0, *(len(phrases) for phrases in vectors.values())])[:-1]
        nearest = np.maximum.reduceat(near, starts, axis=1)
        likely = odds(self._weights, rows)
        return [
            Nearness(
                dict(zip(vectors, map(float, cosines), strict=True)),
                dict(zip(self._bank, map(float, log_odds), strict=True)),
            )
            for cosines, log_odds in zip(nearest, likely, strict=True)
        ]

    def _vectors_of(self, spec: TaskSpec) -> Floats:
        phrases = wording(spec).phrases
        if phrases not in self._others:
            self._others[phrases] = self._embedder.encode(phrases)
        return self._others[phrases]


def digest() -> str:
    """What the stored vectors must have been computed from: the bank's phrases and the model."""
    phrases = [MINILM, *(phrase for entry in load_bank().values() for phrase in entry.phrases)]
    return hashlib.sha256("\n".join(phrases).encode()).hexdigest()


def store_vectors(embedder: StarterEmbeddings, path: Path = VECTORS) -> None:
    """Write the vectors of the bank's phrases and the weights as float16, with their digest."""
    import numpy as np

    vectors, weights = _computed(embedder)
    np.savez_compressed(
        path,
        digest=np.array(digest()),
        vectors=vectors.astype(np.float16),
        weights=weights.astype(np.float16),
    )


def _computed(embedder: StarterEmbeddings) -> tuple[Floats, Floats]:
    """The vectors of the bank's phrases, and the weights that tell its entries apart."""
    import numpy as np

    bank = load_bank().values()
    vectors = embedder.encode([phrase for entry in bank for phrase in entry.phrases])
    return vectors, fit(vectors, np.repeat(np.arange(len(bank)), [len(entry.phrases) for entry in bank]))


def _stored(path: Path = VECTORS) -> tuple[Floats, Floats] | None:
    """The stored vectors and weights; None if they are of other phrases than the bank's."""
    import numpy as np

    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as stored:
        if str(stored["digest"]) != digest():
            return None
        return stored["vectors"].astype(np.float32), stored["weights"].astype(np.float32)


def _split(vectors: Floats, bank: Mapping[str, Wording]) -> dict[str, Floats]:
    parts, start = {}, 0
    for name, entry in bank.items():
        parts[name] = vectors[start : start + len(entry.phrases)]
        start += len(entry.phrases)
    return parts
