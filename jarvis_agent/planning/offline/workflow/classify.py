"""Which tool a clause speaks of: a linear classifier on its sentence embedding and its words.

    model = load_model()
    model.log_odds(embedder, ["translate the answer into French", "I have an image"])   # shape (2, 22)
    model.names      # ("audio-classification", …, "none", …)

The weights are fitted by `python -m jarvis_agent.planning.offline.workflow` on
clauses made from data/clauses.json,
and stand in data/clauses.npz.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from jarvis_agent.planning.offline.marks import MARK, Mark, Marked
from jarvis_agent.planning.offline.steps import without_lead_in
from jarvis_agent.planning.offline.wordings import DATA
from jarvis_agent.planning.offline.workflow.clauses import SPEAKER

if TYPE_CHECKING:
    from jarvis_agent.backends.starter.embeddings import Floats, StarterEmbeddings

WEIGHTS = DATA / "clauses.npz"
NONE = "none"
"""The class of clauses that speak of no tool."""
LONGEST = 300
"""Letters of a clause that are read; longer ones take time and are no orders."""
WORDS = 4096
"""Columns for words and pairs of words, to which they are hashed."""

_NOUN = (
    r"(?:(?:the |this |my |an? )?(?:(?:attached|given|provided|following|input|called|named)\s+)*"
    r"(?:image|picture|photo|audio|text|document|article|file|recording|question|video|sentence)?\s*"
    r"(?:files?|images?)?\s*(?:named |called |titled )?)"
)
_LEFT_OVER = re.compile(
    r"^\W*(?:(?:and|then|also|next|finally|lastly|afterwards?|after that|that|which|so|to|by|first|please|"
    rf"{SPEAKER}(?:(?:['’]d| would)?(?: also| then| really)? (?:like|want|need|wish)(?:e?s)?(?: to)?(?: see)?"
    r"| can)|"
    r"you|the system|could|can|me|help|it is|but|if possible|once done|as well)\b[\s,]*)+",
    re.IGNORECASE,
)

_GROUNDS = re.compile(
    r"^(\W*\w+\s+\w.*?),?\s+(?:(?:based|depending|building) (?:up)?on|according to|"
    r"in accordance with|considering|on the (?:output|result)s? of|related to (?:the|that|this|my|its)|"
    r"(?:by )?using (?:the|those|that|these|this|its|my))\b.*$",
    re.IGNORECASE,
)
"""On what grounds something is to be made ("an image based on the summary") is not what is to be made."""


@dataclass(frozen=True)
class Model:
    """The fitted classifier.

    Attributes:
        names: the classes, NONE among them.
        weights: of the shape (384 + WORDS, len(names)).
        bias: of the shape (len(names),).
    """

    names: tuple[str, ...]
    weights: Floats
    bias: Floats

    def log_odds(self, embedder: StarterEmbeddings, texts: Sequence[str]) -> Floats:
        """Logarithms of the probabilities of each class, a row a text."""
        import numpy as np

        scores = features(embedder, texts) @ self.weights + self.bias
        top = scores.max(axis=1, keepdims=True)
        found: Floats = scores - top - np.log(np.exp(scores - top).sum(axis=1, keepdims=True))
        return found


@lru_cache(maxsize=1)
def load_model() -> Model:
    """The model, loaded once in a process."""
    import numpy as np

    with np.load(WEIGHTS, allow_pickle=False) as stored:
        names = tuple(str(name) for name in stored["names"])
        return Model(names, stored["weights"].astype(np.float32), stored["bias"].astype(np.float32))


def features(embedder: StarterEmbeddings, texts: Sequence[str]) -> Floats:
    """What the classifier sees of texts: their embeddings, and the words and pairs of words in them."""
    import numpy as np

    found = np.zeros((len(texts), 384 + WORDS), np.float32)
    found[:, :384] = embedder.encode([text or "." for text in texts])
    for row, text in enumerate(texts):
        columns = [384 + zlib.crc32(term.encode()) % WORDS for term in _terms(text)]
        found[row, columns] = 0.5 / max(1, len(columns)) ** 0.5
    return found


def worded(text: str, marked: Marked) -> str:
    """A clause without what leads to it, and with nouns in place of its marks."""
    words = _LEFT_OVER.sub("", without_lead_in(text)) or text
    words = _GROUNDS.sub(r"\1", words)
    words = re.sub(rf"\(\s*({MARK})\s*\)", r"\1", words)
    words = re.sub(
        rf"{_NOUN}({MARK})", lambda m: f" {_noun(marked.marks[m[1]])} ", words, flags=re.IGNORECASE
    )
    return re.sub(r"\s+", " ", words).strip(" .,;:!()'\"")[:LONGEST]


def _noun(mark: Mark) -> str:
    if mark.kind == "text" and not mark.is_file and mark.value.rstrip(" .'\"").endswith(("?", "？")):
        return "the question"
    return {"image": "the image", "audio": "the audio", "video": "the video"}.get(mark.kind, "the text")


def _terms(text: str) -> set[str]:
    words = [_stem(word) for word in re.findall(r"[a-z]+", text.lower())]
    return {*words, *(f"{one} {two}" for one, two in pairwise(words))}


def _stem(word: str) -> str:
    """A word without the endings that tell "transcribing" from "transcribe"."""
    bare = re.sub(r"(?:ations?|ating|ated|ates?|ions?|ings?|ed|es|s|e)$", "", word)
    return bare if len(bare) > 2 else word
