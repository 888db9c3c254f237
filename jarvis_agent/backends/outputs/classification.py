"""Adapters of what is told in words and numbers: labels, names, answers, scores, times, vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.outputs.validators import (
    UnexpectedError,
    counted,
    listed,
    maybe_score,
    number,
    plain,
    rows,
    score,
    text,
    vector,
)
from jarvis_agent.backends.outputs.adapted import Adapted
from jarvis_agent.core.types import Resource

if TYPE_CHECKING:
    from jarvis_agent.backends.base import Call

SHOWN = 5
"""How many labels a summary names at most."""


def classes(raw: Any, call: Call) -> Adapted:
    """[{label, score}], the best first; {labels, scores} of zero-shot classification is the same thing."""
    if isinstance(raw, Mapping) and {"labels", "scores"} <= raw.keys():
        if len(raw["labels"]) != len(raw["scores"]):
            raise UnexpectedError("a score for each label")
        raw = [
            {"label": name, "score": value} for name, value in zip(raw["labels"], raw["scores"], strict=True)
        ]
    found: list[dict[str, Any]] = [
        {"label": text(row["label"]), "score": score(row["score"])} for row in rows(raw, "label", "score")
    ]
    if not found:
        raise UnexpectedError("at least one label")
    found.sort(key=lambda row: -row["score"])
    return Adapted(found, ", ".join(f"{row['label']} ({row['score']:.2f})" for row in found[:SHOWN]))


def entities(raw: Any, call: Call) -> Adapted:
    """[{entity_group, score, word, start, end}], in the order of the text."""
    found = [
        {
            "entity_group": text(row.get("entity_group") or row.get("entity")),
            "score": score(row["score"]),
            "word": text(row["word"]),
            "start": plain(row.get("start")),
            "end": plain(row.get("end")),
        }
        for row in rows(raw, "word", "score")
    ]
    named = [f"{row['word']} ({row['entity_group']})" for row in found]
    return Adapted(found, ", ".join(named) or "no names")


def answers(raw: Any, call: Call) -> Adapted:
    """[{answer, score, …}], the best first."""
    found = [
        {
            "answer": text(row["answer"]),
            "score": maybe_score(row.get("score")),
            **{side: plain(row[side]) for side in ("start", "end") if row.get(side) is not None},
        }
        for row in rows(raw, "answer")
    ]
    if not found:
        raise UnexpectedError("at least one answer")
    found.sort(key=lambda row: -(row["score"] or 0.0))
    return Adapted(found, found[0]["answer"])


def table_answer(raw: Any, call: Call) -> Adapted:
    """{answer, coordinates, cells, aggregator}; the coordinates are rows and columns from 0."""
    first = next(iter(rows(raw, "answer")), None)
    if first is None:
        raise UnexpectedError("an answer")
    answer = text(first["answer"])
    output = {
        "answer": answer,
        "coordinates": [[_place(side) for side in cell] for cell in _list(first.get("coordinates"))],
        "cells": [text(cell) for cell in _list(first.get("cells"))],
        "aggregator": text(first.get("aggregator") or "NONE"),
    }
    return Adapted(output, answer)


def masked_words(raw: Any, call: Call) -> Adapted:
    """[{score, token, token_str, sequence}], the likeliest word first."""
    found: list[dict[str, Any]] = [
        {
            "score": score(row["score"]),
            "token": _place(row.get("token", 0)),
            "token_str": text(row["token_str"]),
            "sequence": text(row["sequence"]),
        }
        for row in rows(raw, "score", "token_str", "sequence")
    ]
    if not found:
        raise UnexpectedError("at least one word")
    found.sort(key=lambda row: -row["score"])
    return Adapted(found, ", ".join(f"{row['token_str']} ({row['score']:.2f})" for row in found[:SHOWN]))


def similarity(raw: Any, call: Call) -> Adapted:
    """A score for each of the sentences, in their order."""
    sentences = list(call.inputs.get("sentences", ()))
    return _scored(raw, sentences)


def pages(raw: Any, call: Call) -> Adapted:
    """A score for each of the images, in their order."""
    given = call.inputs.get("image", ())
    images = [given] if isinstance(given, Resource) else given
    return _scored(raw, [image.path.name if image.path else image.name for image in images])


def _scored(raw: Any, names: Sequence[str]) -> Adapted:
    values = listed(raw)
    if not isinstance(values, list) or len(values) != len(names) or not values:
        raise UnexpectedError(f"a list of {len(names)} scores")
    found = [score(value) for value in values]
    ranked = sorted(zip(found, names, strict=True), key=lambda pair: -pair[0])
    return Adapted(found, "; ".join(f"{name} ({value:.2f})" for value, name in ranked))


def ranking(raw: Any, call: Call) -> Adapted:
    """[{index, text, score}], the best first; the index counts the texts as they were given, from 0."""
    found: list[dict[str, Any]] = [
        {"index": _place(row["index"]), "text": text(row["text"]), "score": score(row["score"])}
        for row in rows(raw, "index", "text", "score")
    ]
    found.sort(key=lambda row: -row["score"])
    return Adapted(
        found, "; ".join(f"{n}. {row['text']} ({row['score']:.2f})" for n, row in enumerate(found, 1))
    )


def speech(raw: Any, call: Call) -> Adapted:
    """[{start, end}] of voice activity, in seconds."""
    found = [
        {side: round(number(row[side]), 3) for side in ("start", "end")} for row in rows(raw, "start", "end")
    ]
    if not found:
        return Adapted(found, "no speech")
    total = sum(row["end"] - row["start"] for row in found)
    times = ", ".join(f"{row['start']:.1f}–{row['end']:.1f} s" for row in found)
    return Adapted(found, f"{total:.1f} s of speech in {counted(len(found), 'stretch')}: {times}")


def features(raw: Any, call: Call) -> Adapted:
    """One vector."""
    found = vector(raw)
    return Adapted(found, f"a vector of {len(found)} numbers")


def _place(value: Any) -> int:
    return int(number(value))


def _list(value: Any) -> list[Any]:
    found = listed(value)
    if found is None:
        return []
    if not isinstance(found, list | tuple):
        raise UnexpectedError("lists of cells and of their coordinates")
    return list(found)
