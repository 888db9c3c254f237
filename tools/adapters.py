"""From what an expert returned to what the user gets: plain JSON, and resources.

    output, resources = adapt(TASKS["object-detection"], raw, call)
    output      [{"label": "cat", "score": 0.9981, "box": {"xmin": 13, "ymin": 52, "xmax": 314, "ymax": 470}}]
    resources   the picture with the boxes drawn, the boxes as data, "1 object: 1 cat"

The output has the shape of huggingface_hub's inference types, whichever backend did the work; files that were
written stand in it as paths. A task that is not in ADAPTERS is adapted by the first kind that it makes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis_agent.errors import InputError, UnsupportedError
from jarvis_agent.tools.files import as_image, save_audio, save_image
from jarvis_agent.tools.forms import (
    UnexpectedError,
    counted,
    listed,
    maybe_score,
    number,
    plain,
    rows,
    score,
    tally,
    text,
    text_under,
    told,
    vector,
)
from jarvis_agent.tools.spec import TaskSpec
from jarvis_agent.types import Resource

if TYPE_CHECKING:
    from PIL.Image import Image

    from jarvis_agent.backends.base import Call

SHOWN = 5
"""How many labels or entities a summary names at most."""


@dataclass(frozen=True, slots=True)
class Adapted:
    """`output`: plain JSON. `summary`: what a text argument gets for it. `files`: what was written."""

    output: Any
    summary: str
    files: tuple[Resource, ...] = ()


Adapter = Callable[[Any, "Call"], Adapted]


def adapt(spec: TaskSpec, raw: Any, call: Call) -> tuple[Any, list[Resource]]:
    """Turn an expert's raw output into JSON and resources; blocks while it draws and writes files.

    Returns:
        The output, and the resources in the order of `spec.outputs`, further files after them.

    Raises:
        UnsupportedError: the output does not have the task's form, or has NaN for scores.
        InputError: a file could not be written.
    """
    adapter = ADAPTERS.get(spec.name) or _BY_KIND[spec.outputs[0]]
    try:
        adapted = adapter(raw, call)
    except UnexpectedError as error:
        raise UnsupportedError(
            f"{call.candidate.id} returned {told(raw)} for {spec.name}; expected was {error}"
        ) from error
    except OSError as error:
        raise InputError(
            f"the result of {spec.name} can not be written: {error}; "
            "check the output directory (JARVIS_OUTPUT_DIR) and the space on its disk"
        ) from error
    return adapted.output, _resources(spec, adapted)


def _resources(spec: TaskSpec, adapted: Adapted) -> list[Resource]:
    found: list[Resource] = []
    for kind in spec.outputs:
        if kind == "text":
            found.append(Resource(kind="text", text=adapted.summary, name=spec.name))
        elif kind == "data":
            found.append(Resource(kind="data", data=adapted.output, text=adapted.summary, name=spec.name))
        else:
            found += [file for file in adapted.files if file.kind == kind]
    return [*found, *(file for file in adapted.files if file not in found)]


def _classes(raw: Any, call: Call) -> Adapted:
    """[{label, score}], the best first; {labels, scores} of zero-shot classification is the same thing."""
    if isinstance(raw, Mapping) and {"labels", "scores"} <= raw.keys():
        raw = [
            {"label": name, "score": value} for name, value in zip(raw["labels"], raw["scores"], strict=False)
        ]
    found: list[dict[str, Any]] = [
        {"label": text(row["label"]), "score": score(row["score"])} for row in rows(raw, "label", "score")
    ]
    if not found:
        raise UnexpectedError("at least one label")
    found.sort(key=lambda row: -row["score"])
    return Adapted(found, ", ".join(f"{row['label']} ({row['score']:.2f})" for row in found[:SHOWN]))


def _objects(raw: Any, call: Call) -> Adapted:
    from jarvis_agent.tools.draw import Box, draw_boxes

    found: list[dict[str, Any]] = [
        {
            "label": text(row["label"]),
            "score": score(row["score"]),
            "box": {
                side: round(number(_side(row["box"], side))) for side in ("xmin", "ymin", "xmax", "ymax")
            },
        }
        for row in rows(raw, "label", "score", "box")
    ]
    found.sort(key=lambda row: -row["score"])
    boxes = [Box(row["label"], f"{row['label']} {row['score']:.2f}", **row["box"]) for row in found]
    picture = save_image(draw_boxes(call.inputs["image"].to_pil(), boxes), call, "objects found")
    names = [row["label"] for row in found]
    summary = f"{counted(len(found), 'object')}: {tally(names)}" if found else "no objects"
    return Adapted(found, summary, (picture,))


def _side(box: Any, side: str) -> Any:
    if not isinstance(box, Mapping) or side not in box:
        raise UnexpectedError("a box {xmin, ymin, xmax, ymax} for each object")
    return box[side]


def _segments(raw: Any, call: Call) -> Adapted:
    from jarvis_agent.tools.draw import draw_masks

    found: list[dict[str, Any]] = []
    masks: list[tuple[str, Image]] = []
    files: list[Resource] = []
    shares: list[str] = []
    for row in rows(raw, "label", "mask"):
        label, mask = text(row["label"]), as_image(row["mask"]).convert("L")
        files.append(save_image(mask, call, f"mask of {label}"))
        masks.append((label, mask))
        found.append({"label": label, "score": maybe_score(row.get("score")), "mask": str(files[-1].path)})
        white = sum(mask.histogram()[128:])
        shares.append(f"{label} ({100 * white / (mask.width * mask.height):.0f} %)")
    picture = save_image(draw_masks(call.inputs["image"].to_pil(), masks), call, "segments found")
    summary = f"{counted(len(found), 'segment')}: {', '.join(shares)}" if found else "no segments"
    return Adapted(found, summary, (picture, *files))


def _entities(raw: Any, call: Call) -> Adapted:
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


def _answers(raw: Any, call: Call) -> Adapted:
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


def _text_as(key: str, *others: str) -> Adapter:
    """The adapter of a task whose output is {key: text}, where that may also come under other keys."""

    def adapter(raw: Any, call: Call) -> Adapted:
        written = text_under(raw, key, *others, "generated_text", "text")
        return Adapted({key: written}, written)

    return adapter


def _image_text(raw: Any, call: Call) -> Adapted:
    written = text_under(raw, "generated_text", "text")
    lines = {"lines": plain(raw["lines"])} if isinstance(raw, Mapping) and "lines" in raw else {}
    return Adapted({"generated_text": written, **lines}, written)


def _transcript(raw: Any, call: Call) -> Adapted:
    written = text_under(raw, "text")
    output: dict[str, Any] = {"text": written}
    if isinstance(raw, Mapping) and raw.get("chunks"):
        output["chunks"] = [
            {"text": text(row["text"]), "timestamp": plain(row["timestamp"])}
            for row in rows(raw["chunks"], "text", "timestamp")
        ]
    return Adapted(output, written)


def _speech(raw: Any, call: Call) -> Adapted:
    """[{start, end}] of voice activity, in seconds."""
    found = [
        {side: round(number(row[side]), 3) for side in ("start", "end")} for row in rows(raw, "start", "end")
    ]
    if not found:
        return Adapted(found, "no speech")
    total = sum(row["end"] - row["start"] for row in found)
    times = ", ".join(f"{row['start']:.1f}–{row['end']:.1f} s" for row in found)
    return Adapted(found, f"{total:.1f} s of speech in {counted(len(found), 'stretch')}: {times}")


def _similarity(raw: Any, call: Call) -> Adapted:
    """A score for each of the sentences, in their order."""
    values = listed(raw)
    sentences = list(call.inputs.get("sentences", ()))
    if not isinstance(values, list) or len(values) != len(sentences) or not values:
        raise UnexpectedError(f"a list of {len(sentences)} scores")
    found = [score(value) for value in values]
    ranked = sorted(zip(found, sentences, strict=True), key=lambda pair: -pair[0])
    return Adapted(found, "; ".join(f"{sentence} ({value:.2f})" for value, sentence in ranked))


def _ranking(raw: Any, call: Call) -> Adapted:
    found: list[dict[str, Any]] = [
        {"index": int(number(row["index"])), "text": text(row["text"]), "score": score(row["score"])}
        for row in rows(raw, "index", "text", "score")
    ]
    found.sort(key=lambda row: -row["score"])
    return Adapted(
        found, "; ".join(f"{n}. {row['text']} ({row['score']:.2f})" for n, row in enumerate(found, 1))
    )


def _features(raw: Any, call: Call) -> Adapted:
    found = vector(raw)
    return Adapted(found, f"a vector of {len(found)} numbers")


def _picture(raw: Any, call: Call) -> Adapted:
    """An image: PIL, an array, a file, or a dict with one of those (as of depth-estimation)."""
    found = raw[0] if isinstance(raw, list | tuple) and raw else raw
    if isinstance(found, Mapping):
        found = next((found[key] for key in ("image", "depth") if key in found), None)
    image = as_image(found)
    saved = save_image(image, call, call.spec.name)
    output = {"path": str(saved.path), "width": image.width, "height": image.height}
    return Adapted(output, f"an image of {image.width} × {image.height} pixels", (saved,))


def _sound(raw: Any, call: Call) -> Adapted:
    """{audio, sampling_rate}, or a list of those (as of source separation, with labels)."""
    found: list[dict[str, Any]] = []
    files: list[Resource] = []
    for row in rows(raw, "audio", "sampling_rate"):
        label, rate = row.get("label"), int(number(row["sampling_rate"]))
        file, seconds = save_audio(row["audio"], rate, call, str(label or call.spec.name))
        files.append(file)
        heard = {"sampling_rate": rate, "duration": round(seconds, 3), "path": str(file.path)}
        found.append(heard if label is None else {"label": str(label), **heard})
    if not found:
        raise UnexpectedError("{audio, sampling_rate}")
    summary = ", ".join(f"{row['duration']:.1f} s of sound" for row in found)
    return Adapted(found[0] if len(found) == 1 else found, summary, tuple(files))


def _file(raw: Any, call: Call) -> Adapted:
    """A file that the backend wrote."""
    from jarvis_agent.media import sniff

    found = raw.get("path") if isinstance(raw, Mapping) else raw
    if not isinstance(found, str | Path) or not Path(found).is_file():
        raise UnexpectedError("the path of a file")
    path = Path(found)
    file = Resource(kind=call.spec.outputs[0], path=path, mime=sniff(path)[1], name=call.spec.name)
    return Adapted({"path": str(path)}, f"the file {path.name}", (file,))


def _data(raw: Any, call: Call) -> Adapted:
    import json

    found = plain(raw)
    return Adapted(found, json.dumps(found, ensure_ascii=False))


ADAPTERS: dict[str, Adapter] = {
    "text-classification": _classes,
    "zero-shot-classification": _classes,
    "token-classification": _entities,
    "question-answering": _answers,
    "translation": _text_as("translation_text"),
    "summarization": _text_as("summary_text"),
    "text-generation": _text_as("generated_text"),
    "feature-extraction": _features,
    "sentence-similarity": _similarity,
    "text-ranking": _ranking,
    "image-classification": _classes,
    "object-detection": _objects,
    "image-segmentation": _segments,
    "image-to-text": _image_text,
    "video-classification": _classes,
    "automatic-speech-recognition": _transcript,
    "audio-classification": _classes,
    "voice-activity-detection": _speech,
    "visual-question-answering": _answers,
    "document-question-answering": _answers,
}
"""Adapters of the tasks whose output has a form of its own."""

_BY_KIND: dict[str, Adapter] = {
    "text": _text_as("generated_text"),
    "image": _picture,
    "audio": _sound,
    "video": _file,
    "table": _file,
    "3d": _file,
    "file": _file,
    "data": _data,
}
