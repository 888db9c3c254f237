"""The table of adapters: from a model's raw output to the user's result, plain JSON and resources.

The output has the shape of huggingface_hub's inference types, whichever backend ran the model; written files
appear in it as paths. A task without an own adapter uses the adapter of its first output kind.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, FiniteFloat, conlist

from jarvis_agent.backends.base import Call, sentences_of
from jarvis_agent.backends.outputs import media
from jarvis_agent.backends.outputs.validators import (
    Adapted,
    Adapter,
    Data,
    Index,
    Score,
    Seconds,
    Text,
    UnexpectedError,
    best_first,
    check,
    describe_value,
    find_text,
    quantity,
    read_rows,
    to_array,
    to_builtin,
    to_list,
)
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.notes import Note
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Resource
from jarvis_agent.media.run_directory import disk_errors
from jarvis_agent.media.tables import read_table, write_table

SHOWN = 5
"""Maximum number of labels in a summary; those that would have a score of 0.00 are left out."""


class Result(NamedTuple):
    """An adapted output and its resources, as `adapt` returns them."""

    output: Any
    resources: list[Resource]


def adapt(spec: TaskSpec, raw: Any, call: Call) -> Result:
    """Convert a model's raw output into JSON, and resources in the order of `spec.outputs`. Writes files.

    A Result, as an expert server sends it, stays as it is. UnsupportedError: the output has another form, or
    NaN for scores. InputError: a file could not be written. MissingExtraError: what writes such files
    (videos, 3D models) is not installed.
    """
    if isinstance(raw, Result):
        return raw
    adapter = ADAPTERS.get(spec.name) or _BY_KIND[spec.outputs[0]]
    try:
        with disk_errors(f"the result of {spec.name}"):
            adapted = adapter(raw, call)
    except UnexpectedError as error:
        model, value = call.candidate.id, describe_value(raw)
        raise UnsupportedError(
            f"{model} did not return what {spec.name} makes", detail=f"{value}; expected was {error}"
        ) from error
    resources: list[Resource] = []
    for kind in spec.outputs:
        if kind == "text":
            resources.append(Resource(kind="text", text=adapted.summary, name=spec.name))
        elif kind == "data":
            resources.append(Resource(kind="data", data=adapted.output, text=adapted.summary, name=spec.name))
        else:
            resources += [file for file in adapted.files if file.kind == kind]
    resources += [file for file in adapted.files if file not in resources]
    return Result(adapted.output, resources)


def classes(raw: Any, call: Call) -> Adapted:
    """[{label, score}], best first; also from zero-shot classification's {labels, scores}.

    A chat model knows no score: None. Embeddings give a similarity, which is not shown as a probability.
    """
    if isinstance(raw, Mapping) and {"labels", "scores"} <= raw.keys():
        if len(raw["labels"]) != len(raw["scores"]):
            raise UnexpectedError("a score for each label")
        pairs = zip(raw["labels"], raw["scores"], strict=True)
        raw = [{"label": name, "score": value} for name, value in pairs]
    if isinstance(raw, list) and not raw and call.notes:  # they say why there is none
        return Adapted([], "")
    first = raw[0] if isinstance(raw, list) and raw else raw
    measure = "similarity" if isinstance(first, Mapping) and "similarity" in first else "score"
    return _scored_rows(read_rows(raw, {"label": Text, measure: Score | None}), "label", measure)


def masked_words(raw: Any, call: Call) -> Adapted:
    """[{score, token, token_str, sequence}], the most likely word first."""
    rows = read_rows(raw, {"score": Score, "token_str": Text, "sequence": Text}, {"token": Index})
    return _scored_rows(rows, "token_str")


def _scored_rows(rows: list[dict[str, Any]], name: str, measure: str = "score") -> Adapted:
    if not rows:
        raise UnexpectedError(f"at least one {name}")
    ranked = sorted(rows, key=lambda row: -(row[measure] or 0.0))
    unit, least = ("", 0.005) if measure == "score" else (f"{measure} ", -1.0)
    best = [row for row in ranked[:SHOWN] if row[measure] is None or row[measure] >= least] or ranked[:1]
    values = ["" if row[measure] is None else f" ({unit}{row[measure]:.2f})" for row in best]
    return Adapted(ranked, ", ".join(f"{row[name]}{value}" for row, value in zip(best, values, strict=True)))


def entities(raw: Any, call: Call) -> Adapted:
    """[{entity_group, score or None, word, start, end}], in the order of the text."""
    optional = {"entity_group": Text, "entity": Text, "start": Index, "end": Index}
    rows = read_rows(raw, {"word": Text, "score": Score | None}, optional)
    rows = [{"entity_group": row.pop("entity_group", row.get("entity")), **row} for row in rows]
    for row in rows:
        row.pop("entity", None)
        check(Text, row["entity_group"], "the group of an entity")
    return Adapted(rows, ", ".join(f"{row['word']} ({row['entity_group']})" for row in rows) or "no names")


def answers(raw: Any, call: Call) -> Adapted:
    """[{answer, score or None, start?, end?}], best first; of a similarity, lines that fit. Also a text."""
    raw = {"answer": raw} if isinstance(raw, str) else raw
    if isinstance(raw, list) and not raw and call.notes:  # they say why there is none
        return Adapted([], "")
    optional = {"score": Score, "start": Index, "end": Index, "similarity": Score}
    rows = best_first(read_rows(raw, {"answer": Text}, optional))
    if not rows:
        raise UnexpectedError("at least one answer")
    best = rows if "similarity" in rows[0] else rows[:1]
    return Adapted([{"score": None, **row} for row in rows], "\n".join(row["answer"] for row in best))


def table_answer(raw: Any, call: Call) -> Adapted:
    """{answer, coordinates, cells, aggregator}; coordinates are rows and columns from 0. Also from a text."""
    raw = {"answer": raw} if isinstance(raw, str) else raw
    rows = read_rows(raw, {"answer": Text}, {"coordinates": Data, "cells": Data, "aggregator": Text})
    if not rows:
        raise UnexpectedError("an answer")
    return Adapted({"coordinates": [], "cells": [], "aggregator": "NONE", **rows[0]}, rows[0]["answer"])


def similarity(raw: Any, call: Call) -> Adapted:
    """A score for each of the sentences, in their order."""
    return _scores(raw, sentences_of(call))


def pages(raw: Any, call: Call) -> Adapted:
    """A score for each of the images, in their order."""
    value = call.inputs.get("image", ())
    images = [value] if isinstance(value, Resource) else value
    return _scores(raw, [image.path.name if image.path else image.name for image in images])


def _scores(raw: Any, names: Sequence[str]) -> Adapted:
    scores = _sized(raw, Score, max(1, len(names)), f"a list of {len(names)} scores")
    ranked = sorted(zip(scores, names, strict=True), key=lambda pair: -pair[0])
    return Adapted(scores, "; ".join(f"{name} ({value:.2f})" for value, name in ranked))


def ranking(raw: Any, call: Call) -> Adapted:
    """[{index, text, score}], best first; the index counts the given texts from 0."""
    rows = best_first(read_rows(raw, {"index": Index, "text": Text, "score": Score}))
    named = (f"{place}. {row['text']} ({row['score']:.2f})" for place, row in enumerate(rows, 1))
    return Adapted(rows, "; ".join(named))


def speech(raw: Any, call: Call) -> Adapted:
    """[{start, end}] of voice activity, in seconds."""
    stretches = read_rows(raw, {"start": Seconds, "end": Seconds})
    if not stretches:
        return Adapted(stretches, "no speech")
    total = sum(row["end"] - row["start"] for row in stretches)
    times = ", ".join(f"{row['start']:.1f}–{row['end']:.1f} s" for row in stretches)
    return Adapted(stretches, f"{total:.1f} s of speech in {quantity(len(stretches), 'stretch')}: {times}")


def features(raw: Any, call: Call) -> Adapted:
    """One vector, from a vector, a matrix of tokens (which are averaged), or [matrix]."""
    array = to_array(raw, "a vector of numbers")
    while array.ndim > 1 and len(array) == 1:
        array = array[0]
    if array.ndim not in (1, 2) or not array.size:
        raise UnexpectedError("a vector of numbers")
    numbers = [round(float(value), 6) for value in (array if array.ndim == 1 else array.mean(axis=0))]
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
    if not value:
        call.notes.append(Note("no text was found"))
    lines = {"lines": to_builtin(raw["lines"])} if isinstance(raw, Mapping) and "lines" in raw else {}
    return Adapted({"generated_text": value, **lines}, value)


def transcript(raw: Any, call: Call) -> Adapted:
    """{text}, and chunks with their times in seconds if the model returns them."""
    parts = raw if isinstance(raw, list | tuple) and raw else [raw]
    value = "\n".join(find_text(part, "text") for part in parts)
    if not value:
        call.notes.append(Note("no speech was heard"))
    output: dict[str, Any] = {"text": value}
    if isinstance(raw, Mapping) and raw.get("chunks"):
        output["chunks"] = read_rows(raw["chunks"], {"text": Text, "timestamp": Data})
    return Adapted(output, value)


def _single(value: Any) -> Any:
    """A value, also from a list of one."""
    value = to_list(value)
    return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value


_Label = Annotated[
    str | bool | int | FiniteFloat,
    BeforeValidator(_single),
    AfterValidator(lambda value: f"{value:g}" if isinstance(value, float) else str(value)),
]
"""A class as text, as in huggingface_hub: 1 and "1" are the same label."""

_Number = Annotated[FiniteFloat, BeforeValidator(_single), AfterValidator(lambda value: round(value, 6))]
_Numbers = Annotated[list[_Number], BeforeValidator(to_list), Field(min_length=1)]


def predicted_rows(form: Any, describe: Callable[[list[Any]], str]) -> Adapter:
    """The adapter of {predictions: one a row, probabilities: a list a row or None}: them, and the table."""

    def adapter(raw: Any, call: Call) -> Adapted:
        if not isinstance(raw, Mapping) or "predictions" not in raw:
            raise UnexpectedError("{predictions}")
        # As it was written; its notes were made when the model read it.
        table: dict[str, list[Any]] = dict(read_table(call.inputs["table"].path).cells)
        count = len(next(iter(table.values())))
        rows = quantity(count, "row")
        values = _sized(raw["predictions"], form, count, f"one prediction for each of {rows}")
        added = {"prediction": values}
        if (probabilities := raw.get("probabilities")) is not None:
            weights = _sized(probabilities, _Numbers, count, "probabilities for each row")
            added["probability"] = [max(row) for row in weights]
        for name, column in added.items():
            while name in table:
                name += "_new"
            table[name] = column
        return Adapted(values, f"{rows}: {describe(values)}", (_save(table, call),))

    return adapter


def _counts(labels: list[str]) -> str:
    return ", ".join(f"{count} {label}" for label, count in Counter(sorted(labels)).most_common())


def _range(values: list[float]) -> str:
    return f"from {min(values):.4g} to {max(values):.4g}, {sum(values) / len(values):.4g} on average"


def forecast(raw: Any, call: Call) -> Adapted:
    """[{series, values, low, high}]: a row a step ahead, with the median and the 10 % and 90 % quantiles."""
    columns: dict[str, list[Any]] = {}
    parts = []
    for row in read_rows(raw, {"series": Text, "values": _Numbers}, {"low": _Numbers, "high": _Numbers}):
        name, values = row["series"], row["values"]
        columns[name] = values
        columns |= {f"{name}_{side}": row[side] for side in ("low", "high") if side in row}
        parts.append(f"{name} from {values[0]:.4g} to {values[-1]:.4g}")
    if len({len(values) for values in columns.values()}) != 1:
        raise UnexpectedError("series of one length")
    steps = len(next(iter(columns.values())))
    table = {"step": list(range(1, steps + 1)), **columns}
    rows = [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
    return Adapted(rows, f"{quantity(steps, 'step')} ahead: {', '.join(parts)}", (_save(table, call),))


def _sized(values: Any, form: Any, length: int, what: str) -> list[Any]:
    items: list[Any] = check(conlist(form, min_length=length, max_length=length), to_list(values), what)
    return items


def _save(columns: Mapping[str, Sequence[Any]], call: Call) -> Resource:
    path = call.new_path(".csv")
    write_table(path, columns)
    return Resource(kind="table", path=path, mime="text/csv", name=call.spec.name)


def _file(raw: Any, call: Call) -> Adapted:
    file = media.written_file(raw, call.spec.outputs[0], call)
    assert file.path is not None
    return Adapted({"path": str(file.path)}, f"the file {file.path.name}", (file,))


def _data(raw: Any, call: Call) -> Adapted:
    data = to_builtin(raw)
    return Adapted(data, json.dumps(data, ensure_ascii=False))


ADAPTERS: dict[str, Adapter] = {
    "text-classification": classes,
    "token-classification": entities,
    "question-answering": answers,
    "table-question-answering": table_answer,
    "fill-mask": masked_words,
    "zero-shot-classification": classes,
    "translation": text_as("translation_text"),
    "summarization": text_as("summary_text"),
    "text-generation": text_as("generated_text"),
    "feature-extraction": features,
    "sentence-similarity": similarity,
    "text-ranking": ranking,
    "image-classification": classes,
    "zero-shot-image-classification": classes,
    "object-detection": media.objects,
    "zero-shot-object-detection": media.objects,
    "keypoint-detection": media.people,
    "image-segmentation": media.segments,
    "mask-generation": media.unlabelled_masks,
    "depth-estimation": media.depth,
    "image-feature-extraction": features,
    "image-to-text": image_text,
    "video-classification": classes,
    "automatic-speech-recognition": transcript,
    "audio-classification": classes,
    "voice-activity-detection": speech,
    "visual-question-answering": answers,
    "document-question-answering": answers,
    "visual-document-retrieval": pages,
    "tabular-classification": predicted_rows(_Label, _counts),
    "tabular-regression": predicted_rows(_Number, _range),
    "time-series-forecasting": forecast,
    "extract-frames": media.frames,
    "media-info": media.file_info,
}
"""Adapters of the tasks whose output has its own form."""

_BY_KIND: dict[str, Adapter] = {
    "text": text_as("generated_text"),
    "image": media.picture,
    "audio": media.sound,
    "video": media.video,
    "3d": media.mesh,
    "table": _file,
    "file": _file,
    "data": _data,
}
