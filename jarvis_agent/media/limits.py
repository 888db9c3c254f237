"""Limits on images, audio and video, checked before anything is decoded.

    check_limits(resource, settings)        # InputError: "talk.wav lasts 10:00:00, longer than 1:00:00 …"

The size of an image comes from its header, the duration of a video from its packets. Audio and video are not
checked if soundfile or PyAV is missing; they cannot be decoded then either.
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

_MAX_SHOWN_S = 1e9
"""Damaged files may claim durations beyond the range of timedelta."""


def check_limits(resource: Resource, settings: Settings) -> None:
    """Refuse a file that is too large for its kind. Blocks while it reads headers or packets.

    Raises:
        InputError: it exceeds `max_pixels` or `max_seconds`, or is not an image or a video.
    """
    check = _CHECKS.get(resource.kind)
    if check is not None and resource.path is not None:
        check(resource.path, settings)


def _check_audio(path: Path, settings: Settings) -> None:
    if find_spec("soundfile") is None:
        return
    import soundfile

    try:
        seconds = soundfile.info(path).duration
    except (soundfile.LibsndfileError, OSError):
        # A format that only PyAV reads; or no audio, which the reader reports.
        seconds = _seconds_by_av(path)
    _check_seconds(path, seconds, settings)


def _check_video(path: Path, settings: Settings) -> None:
    if find_spec("av") is None:
        return
    from jarvis_agent.media.video import duration_of, opened

    with opened(path) as video:
        stream = video.streams.video[0]
        width, height = stream.width, stream.height
        if width * height > settings.max_pixels:
            raise InputError(
                f"{path} has pictures of {width} x {height} pixels, more than {settings.max_pixels:,} "
                "(JARVIS_MAX_PIXELS); make it smaller"
            )
        _check_seconds(path, duration_of(video), settings)


def _seconds_by_av(path: Path) -> float:
    if find_spec("av") is None:
        return 0.0
    import av

    from jarvis_agent.media.video import duration_of

    try:
        with av.open(path, metadata_errors="replace") as sound:
            return duration_of(sound)
    except (av.FFmpegError, OSError):
        return 0.0


def _check_seconds(path: Path, seconds: float, settings: Settings) -> None:
    if seconds > settings.max_seconds:
        lasts, limit = (timedelta(seconds=int(min(s, _MAX_SHOWN_S))) for s in (seconds, settings.max_seconds))
        raise InputError(f"{path} lasts {lasts}, longer than {limit} (JARVIS_MAX_SECONDS); give a part of it")


_CHECKS: dict[str, Callable[[Path, Settings], None]] = {
    "image": lambda path, settings: check_pixels(path, settings.max_pixels),
    "audio": _check_audio,
    "video": _check_video,
}
