"""The starter embeddings: the interface of LangChain and the vectors of sentence-transformers."""

import re
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.embeddings import Embeddings

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.jobs import Job, running
from jarvis_agent.backends.starter import embeddings
from jarvis_agent.backends.starter.backend import MINILM, STARTERS, find_weights
from jarvis_agent.backends.starter.embeddings import load_embedder, map_words, word_vectors
from jarvis_agent.core.errors import ExpertError, MissingExtraError, install_command
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate
from jarvis_agent.evaluation.requests import read_requests
from jarvis_agent.planning.offline import OfflinePlanner

OFFLINE = Settings(offline=True)
TEXTS = ["Count the cats.", "How many cats are there in this picture?", "", "naïve café 你好", "word " * 400]


@pytest.mark.slow
@pytest.mark.starter
def test_vectors_in_8_bits_agree_with_those_of_sentence_transformers() -> None:
    import train
    from sentence_transformers import SentenceTransformer

    texts = [*TEXTS, *(asked.request for asked in read_requests()[:150])]
    expected = SentenceTransformer(str(train.minilm()), device="cpu").encode(texts, normalize_embeddings=True)
    ours = load_embedder(OFFLINE).encode(texts)
    assert ours.shape == expected.shape == (len(texts), 384)
    assert ours.dtype == "float32"
    assert (ours * expected).sum(axis=1).min() > 0.998
    nearest, wanted = ((rows @ rows.T - 2 * np.eye(len(texts))).argmax(1) for rows in (ours, expected))
    assert (nearest == wanted).mean() > 0.95


@pytest.mark.starter
def test_the_interface_is_langchains() -> None:
    model = load_embedder(OFFLINE)
    assert isinstance(model, Embeddings)
    near, same, far, odd, half = model.embed_documents(
        [
            "Read the text aloud.",
            "Say these words with your voice.",
            "Find the edges of the picture.",
            "Count the cats \ud83d",  # an unpaired surrogate counts as an unknown character
            "Count the cats \ufffd",
        ]
    )
    cosine = [sum(a * b for a, b in zip(near, other, strict=True)) for other in (same, far)]
    assert cosine[0] > 0.4 > cosine[1]
    assert odd == pytest.approx(half, abs=1e-6)
    assert model.embed_query("Read the text aloud.") == pytest.approx(near, abs=1e-5)
    assert model.embed_documents([]) == []


@pytest.mark.starter
def test_the_word_table_takes_no_memory_of_a_process_alone() -> None:
    weights = find_weights(STARTERS[MINILM])
    assert weights is not None
    table = map_words(weights.with_name("words.npy"))
    assert isinstance(table, np.memmap)
    assert word_vectors(table, [[101, 102]]).shape == (1, 2, 384)


@pytest.mark.starter
def test_a_text_is_not_kept() -> None:
    class Request(str):
        """A text that can have a weak reference."""

    model = load_embedder(OFFLINE)
    text = Request("A private request.")
    kept = weakref.ref(text)
    model.encode([text])
    del text
    assert kept() is None


@pytest.mark.starter
def test_texts_are_computed_one_by_one_until_the_call_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    model, count = load_embedder(OFFLINE), 0
    encoder = model._encoder
    job = Job(Call(TASKS["feature-extraction"], Candidate(id="a", task=""), {}, Path, OFFLINE))

    def counted(words: Any) -> Any:
        nonlocal count
        count += 1
        job.cancelled = count == 5
        return encoder(words)

    monkeypatch.setattr(model, "_encoder", counted)
    with running((job,)), pytest.raises(ExpertError, match="stopped"):
        model.encode([f"Text number {n}." for n in range(40)])
    assert count == 5


def test_threads_load_the_model_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    loaded: list[Path] = []

    class Slow:
        def __init__(self, directory: Path) -> None:
            loaded.append(directory)
            time.sleep(0.05)

    monkeypatch.setattr(embeddings, "fetch_weights", lambda *_: tmp_path / "encoder.onnx")
    monkeypatch.setattr(embeddings, "StarterEmbeddings", Slow)
    embeddings._load.cache_clear()
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(load_embedder, [OFFLINE] * 4))
    finally:
        embeddings._load.cache_clear()
    assert loaded == [tmp_path]


def test_without_weights_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    row = replace(STARTERS[MINILM], package="a_package_that_is_not_there")
    monkeypatch.setitem(STARTERS, MINILM, row)
    with pytest.raises(MissingExtraError, match=re.escape(install_command("starter"))):
        load_embedder(Settings(offline=False))
    with pytest.raises(MissingExtraError, match="starter"):
        OfflinePlanner(settings=OFFLINE).invoke("Draw a cat")
