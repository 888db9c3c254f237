"""Sentence embeddings by all-MiniLM-L6-v2, without torch: 22 million parameters, milliseconds a sentence.

    embedder = load_embedder(Settings())
    a, b = embedder.encode(["How many cats are there?", "Count the cats."])
    float(a @ b)    # cosine similarity, since the vectors have length one

Notes:
- It is one of the starter models (jarvis_agent.backends.starter.models), where its weights are looked for.
- sentence-transformers reads the same weights and gives the same vectors, but takes seconds to import.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from jarvis_agent.core.text import sound
from jarvis_agent.core.errors import MissingExtraError, TransientError
from jarvis_agent.core.settings import Settings
from jarvis_agent.backends.starter.models import MINILM, STARTERS, fetch_weights

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

LAYERS, HEADS, MAX_TOKENS = 6, 12, 256

KEPT = 32
"""Vectors of the latest texts that are kept (1.5 kB each): planning compares a request several times.
The texts themselves, which may be long documents, are not."""

_ONE_LOADS = threading.Lock()


class Embedder:
    """Texts in, vectors of length one out. Safe to use from several threads."""

    def __init__(self, directory: Path) -> None:
        """Read the model in `directory`: its model.safetensors (90 MB) and tokenizer.json.

        Raises:
            MissingExtraError: numpy, safetensors, threadpoolctl or tokenizers is not installed.
        """
        try:
            from safetensors import safe_open
            from threadpoolctl import ThreadpoolController
            from tokenizers import Tokenizer
        except ImportError as error:
            raise MissingExtraError("sentence embeddings", "starter") from error
        self._tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.no_padding()
        with safe_open(directory / "model.safetensors", framework="numpy") as file:
            names = file.keys()
            self._weights: Mapping[str, Floats] = {
                name: _laid_out(name, file.get_tensor(name)) for name in names
            }

        # On a busy machine, products of matrices as small as these take many times longer on several threads.
        self._blas = ThreadpoolController().select(user_api="blas")
        self._one_at_a_time = threading.Lock()
        self._kept: OrderedDict[bytes, Floats] = OrderedDict()

    def encode(self, texts: Sequence[str]) -> Floats:
        """One vector a text.

        Args:
            texts: of any length; what exceeds 256 tokens is cut off. Characters that no text may hold (halves
                of surrogate pairs) count as unknown ones.

        Returns:
            float32 array of shape (len(texts), 384); each row has length one.
        """
        import numpy as np

        if not texts:
            return np.zeros((0, 384), np.float32)
        keys = [_key(text) for text in texts]
        with self._one_at_a_time:
            found = {key: self._kept[key] for key in keys if key in self._kept}
            new = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
            found.update(zip(new, self._encoded(list(new.values())), strict=True))
            for key, vector in found.items():
                self._kept[key] = vector
                self._kept.move_to_end(key)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return np.stack([found[key] for key in keys])

    def _encoded(self, texts: Sequence[str]) -> list[Floats]:
        """The vectors of texts that are not kept."""
        import numpy as np

        if not texts:
            return []
        ids = [self._tokenizer.encode(sound(text)).ids for text in texts]
        ends = np.cumsum([len(i) for i in ids])
        spans = [slice(end - len(i), end) for i, end in zip(ids, ends, strict=True)]
        with self._blas.limit(limits=1):
            states = self._states(np.concatenate([np.array(i) for i in ids]), spans)
        pooled = [states[span].mean(0) for span in spans]
        return [vector / np.linalg.norm(vector) for vector in pooled]

    def _states(self, tokens: NDArray[np.int64], spans: list[slice]) -> Floats:
        """BERT's last hidden states. The tokens of all texts stand in one row, so that nothing is padded."""
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
            inner = _gelu(self._linear(f"{layer}.intermediate.dense", states))
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
        return states @ self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]

    def _norm(self, name: str, states: Floats) -> Floats:
        import numpy as np

        centred = states - states.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
        normed: Floats = scaled * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
        return normed


def load_embedder(settings: Settings) -> Embedder:
    """The embedder, loaded once in a process.

    Raises:
        MissingExtraError: the weights are not here and may not, or can not, be downloaded; the message
            says which command installs them.
        ConfigError: the installed weights are not the ones that are expected.
    """
    try:
        directory = fetch_weights(STARTERS[MINILM], settings).parent
        with _ONE_LOADS:
            return _load(directory)
    except (MissingExtraError, TransientError) as error:
        raise MissingExtraError(f"{error}. Planning without an LLM", "starter") from error


@lru_cache(maxsize=1)
def _load(directory: Path) -> Embedder:
    return Embedder(directory)


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _laid_out(name: str, weight: Floats) -> Floats:
    """The matrices of the layers transposed, so that products with them are faster; others as they are."""
    return weight.T.copy() if weight.ndim == 2 and ".layer." in name else weight


def _gelu(x: Floats) -> Floats:
    """x·Φ(x) by the tanh approximation (Hendrycks and Gimpel, 2016); the vectors turn by less than 0.1°."""
    import numpy as np

    inner: Floats = np.float32((2 / np.pi) ** 0.5) * (x + np.float32(0.044715) * x * x * x)
    activated: Floats = x * (1 + np.tanh(inner)) * np.float32(0.5)
    return activated
