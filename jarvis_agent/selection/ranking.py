"""Ranking: how well each model suits a task, as a sum of named factors in points.

    for factors in score_candidates(candidates, here, purpose, CardVectors(settings)):
        factors.purpose, factors.popularity, factors.evidence, factors.machine, factors.total

All weights are defined here. They were tuned on the odd lines of APIBench (`python benchmarks selection
apibench --half dev`), and on requests with and without a specific purpose. A model for the purpose gains up
to five points, more than the downloads of a general model are worth. Without a specific purpose,
general-purpose training data are worth more than the downloads of a popular specialist.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

from jarvis_agent.backends.languages import LANGUAGES
from jarvis_agent.backends.starter.backend import MINILM
from jarvis_agent.core.forks import cached_property, fork_safe
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Candidate, Frozen
from jarvis_agent.planning.examples import CJK
from jarvis_agent.planning.retrieval import WORD, bm25, cached_grams, letter_grams
from jarvis_agent.selection.purpose import FUNCTION_WORDS, Purpose, languages_in, stem
from jarvis_agent.selection.store import Experience, SelectionStore, open_store

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from jarvis_agent.backends.starter.embeddings import StarterEmbeddings

SIMILARITY, KEYWORDS, WHOLE_WORD = 4.7, 0.2, 0.4
"""Weights of the cosine, and of the root of the BM25 score; WHOLE_WORD is added if the card has a word."""
LANGUAGE, OTHER_LANGUAGE = 2.5, -1.2
"""Points of a card for a language that the request names, and of one for other languages."""

GENERAL_DATA = 1.8
"""Points of general-purpose training data, kept below ON_THIS_MACHINE.

Other models get a share of them for their purpose: the share of the request's words that the card has."""
GENERAL_DATASETS = {
    "image-classification": ("imagenet",),
    "object-detection": ("coco", "open_images"),
    "image-segmentation": ("coco", "ade20k", "scene_parse_150"),
    "video-classification": ("kinetics",),
    "audio-classification": ("audioset",),
    "automatic-speech-recognition": ("librispeech", "common_voice"),
    "token-classification": ("conll2003",),
    "text-classification": ("glue", "sst2"),
    "question-answering": ("squad",),
    "summarization": ("cnn_dailymail",),
    "zero-shot-classification": ("multi_nli",),
}
"""Beginnings of the names of general-purpose data sets, after the name of their owner, by task type."""

POPULARITY = 0.6
"""Points of ten times as many downloads."""
DOWNLOADS_PER_LIKE = 100
"""A like counts as this many downloads: the median ratio of the two on the Hub is of this order."""
UNKNOWN_DOWNLOADS = 1_000_000
"""Assumed for a model on this machine whose downloads are unknown: its user or this project chose it."""

EVIDENCE = 0.3
"""Points of published results for the task."""

ON_THIS_MACHINE, PER_GIGABYTE = 2.0, -0.5
"""Points of a model that need not be downloaded, and of each 10⁹ bytes to be loaded here."""

OWN_MODEL, OWN_MODEL_BONUS = "own-model", 2.0
"""The trait of the user's language model for a task that it does best, and its points.

It is in memory anyway, so its size counts nothing; on a server, it counts as if it were here."""
GENERALIST = "generalist"
"""The trait of a model for tasks that dedicated models do better: being on this machine brings no points."""
BY_SIMILARITY = "by-similarity"
"""The trait of a model that compares labels with a text: a language model, which reads it, comes first."""

PRICE = -10.0
"""Points of each unit of currency that a hosted call costs: 0.05 weighs as much as loading a gigabyte."""

SUCCESS, PRIOR_RATE, PRIOR_CALLS = 6.0, 0.9, 5
"""Weight of the success rate less PRIOR_RATE, which counts as PRIOR_CALLS calls (a Bayesian average).

One failure costs 0.9 points, three cost 2.0: as much as ON_THIS_MACHINE."""
SLOWNESS = -0.3
"""Points of ten times as many seconds as one, once many calls took them."""
RATING = 1.5
"""Points of many good ratings without a bad one; many bad ones cost as much."""

_EXAMPLE_CHARS = 600
_NAME_OF_CODE = {language.code: language.name for language in LANGUAGES}
_MAX_NAMED_LANGUAGES = 5
_FILE_TAGS = """
    transformers pytorch tf jax onnx safetensors diffusers tensorboard endpoints_compatible model-index
    autotrain_compatible text-embeddings-inference text-generation-inference generated_from_trainer
    has_space custom_code timm gguf
"""
_TECHNICAL_TAGS = frozenset(_FILE_TAGS.split())
"""Tags about files and libraries."""

_MAX_VECTORS = 20_000
"""Embeddings in memory, 1.5 kilobytes each."""
_MAX_CARD_CHARS = 1000
"""Characters of a card that are compared."""


class Factors(Frozen):
    """Points for a model; higher is better.

    Attributes:
        purpose: the card is similar to the request and has its words.
        general: the model was trained on general-purpose data.
        popularity: downloads and likes.
        evidence: published results.
        machine: it is on this machine; it is the user's language model; its size; the price of a hosted call.
        experience: how its calls went, and how its results were rated.
    """

    purpose: float = 0.0
    general: float = 0.0
    popularity: float = 0.0
    evidence: float = 0.0
    machine: float = 0.0
    experience: float = 0.0

    @property
    def total(self) -> float:
        """The sum."""
        return self.purpose + self.total_without_purpose

    @property
    def total_without_purpose(self) -> float:
        """The sum of the other factors."""
        return self.general + self.popularity + self.evidence + self.machine + self.experience


def score_candidates(
    candidates: Sequence[Candidate],
    here: Sequence[bool],
    purpose: Purpose,
    vectors: CardVectors | None = None,
    experience: Mapping[str, Experience] | None = None,
    prices: Sequence[float] = (),
    language: str | None = None,
) -> list[Factors]:
    """Return the factors of each candidate.

    Args:
        here: whether each would run on this machine.
        vectors: compares the request with cards; None: only words are compared.
        experience: what happened to models, by id.
        prices: of a call of each; (): unknown.
        language: what the request is probably written in, as an ISO 639-1 code; "" or None: English.
    """
    fitness = _purpose(candidates, purpose, vectors, purpose.languages or {language or "en"})
    costs = prices or [0.0] * len(candidates)
    return [
        Factors(
            purpose=round(fit, 3),
            general=GENERAL_DATA * has_general_data(candidate),
            popularity=round(_popularity(candidate), 2),
            evidence=EVIDENCE if candidate.metadata.get("results") else 0.0,
            machine=round(_machine(candidate, runs_here) + PRICE * price, 2),
            experience=round(_experience((experience or {}).get(candidate.id, Experience())), 2),
        )
        for candidate, runs_here, fit, price in zip(candidates, here, fitness, costs, strict=True)
    ]


def _popularity(candidate: Candidate) -> float:
    downloads = candidate.downloads + DOWNLOADS_PER_LIKE * candidate.likes
    is_chosen = candidate.local or OWN_MODEL in candidate.traits
    return POPULARITY * math.log10(1 + (downloads or (UNKNOWN_DOWNLOADS if is_chosen else 0)))


def _machine(candidate: Candidate, runs_here: bool) -> float:
    if OWN_MODEL in candidate.traits:
        return ON_THIS_MACHINE + OWN_MODEL_BONUS
    if not runs_here:
        return 0.0
    is_ready = candidate.local and GENERALIST not in candidate.traits
    return ON_THIS_MACHINE * is_ready + PER_GIGABYTE * (candidate.size or 0) / 1e9


def _experience(past: Experience) -> float:
    success_rate = (past.ok + PRIOR_RATE * PRIOR_CALLS) / (past.calls + PRIOR_CALLS)
    certainty = past.ok / (past.ok + PRIOR_CALLS)
    return (
        SUCCESS * (success_rate - PRIOR_RATE)
        + SLOWNESS * certainty * math.log10(max(1.0, past.seconds))
        + RATING * (past.good - past.bad) / (past.good + past.bad + 2)
    )


def _purpose(
    candidates: Sequence[Candidate], purpose: Purpose, vectors: CardVectors | None, languages: Set[str]
) -> list[float]:
    """How well each candidate fits a purpose, in points."""
    cards = [card_text(candidate) for candidate in candidates]
    texts = [f"{card} {_examples(candidate)}" for card, candidate in zip(cards, candidates, strict=True)]
    keywords = cosines = [0.0] * len(cards)
    if purpose.text:
        grams = [cached_grams(text, FUNCTION_WORDS) for text in texts]
        keywords = bm25(letter_grams(purpose.text, FUNCTION_WORDS), grams)
        cosines = vectors.similarities(purpose.text, cards) if vectors else cosines
    asked = set(map(stem, (*purpose.words, *purpose.private)))
    shares = [len(asked & _stems(text)) / max(1, len(asked)) for text in texts]
    return [
        SIMILARITY * cosine
        + (KEYWORDS + WHOLE_WORD * bool(share)) * math.sqrt(score)
        + GENERAL_DATA * share * (not has_general_data(candidate))
        + LANGUAGE * bool((purpose.languages - {"en"}) & {*candidate.languages})
        + OTHER_LANGUAGE * _is_for_other_languages(candidate, card, languages)
        for candidate, card, score, cosine, share in zip(
            candidates, cards, keywords, cosines, shares, strict=True
        )
    ]


@lru_cache(maxsize=8192)
def _stems(text: str) -> frozenset[str]:
    return frozenset(map(stem, WORD.findall(text.lower())))


def _is_for_other_languages(candidate: Candidate, card: str, asked: Set[str]) -> bool:
    declared = set(candidate.languages)
    named = declared | languages_in(card)
    return bool(named - {"en"}) and not (declared if "en" in asked else named) & asked


def card_text(candidate: Candidate) -> str:
    """Return what a candidate says of itself: words of its id, tags, languages, description and data sets."""
    languages = candidate.languages if len(candidate.languages) <= _MAX_NAMED_LANGUAGES else ()
    tags = [tag for tag in candidate.tags if is_subject(tag, candidate)]
    about = [_id_words(candidate), *tags, *(_NAME_OF_CODE.get(code, "") for code in languages)]
    datasets = " ".join(datasets_of(candidate))
    return f"{'. '.join(filter(None, about))}. {candidate.description} {datasets}".strip()


def datasets_of(candidate: Candidate) -> list[str]:
    """Return the data sets that a card names."""
    return [tag.removeprefix("dataset:") for tag in candidate.tags if tag.startswith("dataset:")]


def has_general_data(candidate: Candidate) -> bool:
    """Whether the data of a model are general-purpose: a starter model, or by the data sets of its card."""
    if candidate.source == "starter":
        return True
    names = (name.rpartition("/")[2].lower().replace("-", "_") for name in datasets_of(candidate))
    return any(name.startswith(GENERAL_DATASETS.get(candidate.task, ())) for name in names)


def is_subject(tag: str, candidate: Candidate) -> bool:
    """Whether a tag is about the subject of a model; others are about files, libraries and its task."""
    return not (":" in tag or len(tag) == 2 or tag in _TECHNICAL_TAGS or tag == candidate.task)


def _id_words(candidate: Candidate) -> str:
    """The words of an id, and for a translator its languages: "Helsinki NLP opus mt fr en French English"."""
    directions = [trait.partition(":")[2] for trait in candidate.traits if trait.startswith(("from:", "to:"))]
    names = " ".join(_NAME_OF_CODE.get(code, code) for code in directions)
    return re.sub(r"(?<=[a-z])(?=[A-Z])|[^\w.]+|_", " ", f"{candidate.id} {names}").strip()


def _examples(candidate: Candidate) -> str:
    return str(candidate.metadata.get("examples") or "")[:_EXAMPLE_CHARS]


class CardVectors:
    """Embeddings of model cards, kept on disk, so that only new ones are computed. Thread-safe.

    By MiniLM of the starter package; nothing is downloaded. Without it, or for a text in Chinese, Japanese or
    Korean, which it does not know, every similarity is 0.
    """

    def __init__(self, settings: Settings, store: SelectionStore | None = None) -> None:
        self._settings = settings
        self._store = store or open_store(settings)
        self._cache: dict[bytes, NDArray[np.float32]] = {}
        self._lock = fork_safe(threading.Lock())

    def similarities(self, text: str, cards: Sequence[str]) -> list[float]:
        """Return the cosine of the text and each card, at most 1."""
        if self._embeddings is None or not cards or CJK.search(text):
            return [0.0] * len(cards)
        import numpy as np

        query = self._embeddings.encode([text])[0]
        scores: list[float] = (np.stack(self._vectors(self._embeddings, cards)) @ query).tolist()
        return scores

    def _vectors(self, embeddings: StarterEmbeddings, cards: Sequence[str]) -> list[NDArray[np.float32]]:
        import numpy as np

        texts = {_digest(card): card[:_MAX_CARD_CHARS] for card in cards}
        with self._lock:
            cache = self._cache
            if unknown := [digest for digest in texts if digest not in cache]:
                stored = self._store.vectors(unknown)
                cache |= {
                    key: np.frombuffer(value, np.float16).astype(np.float32) for key, value in stored.items()
                }
            if new := [key for key in unknown if key not in cache]:
                cache |= dict(zip(new, embeddings.encode([texts[key] for key in new]), strict=True))
                self._store.add_vectors((key, cache[key].astype(np.float16).tobytes()) for key in new)
            vectors = [cache[_digest(card)] for card in cards]
            for oldest in list(cache)[:-_MAX_VECTORS]:
                del cache[oldest]
        return vectors

    @cached_property
    def _embeddings(self) -> StarterEmbeddings | None:
        from jarvis_agent.backends.starter.embeddings import installed_embedder

        return installed_embedder(self._settings)


def _digest(card: str) -> bytes:
    return blake2b(f"{MINILM}\n{card[:_MAX_CARD_CHARS]}".encode(), digest_size=16).digest()
