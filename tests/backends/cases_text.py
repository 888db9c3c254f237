"""Cases for tests/test_every_task.py: text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tiny_tabular
import tiny_text
from task_case import Artifact, Case

SAID = "Ada wrote the first program. The cat is in Paris."
OTHERS = ["The dog is good.", "Who wrote the first program?", "Paris is the capital of France."]
LABELS = {"first", "second", "third"}


def _rows(*keys: str, **values: set[Any]) -> Callable[[Artifact], None]:
    """A check of a list of rows with these keys, scores that are probabilities, and no other values."""

    def check(artifact: Artifact) -> None:
        assert artifact["output"]
        for row in artifact["output"]:
            assert row.keys() >= {*keys, "score", *values}
            assert 0 <= row["score"] <= 1
            assert all(row[key] in allowed for key, allowed in values.items())

    return check


def _says(key: str) -> Callable[[Artifact], None]:
    """A check of one text under a key; it is also what plans pass on."""

    def check(artifact: Artifact) -> None:
        text = artifact["output"][key]
        assert isinstance(text, str)
        assert text in [resource["text"] for resource in artifact["resources"]]

    return check


def _finds_spans(artifact: Artifact) -> None:
    best = artifact["output"][0]
    assert best["answer"] == SAID[best["start"] : best["end"]]
    assert [row["score"] for row in artifact["output"]] == sorted(
        (row["score"] for row in artifact["output"]), reverse=True
    )


def _points_at_cells(artifact: Artifact) -> None:
    answer = artifact["output"]
    assert answer["aggregator"] in ("NONE", "SUM", "AVERAGE", "COUNT")
    assert len(answer["cells"]) == len(answer["coordinates"])
    for cell, (row, column) in zip(answer["cells"], answer["coordinates"], strict=True):
        assert cell == str((row, row * 2, row % 3)[column])


def _fills_the_gap(artifact: Artifact) -> None:
    assert len(artifact["output"]) == 5
    for row in artifact["output"]:
        assert isinstance(row["token"], int)
        assert "___" not in row["sequence"]
    _rows("token_str", "sequence")(artifact)


def _vector(length: int) -> Callable[[Artifact], None]:
    def check(artifact: Artifact) -> None:
        (data,) = [resource["data"] for resource in artifact["resources"] if resource["kind"] == "data"]
        numbers = _flat(data)
        assert len(numbers) == length
        assert all(isinstance(number, float) for number in numbers)

    return check


def _flat(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [number for part in value.values() for number in _flat(part)]
    return [number for part in value for number in _flat(part)] if isinstance(value, list) else [value]


def _scores_each(artifact: Artifact) -> None:
    scores = artifact["output"]
    assert len(scores) == len(OTHERS)
    assert all(-1.001 <= score <= 1.001 for score in scores)


def _orders_all(artifact: Artifact) -> None:
    ranked = artifact["output"]
    assert sorted(row["index"] for row in ranked) == list(range(len(OTHERS)))
    assert all(row["text"] == OTHERS[row["index"]] for row in ranked)
    assert [row["score"] for row in ranked] == sorted((row["score"] for row in ranked), reverse=True)


def _finds_the_nearest(artifact: Artifact) -> None:
    _scores_each(artifact)
    assert artifact["output"][1] == max(artifact["output"])


def _puts_paris_first(artifact: Artifact) -> None:
    _orders_all(artifact)
    assert artifact["output"][0]["text"] == "Paris is the capital of France."


TEXT = {"text": SAID}
FRENCH = {"text": SAID, "src_lang": "en", "tgt_lang": "fr"}
ASKED = {"text": "Who wrote the first program?", "context": SAID}
ASKED_OF_TABLE = {"text": "what was the rain in the first month?", "table": "@table"}
COMPARED = {"text": SAID, "sentences": OTHERS}
SORTED = {"text": SAID, "labels": ["cat", "dog"]}

CASES: list[Case] = [
    Case("text-classification", TEXT, _rows(label=LABELS), tiny_text.bert_classifier),
    Case("token-classification", TEXT, _rows("word", entity_group={"PER"}), tiny_text.bert_tagger),
    Case("question-answering", ASKED, _finds_spans, tiny_text.bert_reader),
    Case("table-question-answering", ASKED_OF_TABLE, _points_at_cells, tiny_tabular.tapas),
    Case("table-question-answering", ASKED_OF_TABLE, _says("answer"), tiny_text.tapex),
    Case("zero-shot-classification", SORTED, _rows(label={"cat", "dog"}), tiny_text.bert_nli),
    Case("translation", FRENCH, _says("translation_text"), tiny_text.marian),
    Case("translation", FRENCH, _says("translation_text"), tiny_text.t5),
    Case("translation", FRENCH, _says("translation_text"), tiny_text.m2m100),
    Case("translation", FRENCH, _says("translation_text"), tiny_text.nllb),
    Case("translation", FRENCH, _says("translation_text"), tiny_text.mbart),
    Case("summarization", TEXT, _says("summary_text"), tiny_text.bart),
    Case("summarization", TEXT, _says("summary_text"), tiny_text.t5),
    Case("text-generation", TEXT, _says("generated_text"), tiny_text.llama),
    Case("text-generation", TEXT, _says("generated_text"), tiny_text.llama_chat),
    Case("text-generation", TEXT, _says("generated_text"), tiny_text.t5),
    Case("feature-extraction", TEXT, _vector(16), tiny_text.bert_base),
    Case("feature-extraction", TEXT, _vector(8), tiny_text.dense_embedder),
    Case("fill-mask", {"text": "the [MASK] is good"}, _fills_the_gap, tiny_text.bert_masked),
    Case("fill-mask", {"text": "the ___ is good"}, _fills_the_gap, tiny_text.roberta_masked),
    Case("sentence-similarity", COMPARED, _scores_each, tiny_text.embedder),
    Case("sentence-similarity", COMPARED, _scores_each, tiny_text.bert_base),
    Case("sentence-similarity", COMPARED, _scores_each, tiny_text.cross_encoder),
    Case("text-ranking", COMPARED, _orders_all, tiny_text.cross_encoder),
    Case("text-ranking", COMPARED, _orders_all, tiny_text.reranker),
    Case("text-ranking", COMPARED, _orders_all, tiny_text.asymmetric_embedder),
    Case("feature-extraction", TEXT, _vector(384)),
    Case("sentence-similarity", COMPARED, _finds_the_nearest),
    Case("text-ranking", {**COMPARED, "text": "What is the capital of France?"}, _puts_paris_first),
    Case("zero-shot-classification", SORTED, _rows(label={"cat", "dog"})),
]
