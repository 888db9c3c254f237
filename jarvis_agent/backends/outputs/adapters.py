"""The table of adapters: from a model's raw output to the user's result, plain JSON and resources.

    output, resources = adapt(TASKS["object-detection"], raw, call)
    output      [{"label": "cat", "score": 0.9981, "box": {"xmin": 13, "ymin": 52, "xmax": 314, "ymax": 470}}]
    resources   the image with the boxes drawn, the boxes as data, "1 object: 1 cat"

The output has the shape of huggingface_hub's inference types, whichever backend ran the model; written files
appear in it as paths. A task without an own adapter uses the adapter of its first output kind.
"""

from __future__ import annotations

import json
from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.outputs.classification import (
    answers,
    classes,
    entities,
    features,
    image_text,
    masked_words,
    pages,
    ranking,
    similarity,
    speech,
    spoken_text,
    table_answer,
    text_as,
    transcript,
)
from jarvis_agent.backends.outputs.detection import objects, people, segments, unlabelled_masks
from jarvis_agent.backends.outputs.media import (
    depth,
    edited_picture,
    file_info,
    frames,
    mesh,
    picture,
    sound,
    video,
    written_file,
)
from jarvis_agent.backends.outputs.tables import forecast, labelled_rows, numbered_rows
from jarvis_agent.backends.outputs.validators import (
    Adapted,
    Adapter,
    UnexpectedError,
    describe_value,
    to_builtin,
)
from jarvis_agent.core.errors import InputError, UnsupportedError
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Resource


def adapt(spec: TaskSpec, raw: Any, call: Call) -> tuple[Any, list[Resource]]:
    """Convert a model's raw output into JSON and resources. Blocks while it draws and writes files.

    Returns:
        The output, and the resources in the order of `spec.outputs`, followed by further files.

    Raises:
        UnsupportedError: the output does not have the task's form, or has NaN for scores.
        InputError: a file could not be written.
        MissingExtraError: the package that writes such files (videos, 3D models) is not installed.
    """
    adapter = ADAPTERS.get(spec.name) or _BY_KIND[spec.outputs[0]]
    try:
        adapted = adapter(raw, call)
    except UnexpectedError as error:
        model, value = call.candidate.id, describe_value(raw)
        raise UnsupportedError(f"{model} returned {value} for {spec.name}; expected was {error}") from error
    except OSError as error:
        raise InputError(
            f"the result of {spec.name} cannot be written: {error}; "
            "check the output directory (JARVIS_OUTPUT_DIR) and its disk space"
        ) from error
    return adapted.output, _resources(spec, adapted)


def _resources(spec: TaskSpec, adapted: Adapted) -> list[Resource]:
    resources: list[Resource] = []
    for kind in spec.outputs:
        if kind == "text":
            resources.append(Resource(kind="text", text=adapted.summary, name=spec.name))
        elif kind == "data":
            resources.append(Resource(kind="data", data=adapted.output, text=adapted.summary, name=spec.name))
        else:
            resources += [file for file in adapted.files if file.kind == kind]
    return [*resources, *(file for file in adapted.files if file not in resources)]


def _file(raw: Any, call: Call) -> Adapted:
    """A file that the backend wrote."""
    file = written_file(raw, call.spec.outputs[0], call)
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
    "object-detection": objects,
    "zero-shot-object-detection": objects,
    "keypoint-detection": people,
    "image-segmentation": segments,
    "mask-generation": unlabelled_masks,
    "depth-estimation": depth,
    "image-feature-extraction": features,
    "image-to-text": image_text,
    "video-classification": classes,
    "automatic-speech-recognition": transcript,
    "audio-classification": classes,
    "voice-activity-detection": speech,
    "visual-question-answering": answers,
    "document-question-answering": answers,
    "visual-document-retrieval": pages,
    "any-to-any": spoken_text,
    "tabular-classification": labelled_rows,
    "tabular-regression": numbered_rows,
    "time-series-forecasting": forecast,
    "extract-frames": frames,
    "edit-image": edited_picture,
    "media-info": file_info,
}
"""Adapters of the tasks whose output has its own form."""

_BY_KIND: dict[str, Adapter] = {
    "text": text_as("generated_text"),
    "image": picture,
    "audio": sound,
    "video": video,
    "3d": mesh,
    "table": _file,
    "file": _file,
    "data": _data,
}
