"""From what an expert returned to what the user gets: plain JSON, and resources.

    output, resources = adapt(TASKS["object-detection"], raw, call)
    output      [{"label": "cat", "score": 0.9981, "box": {"xmin": 13, "ymin": 52, "xmax": 314, "ymax": 470}}]
    resources   the picture with the boxes drawn, the boxes as data, "1 object: 1 cat"

The output has the shape of huggingface_hub's inference types, whichever backend did the work; files that were
written stand in it as paths. The adapters are in tools/results. A task that is not in ADAPTERS is adapted by
the first kind that it makes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from jarvis_agent.core.errors import InputError, UnsupportedError
from jarvis_agent.backends.outputs.files import made_file
from jarvis_agent.backends.outputs.validators import UnexpectedError, plain, told
from jarvis_agent.backends.outputs.adapted import Adapted, Adapter
from jarvis_agent.backends.outputs.detection import nameless_masks, objects, people, segments
from jarvis_agent.backends.outputs.images import depth, frames, picture
from jarvis_agent.backends.outputs.classification import (
    answers,
    classes,
    entities,
    features,
    masked_words,
    pages,
    ranking,
    similarity,
    speech,
    table_answer,
)
from jarvis_agent.backends.outputs.meshes import solid
from jarvis_agent.backends.outputs.sounds import sound
from jarvis_agent.backends.outputs.tables import forecast, labelled_rows, numbered_rows
from jarvis_agent.backends.outputs.text import image_text, spoken_text, text_as, transcript
from jarvis_agent.backends.outputs.videos import video
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Resource

if TYPE_CHECKING:
    from jarvis_agent.backends.base import Call

__all__ = ["ADAPTERS", "Adapted", "Adapter", "adapt"]


def adapt(spec: TaskSpec, raw: Any, call: Call) -> tuple[Any, list[Resource]]:
    """Turn an expert's raw output into JSON and resources; blocks while it draws and writes files.

    Returns:
        The output, and the resources in the order of `spec.outputs`, further files after them.

    Raises:
        UnsupportedError: the output does not have the task's form, or has NaN for scores.
        InputError: a file could not be written.
        MissingExtraError: what writes such files (videos, 3D models) is not installed.
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


def _file(raw: Any, call: Call) -> Adapted:
    """A file that the backend wrote."""
    file = made_file(raw, call.spec.outputs[0], call)
    assert file.path is not None
    return Adapted({"path": str(file.path)}, f"the file {file.path.name}", (file,))


def _data(raw: Any, call: Call) -> Adapted:
    found = plain(raw)
    return Adapted(found, json.dumps(found, ensure_ascii=False))


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
    "mask-generation": nameless_masks,
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
}
"""Adapters of the tasks whose output has a form of its own."""

_BY_KIND: dict[str, Adapter] = {
    "text": text_as("generated_text"),
    "image": picture,
    "audio": sound,
    "video": video,
    "3d": solid,
    "table": _file,
    "file": _file,
    "data": _data,
}
