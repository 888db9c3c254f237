"""Limits on what models and files may take, checked before anything is decoded or computed.

    check_limits(resource)        # InputError: "talk.wav lasts 10:00:00, longer than 1:00:00 …"
    check_task_limits("text-to-speech", {"text": book})     # UnsupportedError: "… at most 20,000 …"

Audio and video are not checked if PyAV is missing; they cannot be decoded then either.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from itertools import chain
from typing import Any, Literal

from jarvis_agent.core.errors import BadInputError, InputError, MissingExtraError, UnsupportedError
from jarvis_agent.core.images import identified
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Resource
from jarvis_agent.media.recordings import measure_packets, opened, probe_audio
from jarvis_agent.media.tables import table_shape

Measure = Literal["characters", "texts", "images", "pixels", "seconds", "rows"]

_IMAGE_TASKS = (task for task, spec in TASKS.items() if any(arg.kind == "image" for arg in spec.inputs))

_TASK_LIMITS: tuple[tuple[str, dict[Measure, int]], ...] = (
    # Several copies of the whole image are in memory before a model's size is reached.
    (" ".join(_IMAGE_TASKS), {"pixels": 64_000_000}),
    # A model reads these texts whole, or piece by piece within the time of a task.
    ("text-classification token-classification fill-mask question-answering", {"characters": 100_000}),
    ("translation summarization text-generation feature-extraction", {"characters": 100_000}),
    ("text-to-image text-to-video text-to-3d text-to-audio", {"characters": 100_000}),
    ("text-to-speech", {"characters": 20_000}),  # 25 minutes of speech
    ("sentence-similarity text-ranking", {"characters": 2_000_000, "texts": 10_000}),
    # A model reads the input once for each label.
    ("zero-shot-classification", {"characters": 100_000, "texts": 200}),
    ("zero-shot-image-classification zero-shot-object-detection", {"texts": 200, "pixels": 64_000_000}),
    ("crop-image resize-image", {"pixels": 100_000_000}),  # they make an image small enough for the others
    # A larger page is illegible in the size in which a model reads it.
    ("image-to-text document-question-answering", {"pixels": 40_000_000}),
    ("visual-document-retrieval", {"pixels": 40_000_000, "images": 100}),
    # Masks, and images of floats, have the size of the input.
    ("image-segmentation mask-generation seg-control", {"pixels": 16_000_000}),
    ("depth-estimation depth-control normal-control openpose-control", {"pixels": 40_000_000}),
    ("canny-control hed-control mlsd-control scribble-control", {"pixels": 40_000_000}),
    ("automatic-speech-recognition voice-activity-detection", {"seconds": 3600}),
    ("audio-to-audio", {"seconds": 1200}),
    ("audio-text-to-text", {"seconds": 600}),
    ("any-to-any", {"seconds": 600, "pixels": 64_000_000}),
    ("table-question-answering", {"rows": 1_000}),
    ("tabular-classification tabular-regression time-series-forecasting", {"rows": 100_000}),
)

TASK_LIMITS = {task: limits for tasks, limits in _TASK_LIMITS for task in tasks.split()}
"""What a model on this machine takes at most, by task: more needs many gigabytes or much time.

`characters` are those of all texts, `texts` and `images` the items of a list. Settings limit files further.
"""

MAX_PIXELS, MAX_SECONDS = 100_000_000, 3600.0
"""Of an image or a frame, and of a recording or a video: small files may be enormous when decoded."""

MAX_SHOWN_S = 1e9  # damaged files may claim durations beyond the range of timedelta


def check_limits(resource: Resource) -> None:
    """Refuse a file that is too large for its kind. Blocks while it reads headers or packets.

    Raises InputError: it exceeds MAX_PIXELS or MAX_SECONDS, or is not an image. BadInputError: no video.
    """
    width, height, seconds = _extent(resource)
    what = "pictures of " if resource.kind == "video" else ""
    if width * height > MAX_PIXELS:
        size = f"{what}{width} x {height} pixels"
        raise InputError(f"{resource.file_name} has {size}, more than {MAX_PIXELS:,}; make it smaller")
    if seconds > MAX_SECONDS:
        lasts, limit = (timedelta(seconds=int(min(s, MAX_SHOWN_S))) for s in (seconds, MAX_SECONDS))
        raise InputError(f"{resource.file_name} lasts {lasts}, longer than {limit}; give a part of it")


def _extent(resource: Resource) -> tuple[int, int, float]:
    """Width and height of pictures in pixels, and seconds; 0 for what a file lacks, or nothing reads."""
    path, kind = resource.path, resource.kind
    if path is not None and kind == "image":
        try:
            with identified(path) as image:
                return *image.size, 0.0
        except BadInputError as error:
            raise InputError(error.note) from error
    with suppress(MissingExtraError):
        if path is not None and kind == "video":
            with opened(path) as video:
                stream = video.streams.video[0]
                return stream.width, stream.height, measure_packets(video).seconds
        if path is not None and kind == "audio":
            with suppress(BadInputError):
                return 0, 0, probe_audio(path).duration
    return 0, 0, 0.0


def check_task_limits(task: str, inputs: Mapping[str, Any]) -> None:
    """Refuse inputs of a task that exceed a limit of `TASK_LIMITS`. Blocks while it reads headers.

    Raises UnsupportedError: it is too much for a model on this machine; a hosted one may take it.
    """
    for measure, limit in TASK_LIMITS.get(task, {}).items():
        if (size := max(_amounts(measure, inputs), default=0)) > limit:
            most = f"takes at most {limit:,} {measure}, and this input has {size:,.0f}"
            helps = f"{task} on this machine {most}; give a part of it, or use a hosted model"
            raise UnsupportedError(helps, advice="JARVIS_POLICY=hosted-first prefers hosted models")


def _amounts(measure: Measure, inputs: Mapping[str, Any]) -> Iterator[float]:
    """What inputs have of a measure. Where it is unknown, the model's own error says more."""
    lists = [value if isinstance(value, list) else [value] for value in inputs.values()]
    values = [*chain.from_iterable(lists)]
    if measure == "characters":
        yield sum(len(value) for value in values if isinstance(value, str))
    elif measure in ("texts", "images"):
        yield max(map(len, lists), default=0)
    for file in values:
        form = (measure, file.kind) if isinstance(file, Resource) else None
        with suppress(InputError, BadInputError):
            if form == ("rows", "table") and file.path is not None:
                yield table_shape(file.path)[0]
            elif form in (("pixels", "image"), ("seconds", "audio")):
                width, height, seconds = _extent(file)
                yield width * height or seconds
