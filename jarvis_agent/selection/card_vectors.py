"""Embeddings of model cards, kept on disk, so that only new cards are computed.

    vectors = CardVectors(settings)
    vectors.similarities("chest X-ray", ["vit for radiographs", "cats and dogs"])     # [0.52, 0.11]

By MiniLM of the starter package; without it, or for a text in Chinese, Japanese or Korean, which it does not
know, every similarity is 0.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING

from jarvis_agent.backends.starter.backend import MINILM
from jarvis_agent.core.errors import ConfigError, MissingExtraError
from jarvis_agent.core.settings import Settings
from jarvis_agent.planning.examples import CJK
from jarvis_agent.selection.store import SelectionStore, open_store

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from jarvis_agent.backends.starter.embeddings import StarterEmbeddings

_MAX_KEPT = 20_000
"""Embeddings in memory, 1.5 kilobytes each."""
_MAX_CHARS = 1000
"""Characters of a card that are compared."""


class CardVectors:
    """Compares texts with cards. Thread-safe. Nothing is downloaded."""

    def __init__(self, settings: Settings, store: SelectionStore | None = None) -> None:
        self._settings = settings.model_copy(update={"offline": True})
        self._store = store or open_store(settings)
        self._kept: dict[bytes, NDArray[np.float32]] = {}
        self._lock = threading.Lock()

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

        texts = {_digest(card): card[:_MAX_CHARS] for card in cards}
        with self._lock:
            kept = self._kept
            if unknown := [digest for digest in texts if digest not in kept]:
                stored = self._store.vectors(unknown)
                kept |= {
                    key: np.frombuffer(value, np.float16).astype(np.float32) for key, value in stored.items()
                }
            if new := [digest for digest in unknown if digest not in kept]:
                kept |= dict(zip(new, embeddings.encode([texts[digest] for digest in new]), strict=True))
                self._store.add_vectors((digest, kept[digest].astype(np.float16).tobytes()) for digest in new)
            found = [kept[_digest(card)] for card in cards]
            for oldest in list(kept)[:-_MAX_KEPT]:
                del kept[oldest]
        return found

    @cached_property
    def _embeddings(self) -> StarterEmbeddings | None:
        from jarvis_agent.backends.starter.embeddings import load_embedder

        try:
            return load_embedder(self._settings)
        except (MissingExtraError, ConfigError):
            return None


def _digest(card: str) -> bytes:
    return blake2b(f"{MINILM}\n{card[:_MAX_CHARS]}".encode(), digest_size=16).digest()
