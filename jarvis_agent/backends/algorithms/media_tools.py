"""Media tools without a model: sound and frames of videos with PyAV, resizing and cropping with Pillow."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.base import Call, whole_number
from jarvis_agent.core.errors import BadInputError
from jarvis_agent.media.video import encode_sound, join_mp4, opened, spread_frames

if TYPE_CHECKING:
    from PIL.Image import Image

FRAMES = 8
"""Frames that are extracted by default."""

MAX_FRAMES = 64

_BOX_FORMS = "[xmin, ymin, xmax, ymax] in pixels, or a detection that has a box"


def combine(call: Call) -> dict[str, Any]:
    """Replace the sound of a video (inputs: video, audio): {path} of an MP4 with H.264 and AAC.

    H.264 pictures of an MP4 file are copied; others, and the sound, are encoded. The longer of the two sets
    the length.

    Raises:
        BadInputError: a file cannot be read, or lacks pictures or sound.
    """
    import av

    target = call.new_path(".mp4")
    try:
        with (
            av.open(call.inputs["video"].path, metadata_errors="replace") as video,
            av.open(call.inputs["audio"].path, metadata_errors="replace") as audio,
        ):
            streams = *video.streams.video[:1], *audio.streams.audio[:1]
            if sum(stream.codec_context is not None for stream in streams) != 2:
                raise BadInputError("a video with pictures and a file with sound are needed to combine them")
            join_mp4(video, audio, target)
    except (av.FFmpegError, OSError, BadInputError) as error:
        raise BadInputError(f"the video and the audio cannot be combined: {error}") from error
    return {"path": target}


def extract_audio(call: Call) -> dict[str, Any]:
    """The sound of a video: {path} of a WAV file, 16-bit, with the rate and channels of the video's sound.

    Raises:
        BadInputError: the video cannot be read, or has no sound.
    """
    import av

    source = call.inputs["video"].path
    target = call.new_path(".wav")
    with opened(source) as video:
        if not video.streams.audio:
            raise BadInputError(f"{source.name} has no sound")
        stream = video.streams.audio[0]
        with av.open(target, "w") as made:
            written = made.add_stream("pcm_s16le", rate=stream.rate, layout=stream.layout.name)
            encode_sound(video, made, written)
    return {"path": target}


def extract_frames(call: Call) -> list[dict[str, Any]]:
    """`count` frames (default 8) spread evenly over a video: [{image: PIL, time in seconds}].

    Raises:
        BadInputError: the video cannot be read, or the count is not between 1 and `MAX_FRAMES`.
    """
    count = whole_number(call, "count", MAX_FRAMES) or FRAMES
    found = spread_frames(call.inputs["video"].path, count)
    return [{"image": image, "time": seconds} for seconds, image in found]


def resize(call: Call) -> Image:
    """Resize an image to `width` and `height` in pixels; a missing side keeps the aspect ratio.

    Raises:
        BadInputError: no side is given, one is not a positive whole number, or the image would be too large.
    """
    from PIL import Image as Images

    image: Image = call.inputs["image"].to_pil()
    limit = call.settings.max_pixels
    wide, high = whole_number(call, "width", limit), whole_number(call, "height", limit)
    if wide is None and high is None:
        raise BadInputError("resize-image needs a width or a height in pixels, such as 512")
    width = wide or max(1, round(image.width * (high or 0) / image.height))
    height = high or max(1, round(image.height * width / image.width))
    if width * height > limit:
        size = f"an image of {width} × {height} pixels"
        raise BadInputError(f"{size} has more than {limit:,} (JARVIS_MAX_PIXELS); use a smaller size")
    return image.resize((width, height), Images.Resampling.LANCZOS)


def crop(call: Call) -> Image:
    """The part of an image inside `box`; of several detections the one with the best score.

    `box`: [xmin, ymin, xmax, ymax], {xmin, …}, a detection, a list of detections, or those as text.

    Raises:
        BadInputError: the box cannot be read, or lies outside the image.
    """
    image: Image = call.inputs["image"].to_pil()
    given = _box(call.inputs.get("box"))
    left, top = (max(0, math.floor(side)) for side in given[:2])
    right, bottom = min(image.width, math.ceil(given[2])), min(image.height, math.ceil(given[3]))
    if left >= right or top >= bottom:
        size = f"{image.width} × {image.height} pixels"
        raise BadInputError(f"the box {list(given)} lies outside the image ({size})")
    return image.crop((left, top, right, bottom))


def _box(given: Any) -> tuple[float, float, float, float]:
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):  # four bare numbers: "10, 20, 200, 220"
            given = given.strip(" <>()").replace(",", " ").split()
    if isinstance(given, list | tuple) and any(isinstance(row, Mapping) for row in given):
        boxed = [row for row in given if isinstance(row, Mapping) and row.get("box")]
        if not boxed:
            raise BadInputError(f"none of the {len(given)} detections has a box; give {_BOX_FORMS}")
        given = max(boxed, key=_score)
    if isinstance(given, Mapping):
        given = given.get("box", given)
    if isinstance(given, Mapping):
        given = [given.get(side) for side in ("xmin", "ymin", "xmax", "ymax")]
    try:
        left, top, right, bottom = (float(side) for side in given)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadInputError(f"{str(given)[:80]!r} is not a box; give {_BOX_FORMS}") from error
    if not all(map(math.isfinite, (left, top, right, bottom))):
        raise BadInputError(f"the box {str(given)[:80]} has sides that are not finite numbers")
    return min(left, right), min(top, bottom), max(left, right), max(top, bottom)


def _score(row: Mapping[str, Any]) -> float:
    score = row.get("score")
    return float(score) if isinstance(score, int | float) else 0.0
