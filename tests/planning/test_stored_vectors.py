"""The vectors of the examples come with the package, are those of its texts, and are used for no others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from jarvis_agent.planning.example_selector import load_bank
from jarvis_agent.backends.starter.embeddings import load_embedder
from jarvis_agent.core.settings import Settings
from jarvis_agent.planning.retrieval import Similarity
from jarvis_agent.planning.stored_vectors import store, stored, texts


class Embedding:
    """An embedder to which all texts are alike, and which notes what it was given."""

    def __init__(self) -> None:
        self.given: list[str] = []

    def encode(self, given: Sequence[str]) -> NDArray[np.float32]:
        self.given += given
        return np.full((len(given), 384), 384**-0.5, np.float32)


@pytest.fixture
def embedder(monkeypatch: pytest.MonkeyPatch) -> Embedding:
    embedder = Embedding()
    monkeypatch.setattr(Similarity, "_embedder", embedder)
    return embedder


def test_the_stored_vectors_are_those_of_the_examples_and_of_the_tasks() -> None:
    assert list(stored()) == texts(), "run: python -m jarvis_agent.planning.stored_vectors"


@pytest.mark.starter
def test_storing_gives_the_vectors_that_are_stored(tmp_path: Path) -> None:
    store(load_embedder(Settings(offline=True)), tmp_path / "new.npz")
    new = stored(tmp_path / "new.npz")
    assert new.keys() == stored().keys()
    assert all(np.allclose(vector, new[text], atol=2e-3) for text, vector in stored().items())


def test_a_first_request_is_compared_with_the_bank_without_embedding_the_bank(embedder: Embedding) -> None:
    similarity = Similarity(Settings())
    similarity.scores("Count the sheep", [demo.request for demo in load_bank()])
    assert embedder.given == ["Count the sheep"]


def test_an_example_that_is_not_stored_is_embedded_once(embedder: Embedding) -> None:
    similarity = Similarity(Settings())
    own = ["An example of mine", load_bank()[0].request]
    assert similarity.scores("Count the sheep", own)[0] == pytest.approx(1.0)
    similarity.scores("Count the cows", own)
    assert embedder.given == ["An example of mine", "Count the sheep", "Count the cows"]


def test_vectors_of_another_model_or_of_no_file_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jarvis_agent.planning.stored_vectors.MINILM", "another/model")
    assert not stored()
    assert not stored(tmp_path / "missing.npz")
