"""The backend of sentence-transformers: what it compares and how, and which models it refuses."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.backends import local
from jarvis_agent.backends.base import Call
from jarvis_agent.backends.hub.model_card import model_at
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.errors import BadInputError, MissingExtraError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate

pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")

import tiny_text

from jarvis_agent.backends.sentence_transformers import SentenceTransformersBackend

Build = Callable[[Path], None]
Ask = Callable[..., Any]

QUERY = "who wrote the first program ?"
TEXTS = ["the cat is good", "who wrote the first program ?", "paris is the capital of france"]


@pytest.fixture
def backend() -> Iterator[SentenceTransformersBackend]:
    pool = ModelPool(limit_bytes=10**9)
    yield SentenceTransformersBackend(pool)
    asyncio.run(pool.close())


@pytest.fixture
def ask(backend: SentenceTransformersBackend) -> Ask:
    """What the model in a folder answers."""

    def ask(task: str, folder: Path, *, settings: Settings | None = None, **inputs: Any) -> Any:
        candidate = Candidate(id="org/model", task=task, **model_at(folder))
        assert backend.unsupported_reason(TASKS[task], candidate) is None
        call = Call(TASKS[task], candidate, inputs, Path, settings or Settings(device="cpu"))
        raw = asyncio.run(backend.run(call))
        assert json.loads(json.dumps(raw)) == raw
        return raw

    return ask


@pytest.mark.parametrize("build", [tiny_text.embedder, tiny_text.bert_base], ids=["saved", "plain"])
def test_a_text_is_most_similar_to_itself(ask: Ask, built: Any, build: Build) -> None:
    scores = ask("sentence-similarity", built(build), text=QUERY, sentences=TEXTS)
    assert scores[1] == max(scores) == pytest.approx(1)
    assert scores[0] < 0.999


def test_queries_and_documents_are_marked_as_the_model_wants_it(ask: Ask, built: Any) -> None:
    folder = built(tiny_text.asymmetric_embedder)
    ranked = ask("text-ranking", folder, text="the first program ?", sentences=["good", "who"])
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    marked = model.encode(["who wrote the first program ?", "the cat is good", "the cat is who"])
    expected = model.similarity(marked[:1], marked[1:])[0].tolist()
    assert {row["text"]: row["score"] for row in ranked} == {
        "good": pytest.approx(expected[0], abs=1e-5),
        "who": pytest.approx(expected[1], abs=1e-5),
    }


@pytest.mark.parametrize("build", [tiny_text.cross_encoder, tiny_text.reranker], ids=["saved", "plain"])
def test_a_cross_encoder_reads_the_texts_together(ask: Ask, built: Any, build: Build) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(built(build))
    tokenizer = AutoTokenizer.from_pretrained(built(build))
    with torch.inference_mode():
        batch = tokenizer([QUERY] * 3, TEXTS, return_tensors="pt", padding=True)
        expected = model(**batch).logits.sigmoid().flatten().tolist()
    ranked = ask("text-ranking", built(build), text=QUERY, sentences=TEXTS)
    assert [row["score"] for row in ranked] == pytest.approx(sorted(expected, reverse=True), abs=1e-5)
    assert all(row["score"] == pytest.approx(expected[row["index"]], abs=1e-5) for row in ranked)
    assert all(row["text"] == TEXTS[row["index"]] for row in ranked)
    alike = ask("sentence-similarity", built(build), text=QUERY, sentences=TEXTS)
    assert alike == pytest.approx(expected, abs=1e-5)


def test_a_text_becomes_one_vector(ask: Ask, built: Any) -> None:
    (vector,) = ask("feature-extraction", built(tiny_text.dense_embedder), text=QUERY)
    assert len(vector) == 8
    assert sum(number**2 for number in vector) == pytest.approx(1, abs=1e-4)


def test_a_cross_encoder_has_no_vectors(ask: Ask, built: Any) -> None:
    with pytest.raises(UnsupportedError, match="org/model compares texts, and gives none of them a vector"):
        ask("feature-extraction", built(tiny_text.cross_encoder), text=QUERY)


def test_a_model_is_loaded_once_for_all_its_tasks(
    ask: Ask, built: Any, backend: SentenceTransformersBackend
) -> None:
    folder = built(tiny_text.embedder)
    ask("feature-extraction", folder, text=QUERY)
    ask("sentence-similarity", folder, text=QUERY, sentences=TEXTS)
    ask("text-ranking", folder, text=QUERY, sentences=TEXTS)
    assert len(backend.pool.keys) == 1
    weights = (folder / "model.safetensors").stat().st_size
    assert backend.pool.nbytes == pytest.approx(weights, rel=0.25)


@pytest.mark.parametrize("build", [tiny_text.asymmetric_embedder, tiny_text.cross_encoder])
def test_calls_in_one_batch_get_what_they_would_get_alone(
    backend: SentenceTransformersBackend, built: Any, build: Build
) -> None:
    folder = built(build)
    tasks = ["sentence-similarity", "text-ranking", "text-ranking"]
    if build is tiny_text.asymmetric_embedder:
        tasks.append("feature-extraction")
    candidate = Candidate(id="org/model", task="", path=folder, local=True)
    expert: Any = backend.load(TASKS[tasks[0]], candidate, Settings(device="cpu"))
    calls = [
        Call(
            TASKS[task], candidate, {"text": TEXTS[n % 3], "sentences": TEXTS[: n % 3 + 1]}, Path, Settings()
        )
        for n, task in enumerate(tasks)
    ]
    assert expert.batch(calls) == _about([expert(call) for call in calls])


def _about(value: Any) -> Any:
    if isinstance(value, list):
        return [_about(item) for item in value]
    if isinstance(value, dict):
        return {key: _about(item) for key, item in value.items()}
    return pytest.approx(value, abs=1e-5) if isinstance(value, float) else value


@pytest.mark.parametrize("sentences", [[], None, ["fine", " "]])
def test_there_must_be_texts_to_compare_with(ask: Ask, built: Any, sentences: Any) -> None:
    with pytest.raises(BadInputError, match="sentence-similarity needs sentences to compare with"):
        ask("sentence-similarity", built(tiny_text.embedder), text=QUERY, sentences=sentences)


def test_a_classifier_of_pairs_is_no_ranker(ask: Ask, built: Any) -> None:
    with pytest.raises(UnsupportedError, match="sorts pairs of texts into 3 classes"):
        ask("text-ranking", built(tiny_text.bert_nli), text=QUERY, sentences=TEXTS)


@pytest.mark.parametrize("part", [".", "2_Dense"])
def test_weights_of_any_part_that_are_a_pickle_are_refused_unless_allowed(
    ask: Ask, built: Any, tmp_path: Path, part: str
) -> None:
    import torch
    from safetensors.torch import load_file

    folder = Path(shutil.copytree(built(tiny_text.dense_embedder), tmp_path / "copy"))
    torch.save(load_file(folder / part / "model.safetensors"), folder / part / "pytorch_model.bin")
    (folder / part / "model.safetensors").unlink()
    with pytest.raises(UnsupportedError, match=r"only as a pickle.*JARVIS_ALLOW_PICKLE"):
        ask("feature-extraction", folder, text=QUERY)
    allowed = Settings(device="cpu", allow_pickle=True)
    assert len(ask("feature-extraction", folder, text=QUERY, settings=allowed)[0]) == 8


def test_code_of_a_models_own_is_not_run(ask: Ask, built: Any, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(built(tiny_text.embedder), tmp_path / "copy"))
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["type"] = "own_pooling.OwnPooling"
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "own_pooling.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass OwnPooling: pass\n")
    with pytest.raises(UnsupportedError, match="org/model cannot be loaded for feature-extraction"):
        ask("feature-extraction", folder, text=QUERY)
    assert not (tmp_path / "ran").exists()


def test_a_model_that_compares_in_another_way_is_refused(ask: Ask, built: Any, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(built(tiny_text.embedder), tmp_path / "copy"))
    (folder / "config_sentence_transformers.json").write_text('{"model_type": "SparseEncoder"}')
    with pytest.raises(UnsupportedError, match="org/model is a SparseEncoder"):
        ask("text-ranking", folder, text=QUERY, sentences=TEXTS)


@pytest.mark.parametrize(
    ("task", "library", "reason"),
    [
        ("sentence-similarity", "sentence-transformers", None),
        ("sentence-similarity", "transformers", None),
        ("text-ranking", None, None),
        ("text-ranking", "gguf", "it is made for gguf, not for sentence-transformers"),
        ("feature-extraction", "sentence-transformers", None),
        ("feature-extraction", "transformers", "it is made for transformers, not for sentence-transformers"),
        ("summarization", "sentence-transformers", "sentence-transformers does not do summarization here"),
    ],
)
def test_what_can_be_run_is_told_before_anything_is_loaded(
    backend: SentenceTransformersBackend, task: str, library: str | None, reason: str | None
) -> None:
    candidate = Candidate(id="org/model", task=task, library=library, local=True)
    assert backend.unsupported_reason(TASKS[task], candidate) == reason


def test_a_missing_extra_is_named(
    backend: SentenceTransformersBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        local, "find_spec", lambda name: None if name == "sentence_transformers" else find_spec(name)
    )
    spec = TASKS["text-ranking"]
    candidate = Candidate(id="org/model", task=spec.name, library="sentence-transformers", local=True)
    assert 'needs the extra "local"' in (backend.unsupported_reason(spec, candidate) or "")
    with pytest.raises(MissingExtraError, match="local"):
        backend.load(spec, candidate, Settings())
