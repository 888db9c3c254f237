"""The sentence-transformers backend: similarity, ranking, vectors, and refused models."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from libraries import needs
from model_bench import Bench, roughly

from jarvis_agent.backends.sentence_transformers import SentenceTransformersBackend
from jarvis_agent.core.errors import BadInputError, UnsupportedError

needs("torch")
needs("sentence_transformers")

pytestmark = pytest.mark.slow

BACKEND = SentenceTransformersBackend
QUERY = "who wrote the first program ?"
TEXTS = ["the cat is good", "who wrote the first program ?", "paris is the capital of france"]
COMPARED = {"text": QUERY, "sentences": TEXTS}


def test_a_text_is_most_similar_to_itself(bench: Bench) -> None:
    for model in ("embedder", "bert_base"):  # saved by sentence-transformers, and plain
        scores = bench.ask("sentence-similarity", model, **COMPARED)
        assert scores[1] == max(scores) == pytest.approx(1)
        assert scores[0] < 0.999
        assert json.loads(json.dumps(scores)) == scores


def test_queries_and_documents_are_marked_as_the_model_wants_it(bench: Bench) -> None:
    from sentence_transformers import SentenceTransformer

    given = {"text": "the first program ?", "sentences": ["good", "who"]}
    ranked = bench.ask("text-ranking", "asymmetric_embedder", **given)
    model = SentenceTransformer(str(bench.built("asymmetric_embedder")), device="cpu")
    marked = model.encode(["who wrote the first program ?", "the cat is good", "the cat is who"])
    expected = dict(zip(["good", "who"], model.similarity(marked[:1], marked[1:])[0].tolist(), strict=True))
    assert {row["text"]: row["score"] for row in ranked} == roughly(expected)


@pytest.mark.parametrize("model", ["cross_encoder", "reranker"], ids=["saved", "plain"])
def test_a_cross_encoder_reads_the_texts_together(bench: Bench, model: str) -> None:
    from sentence_transformers import CrossEncoder

    encoder = CrossEncoder(str(bench.built(model)), device="cpu")
    expected = encoder.predict([(QUERY, text) for text in TEXTS]).tolist()
    rows = [{"index": n, "text": TEXTS[n], "score": score} for n, score in enumerate(expected)]
    ranked = bench.ask("text-ranking", model, **COMPARED)
    assert ranked == roughly(rows)
    assert bench.ask("sentence-similarity", model, **COMPARED) == roughly(expected)


def test_a_text_becomes_one_vector_unless_the_model_compares(bench: Bench) -> None:
    from transformers import AutoModel, AutoTokenizer

    (vector,) = bench.ask("feature-extraction", "dense_embedder", text=QUERY)
    assert len(vector) == 8
    assert sum(number**2 for number in vector) == pytest.approx(1, abs=1e-4)
    folder = str(bench.built("bert_base"))
    words = AutoTokenizer.from_pretrained(folder)(QUERY, return_tensors="pt")
    mean = AutoModel.from_pretrained(folder)(**words).last_hidden_state[0].mean(0).tolist()
    assert bench.ask("feature-extraction", "bert_base", text=QUERY)[0] == pytest.approx(mean, abs=1e-5)
    with pytest.raises(UnsupportedError, match="org/model compares texts, and gives none of them a vector"):
        bench.ask("feature-extraction", "cross_encoder", text=QUERY)


def test_calls_in_one_batch_get_what_they_would_get_alone(bench: Bench) -> None:
    for model in ("asymmetric_embedder", "cross_encoder"):
        calls = [
            bench.call(task, model, text=TEXTS[n % 3], sentences=TEXTS[: n % 3 + 1])
            for n, task in enumerate(["sentence-similarity", "text-ranking", "text-ranking"])
        ]
        if model == "asymmetric_embedder":
            calls.append(bench.call("feature-extraction", model, text=QUERY))
        expert = bench.load(calls[0])
        assert expert.batch(calls) == roughly([expert(call) for call in calls])


@pytest.mark.parametrize(
    ("task", "model"), [("sentence-similarity", "bert_base"), ("text-ranking", "reranker")]
)
def test_texts_that_are_longer_than_what_the_model_reads_are_counted(
    bench: Bench, task: str, model: str
) -> None:
    for sentences, longer in ((TEXTS, 0), (["cat " * 999, *TEXTS, "good " * 999], 2)):
        call = bench.call(task, model, text=QUERY, sentences=sentences)
        bench.load(call)(call)
        assert [note.endswith(f"longer: {longer}") for note in call.notes] == [True] * bool(longer)


def test_there_must_be_texts_to_compare_with(bench: Bench) -> None:
    for sentences in ([], None, ["fine", " "]):
        with pytest.raises(BadInputError, match="sentence-similarity needs sentences to compare with"):
            bench.ask("sentence-similarity", "embedder", text=QUERY, sentences=sentences)


def test_code_of_the_model_is_not_run(bench: Bench, copied: Callable[[str], Path], tmp_path: Path) -> None:
    folder = copied("embedder")
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["type"] = "own_pooling.OwnPooling"
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "own_pooling.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass OwnPooling: pass\n")
    with pytest.raises(UnsupportedError, match="org/model cannot be loaded for feature-extraction"):
        bench.ask("feature-extraction", folder, text=QUERY)
    assert not (tmp_path / "ran").exists()


def test_a_model_that_compares_in_another_way_is_refused(bench: Bench, copied: Callable[[str], Path]) -> None:
    folder = copied("embedder")
    (folder / "config_sentence_transformers.json").write_text('{"model_type": "SparseEncoder"}')
    with pytest.raises(UnsupportedError, match="org/model is a SparseEncoder"):
        bench.ask("text-ranking", folder, **COMPARED)
