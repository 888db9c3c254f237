"""Questions about tables with transformers: models that point at cells, and models that write the answer.

    point(loaded, call)    # TAPAS: {"answer": "SUM > 12, 7", "coordinates": [[0, 1], [2, 1]], …}
    tell(loaded, call)     # TAPEX: {"answer": "19", "coordinates": [], …}

Rows at the table's end that a model can not read any more are left out.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.transformers.generation import generate, token_limit
from jarvis_agent.backends.transformers.loading import Loaded
from jarvis_agent.backends.transformers.text import text_of
from jarvis_agent.core.errors import MissingExtraError, UnsupportedError
from jarvis_agent.media.tables import read_table

ANSWER_TOKENS = 64
"""Most tokens of an answer that is written."""

Words = dict[str, list[str]]
"""A table, each cell as text."""


def point(loaded: Loaded, call: Call) -> dict[str, Any]:
    """{answer, coordinates, cells, aggregator}: cells chosen by the model, and what to do with them.

    Raises:
        MissingExtraError: pandas, in which transformers wants the table, is not installed.
    """
    if find_spec("pandas") is None:
        raise MissingExtraError(f"{loaded.id}, which answers from tables,", "tabular")
    found = loaded.pipe(table=_words(call), query=text_of(call))
    return {
        "answer": found["answer"],
        "coordinates": [[int(row), int(column)] for row, column in found["coordinates"]],
        "cells": found["cells"],
        "aggregator": found.get("aggregator", ""),
    }


def tell(loaded: Loaded, call: Call) -> dict[str, Any]:
    """{answer, coordinates: [], cells: [], aggregator: ""}: the answer written by a model such as TAPEX.

    Raises:
        UnsupportedError: not even the first row fits into what the model reads.
    """
    batch = _fitting(loaded, text_of(call).lower(), _words(call))
    written = generate(loaded, batch, max_new_tokens=ANSWER_TOKENS)
    answer = str(loaded.tokenizer.decode(written.tolist(), skip_special_tokens=True)).strip()
    return {"answer": answer, "coordinates": [], "cells": [], "aggregator": ""}


def _words(call: Call) -> Words:
    columns = read_table(call.inputs["table"], call.settings.max_file_bytes)
    return {name: ["" if cell is None else str(cell) for cell in cells] for name, cells in columns.items()}


def _fitting(loaded: Loaded, question: str, table: Words) -> dict[str, Any]:
    """Tensors of the question and as many rows as the model reads, in lower case, as TAPEX was trained:
    "question col : a | b row 1 : x | y row 2 : …" (arXiv:2107.07653).
    """
    limit = token_limit(loaded)
    asked = f"{question} col : {' | '.join(table)}".lower()
    rows = [" | ".join(cells).lower() for cells in zip(*table.values(), strict=True)]
    ends = [f"row {number} : {row}" for number, row in enumerate(rows, start=1)]
    fewest, most = 0, len(ends)
    while fewest < most:
        middle = (fewest + most + 1) // 2
        tokens = loaded.tokenizer(" ".join([asked, *ends[:middle]]), verbose=False)["input_ids"]
        fewest, most = (middle, most) if len(tokens) <= limit else (fewest, middle - 1)
    if not fewest:
        raise UnsupportedError(f"{loaded.id} reads {limit} tokens, less than the first row of the table has")
    batch = loaded.tokenizer(" ".join([asked, *ends[:fewest]]), return_tensors="pt")
    return {name: batch[name] for name in ("input_ids", "attention_mask")}
