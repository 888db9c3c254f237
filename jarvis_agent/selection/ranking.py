"""Ranking: how well each model suits a task, as a sum of named factors.

The purpose is what the planner wrote. It is compared with what cards say, by MiniLM and by BM25. Without one,
the data that a model was trained on count instead. The weights were compared by the totals of APIBench
(`python benchmarks selection apibench`) and on requests without a purpose.
"""

from __future__ import annotations

import math
import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

from jarvis_agent.backends.hub.model_card import TRAINED_ON
from jarvis_agent.backends.languages import LANGUAGES, find_language, languages_in
from jarvis_agent.backends.starter.backend import MINILM
from jarvis_agent.core.forks import cached_property, fork_safe
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.text import detect_script
from jarvis_agent.core.types import Candidate, Preference, Task
from jarvis_agent.selection.store import Experience, SelectionStore, open_store

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from jarvis_agent.backends.starter.embeddings import StarterEmbeddings

WEIGHTS = {
    "purpose": 5.0,  # its card is similar to the purpose and has its words
    "language": 2.5,  # it knows a language that the task names; negative if its card names others
    "general": 1.8,  # it was trained on general-purpose data
    "popularity": 0.6,  # powers of ten of its downloads and likes
    "evidence": 0.3,  # it has published results
    "machine": 2.0,  # it is on this machine; its size here; the price of a hosted call
    "experience": 6.0,  # how its calls went, and how its results were rated
}
"""The weight of each factor. One failed call costs nearly half as much as a model on this machine gains."""

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

BESIDE_A_PURPOSE = 0.3
"""What general-purpose data count beside a purpose."""

LETTERS = 0.06
"""Weight of the root of the BM25 score beside the cosine, which is at most 1."""

DOWNLOADS_PER_LIKE = 100
"""A like counts as this many downloads: the median ratio of the two on the Hub is of this order."""
UNKNOWN_DOWNLOADS = 1_000_000
"""Assumed for a model on this machine whose downloads are unknown: its user or this project chose it."""

PER_GIGABYTE, PER_PRICE = 0.25, 5.0
"""What loading 10⁹ bytes costs of being on this machine, and a unit of currency for a hosted call."""
PREFERRED = 20.0
"""How many times as much counts what a request prefers: a low price, a small model, or a large one."""

EXPECTED_RATE, PRIOR_CALLS = 0.9, 5
"""Calls and ratings count beside this many others of this success rate (a Bayesian average)."""

OWN_MODEL = "own-model"
"""The trait of the user's language model for a task that it does best. It is in memory anyway, or on a
server, so its size counts nothing."""
GENERALIST = "generalist"
"""The trait of a model for tasks that dedicated models do better: being on this machine brings no points."""
BY_SIMILARITY = "by-similarity"
"""The trait of a model that compares labels with a text: a language model, which reads it, comes first."""

_EXAMPLE_CHARS = 600
_NAMES = {language.code: language.name for language in LANGUAGES}
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
_SHORT, _MAX_SENTENCES, _MAX_PASSAGE_CHARS = 15, 6, 1000
"""Characters of a sentence that says nothing alone, sentences compared alone, characters of a passage."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+")

WORD = re.compile(r"[^\W_]+")
_COMMON = {
    "a", "an", "the", "of", "in", "on", "to", "and", "or", "is", "are", "it", "me", "my", "i", "please",
}  # fmt: skip
_GRAM = 4
_K1, _B = 1.2, 0.75  # BM25's usual constants


Factors = dict[str, float]
"""The weighted factors of a model, by the names in WEIGHTS; higher is better."""


def score_candidates(
    candidates: Sequence[Candidate],
    here: Sequence[bool],
    task: Task,
    vectors: CardVectors | None = None,
    experience: Mapping[str, Experience] | None = None,
    prices: Sequence[float] = (),
    preference: Preference | None = None,
) -> list[Factors]:
    """Return the factors of each candidate, by whether it would run `here`, and the price of a call.

    Without `vectors`, only letters of the purpose and cards are compared. `experience` is by id.
    """
    fitness = [0.0] * len(candidates)
    if task.purpose:
        examples = [str(each.metadata.get("examples") or "")[:_EXAMPLE_CHARS] for each in candidates]
        cards = [card_passages(candidate) for candidate in candidates]
        texts = [f"{card[-1]} {example}" for card, example in zip(cards, examples, strict=True)]
        fitness = similarities(task.purpose, cards, texts, vectors)
    costs = prices or [0.0] * len(candidates)
    languages = named_languages(task)
    factors: list[Factors] = []
    for candidate, runs_here, fit, price in zip(candidates, here, fitness, costs, strict=True):
        is_chosen = candidate.local or OWN_MODEL in candidate.traits
        downloads = candidate.downloads + DOWNLOADS_PER_LIKE * candidate.likes
        values = {
            "purpose": fit,
            "language": _language(candidate, languages or {"en"}),
            "general": has_general_data(candidate) * (BESIDE_A_PURPOSE if task.purpose else 1.0),
            "popularity": math.log10(1 + (downloads or UNKNOWN_DOWNLOADS * is_chosen)),
            "evidence": float(bool(candidate.metadata.get("results"))),
            "machine": _machine(candidate, runs_here, price, preference),
            "experience": _experience((experience or {}).get(candidate.id, Experience())),
        }
        factors.append({name: round(WEIGHTS[name] * value, 3) for name, value in values.items()})
    return factors


def named_languages(task: Task) -> frozenset[str]:
    """Return the ISO 639-1 codes of languages that a task names, or whose letters its texts have."""
    args = task.args
    named = (find_language(str(args.get(name) or "")) for name in ("src_lang", "tgt_lang"))
    texts = (args.get(name) for name in ("text", "context"))
    written = {detect_script(text) or "" for text in texts if isinstance(text, str)}
    return languages_in(task.purpose) | {language.code for language in named if language} | written - {""}


def _language(candidate: Candidate, wanted: Set[str]) -> float:
    declared = {*candidate.languages}
    if (wanted - {"en"}) & declared:
        return 1.0
    named = declared | languages_in(card_passages(candidate)[-1])
    is_for_others = named - {"en"} and not (declared if "en" in wanted else named) & wanted
    return -0.5 if is_for_others else 0.0


def _machine(candidate: Candidate, runs_here: bool, price: float, preference: Preference | None) -> float:
    loaded = PER_GIGABYTE * (candidate.size or 0) / 1e9
    if preference == "best":
        return PREFERRED * math.log10(1 + loaded)
    if OWN_MODEL in candidate.traits:
        return 1.0
    price *= PER_PRICE * (PREFERRED if preference == "cheapest" else 1.0)
    if not runs_here:
        return -price - (PER_GIGABYTE * PREFERRED if preference else 0.0)
    is_ready = candidate.local and GENERALIST not in candidate.traits
    return is_ready - loaded * (PREFERRED if preference == "fastest" else 1.0)


def _experience(past: Experience) -> float:
    def gain(good: int, count: int) -> float:
        return (good + EXPECTED_RATE * PRIOR_CALLS) / (count + PRIOR_CALLS) - EXPECTED_RATE

    return gain(past.ok, past.calls) + gain(past.good, past.good + past.bad)


def similarities(
    query: str, cards: Sequence[Sequence[str]], texts: Sequence[str], vectors: CardVectors | None
) -> list[float]:
    """How similar each card is to a query in meaning, by MiniLM, and its text in letters, by BM25."""
    cosines = vectors.similarities(query, cards) if vectors else [0.0] * len(cards)
    scores = bm25(_letter_grams(query), [_cached_grams(text) for text in texts])
    return [cosine + LETTERS * math.sqrt(score) for cosine, score in zip(cosines, scores, strict=True)]


def _letter_grams(text: str) -> Mapping[str, int]:
    """How often a text has each run of four letters within a word, or two without spaces (Chinese).

    Runs of letters match across forms and compounds ("dogs", "bulldog") without a stemmer.
    """
    counts: Counter[str] = Counter()
    for word in WORD.findall(text.lower()):
        if word in _COMMON or len(word) < 2:
            continue
        size = _GRAM if word.isascii() else 2
        framed = f"#{word}#" if word.isascii() else word
        counts.update(framed[start : start + size] for start in range(max(1, len(framed) - size + 1)))
    return counts


# Only the texts that a query is compared with are cached, not the queries.
_cached_grams = lru_cache(maxsize=8192)(_letter_grams)


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
            length = 1 - _B + _B * lengths[place] / mean
            scores[place] += weight * count * (_K1 + 1) / (count + _K1 * length)
    return scores


def card_passages(candidate: Candidate) -> list[str]:
    """Return what a card says: the words of its id, its subjects, its description, its sentences, and all."""
    directions = [trait.partition(":")[2] for trait in candidate.traits if trait.startswith(("from:", "to:"))]
    codes = dict.fromkeys([*directions, *candidate.languages])
    languages = [_NAMES[code] for code in codes if code in _NAMES]
    about = [tag for tag in candidate.tags if is_subject(tag, candidate)]
    about += languages if len(languages) <= _MAX_NAMED_LANGUAGES else []
    description = candidate.description
    # "org/PlantLeaf_v2" → "org Plant Leaf v2"
    name = re.sub(r"(?<=[a-z])(?=[A-Z])|[^\w.]+|_", " ", candidate.id).strip()
    sentences = [sentence for sentence in _SENTENCE.split(description) if len(sentence) > _SHORT]
    # A description from a card's metadata names its data sets already, which would count twice.
    named = description if description.startswith(TRAINED_ON) else ""
    data = (dataset for dataset in datasets_of(candidate) if dataset not in named)
    whole = f"{'. '.join((name, *about))}. {description} {' '.join(data)}".strip()
    passages = (name, ". ".join(about), description, *sentences[:_MAX_SENTENCES], whole)
    return list(filter(None, passages))


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


class CardVectors:
    """Embeddings of passages of model cards, kept on disk, so that only new ones are computed. Thread-safe.

    By MiniLM of the starter package; nothing is downloaded. Without it, or for a text in Chinese, Japanese or
    Korean, which it does not know, every similarity is 0.
    """

    def __init__(self, settings: Settings, store: SelectionStore | None = None) -> None:
        self._settings = settings
        self._store = store or open_store()
        self._cache: dict[bytes, NDArray[np.float32]] = {}
        self._lock = fork_safe(threading.Lock())

    def similarities(self, text: str, cards: Sequence[Sequence[str]]) -> list[float]:
        """Return the mean cosine of the text with the last passage of each card and its best, at most 1."""
        if self._embeddings is None or not cards or detect_script(text):
            return [0.0] * len(cards)
        import numpy as np

        query = self._embeddings.encode([text])[0]
        passages = [passage for card in cards for passage in card]
        cosines = iter((np.stack(self._vectors(self._embeddings, passages)) @ query).tolist())
        by_card = [[next(cosines) for _ in card] for card in cards]
        return [(max(each) + each[-1]) / 2 for each in by_card]

    def _vectors(self, embeddings: StarterEmbeddings, passages: Sequence[str]) -> list[NDArray[np.float32]]:
        import numpy as np

        texts = {_digest(passage): passage[:_MAX_PASSAGE_CHARS] for passage in passages}
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
            vectors = [cache[_digest(passage)] for passage in passages]
            for oldest in list(cache)[:-_MAX_VECTORS]:
                del cache[oldest]
        return vectors

    @cached_property
    def _embeddings(self) -> StarterEmbeddings | None:
        from jarvis_agent.backends.starter.embeddings import installed_embedder

        return installed_embedder(self._settings)


def _digest(passage: str) -> bytes:
    return blake2b(f"{MINILM}\n{passage[:_MAX_PASSAGE_CHARS]}".encode(), digest_size=16).digest()
