"""Limits on images, audio and video, checked before anything is decoded.

    check_limits(resource, settings)        # InputError: "talk.wav lasts 10:00:00, longer than 1:00:00 …"

Audio and video are not checked if soundfile or PyAV is missing; they cannot be decoded then either.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

from jarvis_agent.core.errors import BadInputError, InputError, MissingExtraError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Resource
from jarvis_agent.media.audio import probe_audio
from jarvis_agent.media.video import duration_of, opened

_MAX_SHOWN_S = 1e9
"""Damaged files may claim durations beyond the range of timedelta."""


def check_limits(resource: Resource, settings: Settings) -> None:
    """Refuse a file that is too large for its kind. Blocks while it reads headers or packets.

    Raises:
        InputError: it exceeds `max_pixels` or `max_seconds`, or is not an image or a video.
    """
    if resource.path is None:
        return
    if resource.kind == "image":
        check_pixels(resource.path, settings.max_pixels)
    elif resource.kind == "audio":
        _check_seconds(resource.path, _seconds_of_sound(resource.path), settings)
    elif resource.kind == "video":
        _check_video(resource.path, settings)


def check_pixels(path: Path, limit: int) -> None:
    """Refuse an image with more than `limit` pixels. Only the header is read.

    Raises:
        InputError: it is too large, or its header is unreadable.
    """
    from PIL import Image

    try:
        with Image.open(path) as image:
            width, height = image.size
            # An icon's header may state less than the image in it has.
            if icon := getattr(image, "ico", None):
                width, height = icon.frame(icon.getentryindex(image.size)).size
    except Image.DecompressionBombError as error:
        raise InputError(f"{path} is too large an image: {error}") from error
    except Exception as error:  # Pillow raises errors of any type for damaged files.
        raise InputError(f"{path} cannot be read as an image: {error}") from error
    _check_size(path, "", width, height, limit)


def _check_size(path: Path, what: str, width: int, height: int, limit: int) -> None:
    if width * height > limit:
        raise InputError(
            f"{path} has {what}{width} x {height} pixels, more than {limit:,} (JARVIS_MAX_PIXELS); "
            "make it smaller"
        )


def _seconds_of_sound(path: Path) -> float:
    """The duration; 0 if no library is installed that reads it, or none can."""
    with suppress(BadInputError, MissingExtraError):
        return probe_audio(path).duration
    return 0.0


def _check_video(path: Path, settings: Settings) -> None:
    if find_spec("av") is None:
        return
    with opened(path) as video:
        stream = video.streams.video[0]
        _check_size(path, "pictures of ", stream.width, stream.height, settings.max_pixels)
        _check_seconds(path, duration_of(video), settings)


def _check_seconds(path: Path, seconds: float, settings: Settings) -> None:
    if seconds > settings.max_seconds:
        lasts, limit = (timedelta(seconds=int(min(s, _MAX_SHOWN_S))) for s in (seconds, settings.max_seconds))
        raise InputError(f"{path} lasts {lasts}, longer than {limit} (JARVIS_MAX_SECONDS); give a part of it")
