"""Gaps in texts, and questions about tables, with transformers: what models are given, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.errors import BadInputError, MissingExtraError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Resource

pytest.importorskip("torch")
pytest.importorskip("pandas")

import tiny_tabular
import tiny_text

from jarvis_agent.backends.transformers import text as tables
from jarvis_agent.backends.transformers.backend import TransformersBackend

Build = Callable[[Path], None]
Load = Callable[[str, Build], Any]
Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def load(built: Callable[[Build], Path]) -> Load:
    """A tiny model for a task, loaded by the real code at its first use."""
    experts: dict[Build, Any] = {}

    def load(task: str, build: Build) -> Any:
        if build not in experts:
            candidate = Candidate(id="org/model", task=task, path=built(build), local=True)
            backend = TransformersBackend(ModelPool(10**9))
            experts[build] = backend.load(TASKS[task], candidate, Settings(device="cpu"))
        return experts[build]

    return load


@pytest.fixture
def ask(load: Load, tmp_path: Path) -> Ask:
    def ask(task: str, build: Build, *, table: str = "", **inputs: Any) -> Any:
        if table:
            (tmp_path / "asked.csv").write_text(table)
            inputs["table"] = Resource(kind="table", path=tmp_path / "asked.csv")
        candidate = Candidate(id="org/model", task=task, local=True)
        return load(task, build)(Call(TASKS[task], candidate, inputs, Path, Settings(device="cpu")))

    return ask


@pytest.mark.parametrize("gap", ["[MASK]", "<mask>", "____", "[mask]", "___"])
@pytest.mark.parametrize("build", [tiny_text.bert_masked, tiny_text.roberta_masked])
def test_a_gap_may_be_written_in_any_way(ask: Ask, build: Build, gap: str) -> None:
    usual = ask("fill-mask", build, text="the [MASK] is good")
    assert len(usual) == 5
    assert ask("fill-mask", build, text=f"the {gap} is good") == usual


@pytest.mark.parametrize(
    ("text", "found"), [("the cat is good", "none"), ("the [MASK] is ___", "2"), ("a_b __ c", "none")]
)
def test_there_must_be_one_gap(ask: Ask, text: str, found: str) -> None:
    with pytest.raises(BadInputError, match=rf"a text with one \[MASK\], and this one has {found}"):
        ask("fill-mask", tiny_text.bert_masked, text=text)


def test_a_gap_that_the_model_does_not_reach_is_refused(ask: Ask) -> None:
    long = " ".join(["the cat is good"] * 40)
    with pytest.raises(UnsupportedError, match="org/model reads 64 tokens, and the gap comes later"):
        ask("fill-mask", tiny_text.bert_masked, text=f"{long} [MASK]")
    assert len(ask("fill-mask", tiny_text.bert_masked, text=f"the [MASK] {long}")) == 5


TABLE = "city,people\nOslo,700\nRome,\n"


def test_the_cells_of_an_answer_are_told_with_their_places(ask: Ask) -> None:
    raw = ask("table-question-answering", tiny_tabular.tapas, table=TABLE, text="how many people?")
    assert raw.keys() == {"answer", "coordinates", "cells", "aggregator"}
    words = [["Oslo", "700"], ["Rome", ""]]
    assert raw["cells"] == [words[row][column] for row, column in raw["coordinates"]]


def test_a_table_is_told_to_a_writing_model_row_by_row_as_far_as_it_reads(
    ask: Ask, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    expert = load("table-question-answering", tiny_text.tapex)
    read: list[str] = []
    generate = expert.loaded.model.generate

    def listen(input_ids: Any, **given: Any) -> Any:
        read.append(expert.loaded.tokenizer.decode(input_ids[0], skip_special_tokens=True))
        return generate(input_ids=input_ids, **given)

    monkeypatch.setattr(expert.loaded.model, "generate", listen)
    ask("table-question-answering", tiny_text.tapex, table=TABLE, text="Who?")
    assert read[0] == "who? col : city | people row 1 : oslo | 700 row 2 : rome | "
    ask("table-question-answering", tiny_text.tapex, table="n\n" + "7\n" * 100, text="Who?")
    rows = [f" row {number} : 7" for number in range(1, 101)]
    fitting = read[1].count("row")  # a letter is a token, and the model reads 128
    assert read[1] == "who? col : n" + "".join(rows[:fitting])
    assert len(read[1]) <= 128 < len(read[1] + rows[fitting])
    with pytest.raises(UnsupportedError, match="less than the first row"):
        ask("table-question-answering", tiny_text.tapex, table="n\n" + "x" * 200, text="Who?")


def test_a_table_can_be_asked_only_with_pandas(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r'org/model.*needs the extra "tabular"'):
        ask("table-question-answering", tiny_tabular.tapas, table=TABLE, text="how many?")
