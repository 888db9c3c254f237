"""Adapters of labels, names, answers, scores, times and vectors.

Adapters of texts: generated text, text read from images, transcripts, answers that are also spoken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.outputs.media import sound
from jarvis_agent.backends.outputs.validators import (
    Adapted,
    Adapter,
    UnexpectedError,
    best_first,
    find_text,
    index,
    number,
    quantity,
    read_rows,
    require_list,
    score,
    text,
    to_builtin,
    vector,
)
from jarvis_agent.core.types import Resource

SHOWN = 5
"""Maximum number of labels in a summary; those that would have a score of 0.00 are left out."""


def classes(raw: Any, call: Call) -> Adapted:
    """[{label, score}], best first; also from zero-shot classification's {labels, scores}.

    Embeddings give [{label, similarity}] instead: a similarity is no probability, and is not shown as one.
    """
    if isinstance(raw, Mapping) and {"labels", "scores"} <= raw.keys():
        if len(raw["labels"]) != len(raw["scores"]):
            raise UnexpectedError("a score for each label")
        pairs = zip(raw["labels"], raw["scores"], strict=True)
        raw = [{"label": name, "score": value} for name, value in pairs]
    first = raw[0] if isinstance(raw, list) and raw else raw
    measure = "similarity" if isinstance(first, Mapping) and "similarity" in first else "score"
    return _scored_rows(read_rows(raw, {"label": text, measure: score}), "label", measure)


def masked_words(raw: Any, call: Call) -> Adapted:
    """[{score, token, token_str, sequence}], the most likely word first."""
    rows = read_rows(raw, {"score": score, "token_str": text, "sequence": text}, {"token": index})
    return _scored_rows(rows, "token_str")


def _scored_rows(rows: list[dict[str, Any]], name: str, measure: str = "score") -> Adapted:
    if not rows:
        raise UnexpectedError(f"at least one {name}")
    ranked = sorted(rows, key=lambda row: -row[measure])
    unit, least = ("", 0.005) if measure == "score" else (f"{measure} ", -1.0)
    shown = [row for row in ranked[:SHOWN] if row[measure] >= least] or ranked[:1]
    return Adapted(ranked, ", ".join(f"{row[name]} ({unit}{row[measure]:.2f})" for row in shown))


def entities(raw: Any, call: Call) -> Adapted:
    """[{entity_group, score, word, start, end}], in the order of the text."""
    places = {"start": to_builtin, "end": to_builtin}
    groups = {"entity_group": text, "entity": text}
    rows = read_rows(raw, {"word": text, "score": score}, places | groups)
    for row in rows:
        entity = row.pop("entity", None)
        row["entity_group"] = text(row.get("entity_group", entity))
    return Adapted(rows, ", ".join(f"{row['word']} ({row['entity_group']})" for row in rows) or "no names")


def answers(raw: Any, call: Call) -> Adapted:
    """[{answer, score or None, start?, end?}], best first."""
    optional = {"score": score, "start": to_builtin, "end": to_builtin}
    rows = best_first(read_rows(raw, {"answer": text}, optional))
    if not rows:
        raise UnexpectedError("at least one answer")
    return Adapted([{"score": None, **row} for row in rows], rows[0]["answer"])


def table_answer(raw: Any, call: Call) -> Adapted:
    """{answer, coordinates, cells, aggregator}; coordinates are rows and columns from 0."""
    optional = {"coordinates": to_builtin, "cells": to_builtin, "aggregator": text}
    rows = read_rows(raw, {"answer": text}, optional)
    if not rows:
        raise UnexpectedError("an answer")
    return Adapted({"coordinates": [], "cells": [], "aggregator": "NONE", **rows[0]}, rows[0]["answer"])


def similarity(raw: Any, call: Call) -> Adapted:
    """A score for each of the sentences, in their order."""
    return _scores(raw, list(call.inputs.get("sentences", ())))


def pages(raw: Any, call: Call) -> Adapted:
    """A score for each of the images, in their order."""
    value = call.inputs.get("image", ())
    images = [value] if isinstance(value, Resource) else value
    return _scores(raw, [image.path.name if image.path else image.name for image in images])


def _scores(raw: Any, names: Sequence[str]) -> Adapted:
    expected = f"a list of {len(names)} scores"
    scores = [score(value) for value in require_list(raw, expected)]
    if len(scores) != len(names) or not scores:
        raise UnexpectedError(expected)
    ranked = sorted(zip(scores, names, strict=True), key=lambda pair: -pair[0])
    return Adapted(scores, "; ".join(f"{name} ({value:.2f})" for value, name in ranked))


def ranking(raw: Any, call: Call) -> Adapted:
    """[{index, text, score}], best first; the index counts the given texts from 0."""
    rows = best_first(read_rows(raw, {"index": index, "text": text, "score": score}))
    named = (f"{place}. {row['text']} ({row['score']:.2f})" for place, row in enumerate(rows, 1))
    return Adapted(rows, "; ".join(named))


def speech(raw: Any, call: Call) -> Adapted:
    """[{start, end}] of voice activity, in seconds."""
    stretches = read_rows(raw, {"start": _seconds, "end": _seconds})
    if not stretches:
        return Adapted(stretches, "no speech")
    total = sum(row["end"] - row["start"] for row in stretches)
    times = ", ".join(f"{row['start']:.1f}–{row['end']:.1f} s" for row in stretches)
    return Adapted(stretches, f"{total:.1f} s of speech in {quantity(len(stretches), 'stretch')}: {times}")


def _seconds(value: Any) -> float:
    return round(number(value), 3)


def features(raw: Any, call: Call) -> Adapted:
    """One vector."""
    numbers = vector(raw)
    return Adapted(numbers, f"a vector of {len(numbers)} numbers")


def text_as(key: str) -> Adapter:
    """The adapter of a task whose output is {key: text}."""

    def adapter(raw: Any, call: Call) -> Adapted:
        value = find_text(raw, key, "generated_text", "text")
        return Adapted({key: value}, value)

    return adapter


def image_text(raw: Any, call: Call) -> Adapted:
    """{generated_text}, and the lines of a page if the model returns them."""
    value = find_text(raw, "generated_text", "text")
    lines = {"lines": to_builtin(raw["lines"])} if isinstance(raw, Mapping) and "lines" in raw else {}
    return Adapted({"generated_text": value, **lines}, value)


def transcript(raw: Any, call: Call) -> Adapted:
    """{text}, and chunks with their times in seconds if the model returns them."""
    value = find_text(raw, "text")
    output: dict[str, Any] = {"text": value}
    if isinstance(raw, Mapping) and raw.get("chunks"):
        output["chunks"] = read_rows(raw["chunks"], {"text": text, "timestamp": to_builtin})
    return Adapted(output, value)


def spoken_text(raw: Any, call: Call) -> Adapted:
    """{generated_text}, and under `audio` the spoken answer if the model speaks."""
    value = find_text(raw, "generated_text", "text")
    if not isinstance(raw, Mapping) or raw.get("audio") is None:
        return Adapted({"generated_text": value}, value)
    spoken = sound(raw, call)
    return Adapted({"generated_text": value, "audio": spoken.output}, value, spoken.files)
