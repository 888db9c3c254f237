"""How near texts are to a request: by sentence embeddings where their model is here, else by shared words.

    similarity = Similarity(settings)
    similarity.scores("Count the sheep in meadow.jpg", ["How many cars are in e1.jpg?", "Read this out"])
    # [0.55, 0.08]
    similarity.tasks(brief)                       # [{"object-detection": 0.86, …}], one for each step

The embeddings know English. Texts in Chinese, Japanese or Korean are compared by the pairs of characters that
they share, and are nearer to each other than to any text in another script. Plain Chinese requests are split
into steps that are put in English.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from jarvis_agent.core.errors import ConfigError, MissingExtraError
from jarvis_agent.core.request import mentions
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.planning.inputs import PlanRequest, kind_by_name
from jarvis_agent.planning.offline import chinese
from jarvis_agent.planning.offline.classifier import Classifier
from jarvis_agent.planning.offline.clauses import first_of, split
from jarvis_agent.planning.offline.delexicalise import readings
from jarvis_agent.planning.offline.limits import ends
from jarvis_agent.planning.offline.masking import mask_entities
from jarvis_agent.planning.offline.phrases import load_bank, wording
from jarvis_agent.planning.stored_vectors import stored

if TYPE_CHECKING:
    from jarvis_agent.backends.starter.embeddings import Floats, StarterEmbeddings

_EASTERN = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")
_WORD = re.compile(r"[^\W_]+")
_SAME_SCRIPT = 0.5
_COMMON = frozenset(
    ("a", "an", "the", "of", "in", "on", "to", "and", "or", "is", "are", "it", "me", "my", "i", "please")
)


class Similarity:
    """Compares texts. Nothing is loaded before the first comparison, and nothing is ever downloaded."""

    def __init__(self, settings: Settings) -> None:
        """`settings` say where the weights of the embeddings are looked for."""
        self._settings = settings.model_copy(update={"offline": True})

    @property
    def knows_meaning(self) -> bool:
        """Whether the model of the embeddings is here."""
        return self._embedder is not None

    def scores(self, text: str, others: Sequence[str]) -> list[float]:
        """How near each of the others is to the text: 1 is as near as can be.

        File names count as their kinds. The vectors of `others` are kept: they should be of a fixed stock.
        Those of the bank's examples and of the tasks' descriptions come with the package.
        """
        text, others = ends(without_names(text)), [_kept_without_names(other) for other in others]
        if _EASTERN.search(text) or self._embedder is None:
            return _shared(text, others)
        new = [other for other in dict.fromkeys(others) if other not in self._known]
        self._known.update(zip(new, self._embedder.encode(new), strict=True))
        asked = self._embedder.encode([text])[0]
        return [float(self._known[other] @ asked) for other in others]

    def tasks(self, brief: PlanRequest) -> list[dict[str, float]]:
        """For each step of a request how near it is to the ways in which each task is put in words.

        Besides the tasks on offer, "small-talk" and "out-of-scope" have such ways.
        """
        marked = mask_entities(brief.request, brief.files)
        in_chinese = chinese.is_chinese(marked.text)
        steps = first_of(chinese.steps(marked) if in_chinese else split(marked.text))
        read = [readings(step.text, marked).as_is for step in steps]
        texts = list(dict.fromkeys(text for each in read for text in each))
        if not texts:
            return []
        found = dict(zip(texts, self._near_tasks(texts, brief.specs.values()), strict=True))
        return [
            {name: max(found[text][name] for text in each) for name in found[each[0]]}
            for each in read
            if each
        ]

    def _near_tasks(self, texts: Sequence[str], specs: Iterable[TaskSpec]) -> list[Mapping[str, float]]:
        if self._classifier is None:
            return _by_words(texts, specs)
        return [near.cosines for near in self._classifier.near(texts, specs)]

    @cached_property
    def _known(self) -> dict[str, Floats]:
        return dict(stored())

    @cached_property
    def _classifier(self) -> Classifier | None:
        return Classifier(self._embedder) if self._embedder else None

    @cached_property
    def _embedder(self) -> StarterEmbeddings | None:
        from jarvis_agent.backends.starter.embeddings import load_embedder

        try:
            return load_embedder(self._settings)
        except (MissingExtraError, ConfigError):
            return None


def without_names(text: str) -> str:
    """The text with its files called by their kinds: "Describe cat.jpg" → "Describe the image"."""
    for name in sorted(mentions(text), key=len, reverse=True):  # "a.jpg" is in "aa.jpg" too
        text = text.replace(name, f"the {kind_by_name(name)}")
    return text


def _by_words(texts: Sequence[str], specs: Iterable[TaskSpec]) -> list[Mapping[str, float]]:
    ways = {name: entry.phrases for name, entry in load_bank().items()}
    ways |= {spec.name: wording(spec).phrases for spec in specs}
    return [{name: max(_shared(text, phrases)) for name, phrases in ways.items()} for text in texts]


def _shared(text: str, others: Iterable[str]) -> list[float]:
    """The share of their words, or pairs of eastern characters, that a text has in common with each other."""
    own, eastern = _parts(text), bool(_EASTERN.search(text))
    shared = []
    for other in others:
        parts = _kept_parts(other)
        overlap = 2 * len(own & parts) / max(1, len(own) + len(parts))
        same_script = eastern == bool(_EASTERN.search(other))
        shared.append((1 - _SAME_SCRIPT) * overlap + _SAME_SCRIPT * same_script)
    return shared


def _parts(text: str) -> frozenset[str]:
    words = {word.lower()[:6] for word in _WORD.findall(_EASTERN.sub(" ", text))} - _COMMON
    eastern = "".join(char if _EASTERN.match(char) else " " for char in text)
    pairs = {a + b for a, b in pairwise(eastern) if " " not in (a, b)}
    return frozenset(words | pairs)


# What requests are compared with is a fixed stock; the requests themselves are nothing to keep.
_kept_parts = lru_cache(maxsize=4096)(_parts)
_kept_without_names = lru_cache(maxsize=4096)(without_names)
