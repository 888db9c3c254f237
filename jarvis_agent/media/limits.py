"""How large a picture, a sound or a video may be before anything decodes it.

    check_limits(resource, settings)        # InputError: "talk.wav lasts 10:00:00, longer than 1:00:00 …"

A picture's size is in its header. How long a video lasts is told by its packets, whatever its header claims.
Where what reads sounds and videos is not installed, nothing is checked, and nothing can decode them either.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

from jarvis_agent.core.errors import InputError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Resource
from jarvis_agent.media.image import check_pixels

_LONGEST_TOLD = 1e9
"""Seconds. A damaged file may claim to last longer than any clock can tell."""


def check_limits(resource: Resource, settings: Settings) -> None:
    """Refuse a file that is too large for its kind; blocks while it reads headers, or a video's packets.

    Raises:
        InputError: more than `max_pixels` pixels or `max_seconds` seconds, or no picture or video at all.
    """
    check = _CHECKS.get(resource.kind)
    if check is not None and resource.path is not None:
        check(resource.path, settings)


def _picture(path: Path, settings: Settings) -> None:
    check_pixels(path, settings.max_pixels)


def _sound(path: Path, settings: Settings) -> None:
    if find_spec("soundfile") is None:
        return
    import soundfile

    try:
        seconds = soundfile.info(path).duration
    except (soundfile.LibsndfileError, OSError):
        # AAC and the like, which PyAV knows; or no sound, which is for its reader to say.
        seconds = _seconds_by_av(path)
    _check_seconds(path, seconds, settings)


def _video(path: Path, settings: Settings) -> None:
    if find_spec("av") is None:
        return
    from jarvis_agent.media.video import length_of, opened

    with opened(path) as video:
        stream = video.streams.video[0]
        width, height = stream.width, stream.height
        if width * height > settings.max_pixels:
            raise InputError(
                f"{path} has pictures of {width} x {height} pixels, more than {settings.max_pixels:,} "
                "(JARVIS_MAX_PIXELS); make it smaller"
            )
        _check_seconds(path, length_of(video), settings)


def _seconds_by_av(path: Path) -> float:
    if find_spec("av") is None:
        return 0.0
    import av

    from jarvis_agent.media.video import length_of

    try:
        with av.open(path, metadata_errors="replace") as sound:
            return length_of(sound)
    except (av.FFmpegError, OSError):
        return 0.0


def _check_seconds(path: Path, seconds: float, settings: Settings) -> None:
    if seconds > settings.max_seconds:
        told = (min(found, _LONGEST_TOLD) for found in (seconds, settings.max_seconds))
        lasts, limit = (timedelta(seconds=int(found)) for found in told)
        raise InputError(f"{path} lasts {lasts}, longer than {limit} (JARVIS_MAX_SECONDS); give a part of it")


_CHECKS: dict[str, Callable[[Path, Settings], None]] = {"image": _picture, "audio": _sound, "video": _video}
