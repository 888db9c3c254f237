"""Adapters of labels, names, answers, scores, times and vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.outputs.validators import (
    Adapted,
    UnexpectedError,
    number,
    optional_score,
    quantity,
    require_rows,
    score,
    text,
    to_builtin,
    to_list,
    vector,
)
from jarvis_agent.core.types import Resource

SHOWN = 5
"""Labels in a summary at most."""


def classes(raw: Any, call: Call) -> Adapted:
    """[{label, score}], best first; also from zero-shot classification's {labels, scores}."""
    if isinstance(raw, Mapping) and {"labels", "scores"} <= raw.keys():
        if len(raw["labels"]) != len(raw["scores"]):
            raise UnexpectedError("a score for each label")
        pairs = zip(raw["labels"], raw["scores"], strict=True)
        raw = [{"label": name, "score": value} for name, value in pairs]
    rows = require_rows(raw, "label", "score")
    found = _best_first(
        [{"label": text(row["label"]), "score": score(row["score"])} for row in rows], "label"
    )
    return Adapted(found, ", ".join(f"{row['label']} ({row['score']:.2f})" for row in found[:SHOWN]))


def entities(raw: Any, call: Call) -> Adapted:
    """[{entity_group, score, word, start, end}], in the order of the text."""
    found = [
        {
            "entity_group": text(row.get("entity_group") or row.get("entity")),
            "score": score(row["score"]),
            "word": text(row["word"]),
            "start": to_builtin(row.get("start")),
            "end": to_builtin(row.get("end")),
        }
        for row in require_rows(raw, "word", "score")
    ]
    named = [f"{row['word']} ({row['entity_group']})" for row in found]
    return Adapted(found, ", ".join(named) or "no names")


def answers(raw: Any, call: Call) -> Adapted:
    """[{answer, score, …}], best first."""
    rows = [
        {
            "answer": text(row["answer"]),
            "score": optional_score(row.get("score")),
            **{side: to_builtin(row[side]) for side in ("start", "end") if row.get(side) is not None},
        }
        for row in require_rows(raw, "answer")
    ]
    found = _best_first(rows, "answer")
    return Adapted(found, found[0]["answer"])


def table_answer(raw: Any, call: Call) -> Adapted:
    """{answer, coordinates, cells, aggregator}; coordinates are rows and columns from 0."""
    first = next(iter(require_rows(raw, "answer")), None)
    if first is None:
        raise UnexpectedError("an answer")
    answer = text(first["answer"])
    output = {
        "answer": answer,
        "coordinates": [[_index(side) for side in cell] for cell in _cells(first.get("coordinates"))],
        "cells": [text(cell) for cell in _cells(first.get("cells"))],
        "aggregator": text(first.get("aggregator") or "NONE"),
    }
    return Adapted(output, answer)


def masked_words(raw: Any, call: Call) -> Adapted:
    """[{score, token, token_str, sequence}], the most likely word first."""
    rows = [
        {
            "score": score(row["score"]),
            "token": _index(row.get("token", 0)),
            "token_str": text(row["token_str"]),
            "sequence": text(row["sequence"]),
        }
        for row in require_rows(raw, "score", "token_str", "sequence")
    ]
    found = _best_first(rows, "word")
    return Adapted(found, ", ".join(f"{row['token_str']} ({row['score']:.2f})" for row in found[:SHOWN]))


def similarity(raw: Any, call: Call) -> Adapted:
    """A score for each of the sentences, in their order."""
    return _scored(raw, list(call.inputs.get("sentences", ())))


def pages(raw: Any, call: Call) -> Adapted:
    """A score for each of the images, in their order."""
    given = call.inputs.get("image", ())
    images = [given] if isinstance(given, Resource) else given
    return _scored(raw, [image.path.name if image.path else image.name for image in images])


def ranking(raw: Any, call: Call) -> Adapted:
    """[{index, text, score}], best first; the index counts the given texts from 0."""
    found: list[dict[str, Any]] = [
        {"index": _index(row["index"]), "text": text(row["text"]), "score": score(row["score"])}
        for row in require_rows(raw, "index", "text", "score")
    ]
    found.sort(key=lambda row: -row["score"])
    named = (f"{place}. {row['text']} ({row['score']:.2f})" for place, row in enumerate(found, 1))
    return Adapted(found, "; ".join(named))


def speech(raw: Any, call: Call) -> Adapted:
    """[{start, end}] of voice activity, in seconds."""
    rows = require_rows(raw, "start", "end")
    found = [{side: round(number(row[side]), 3) for side in ("start", "end")} for row in rows]
    if not found:
        return Adapted(found, "no speech")
    total = sum(row["end"] - row["start"] for row in found)
    times = ", ".join(f"{row['start']:.1f}–{row['end']:.1f} s" for row in found)
    return Adapted(found, f"{total:.1f} s of speech in {quantity(len(found), 'stretch')}: {times}")


def features(raw: Any, call: Call) -> Adapted:
    """One vector."""
    found = vector(raw)
    return Adapted(found, f"a vector of {len(found)} numbers")


def _best_first(rows: list[dict[str, Any]], what: str) -> list[dict[str, Any]]:
    if not rows:
        raise UnexpectedError(f"at least one {what}")
    return sorted(rows, key=lambda row: -(row["score"] or 0.0))


def _scored(raw: Any, names: Sequence[str]) -> Adapted:
    values = to_list(raw)
    if not isinstance(values, list) or len(values) != len(names) or not values:
        raise UnexpectedError(f"a list of {len(names)} scores")
    found = [score(value) for value in values]
    ranked = sorted(zip(found, names, strict=True), key=lambda pair: -pair[0])
    return Adapted(found, "; ".join(f"{name} ({value:.2f})" for value, name in ranked))


def _index(value: Any) -> int:
    return int(number(value))


def _cells(value: Any) -> list[Any]:
    found = to_list(value)
    if found is None:
        return []
    if not isinstance(found, list | tuple):
        raise UnexpectedError("lists of cells and of their coordinates")
    return list(found)
