"""Tools for videos with PyAV: another sound under one, the sound of one, some of its pictures.

combine(call)            # inputs: video, audio
extract_audio(call)      # inputs: video
extract_frames(call)     # inputs: video, count
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jarvis_agent.backends.algorithms.image_tools import whole_number
from jarvis_agent.backends.base import Call
from jarvis_agent.core.errors import BadInputError
from jarvis_agent.media.streams import add_pictures, add_sound, encode_sound
from jarvis_agent.media.video import opened, spread_frames

FRAMES = 8
"""How many frames are taken where the request does not say."""

MOST_FRAMES = 64


def combine(call: Call) -> dict[str, Any]:
    """Put a sound under the pictures of a video: {path} of an MP4 with H.264 and AAC.

    H.264 and AAC in MP4 files are copied as they are, all else is encoded anew. The longer of the two
    decides the length. A sound that the video had is replaced.

    Raises:
        BadInputError: one of them can not be read, or lacks pictures or sound.
    """
    import av

    try:
        with (
            _new_file(call, ".mp4") as target,
            av.open(call.inputs["video"].path, metadata_errors="replace") as video,
            av.open(call.inputs["audio"].path, metadata_errors="replace") as audio,
            av.open(target, "w", options={"movflags": "+faststart"}) as made,
        ):
            streams = *video.streams.video[:1], *audio.streams.audio[:1]
            if sum(stream.codec_context is not None for stream in streams) != 2:
                raise BadInputError("a video with pictures and a file with sound are needed to combine them")
            for fill in (add_pictures(video, made), add_sound(audio, made)):
                fill()
    except (av.FFmpegError, OSError, BadInputError) as error:
        raise BadInputError(f"the video and the audio can not be combined: {error}") from error
    return {"path": target}


def extract_audio(call: Call) -> dict[str, Any]:
    """The sound of a video: {path} of a WAV file, 16-bit, with the rate and channels of the video's sound.

    Raises:
        BadInputError: the video can not be read, or has no sound.
    """
    import av

    source = call.inputs["video"].path
    with _new_file(call, ".wav") as target, opened(source) as video:
        if not video.streams.audio:
            raise BadInputError(f"{source.name} has no sound that could be taken out")
        heard = video.streams.audio[0]
        with av.open(target, "w") as made:
            written = made.add_stream("pcm_s16le", rate=heard.rate, layout=heard.layout.name)
            encode_sound(video, made, written)
    return {"path": target}


def extract_frames(call: Call) -> list[dict[str, Any]]:
    """[{image: PIL, time in seconds}], evenly spread over a video; fewer where it has fewer pictures.

    Raises:
        BadInputError: the video can not be read, or the count is not between 1 and `MOST_FRAMES`.
    """
    count = whole_number(call, "count") or FRAMES
    if count > MOST_FRAMES:
        raise BadInputError(f"extract-frames takes at most {MOST_FRAMES} frames, not {count}")
    found = spread_frames(call.inputs["video"].path, count)
    return [{"image": image, "time": seconds} for seconds, image in found]


@contextmanager
def _new_file(call: Call, suffix: str) -> Iterator[Path]:
    """A fresh path; what is there is removed if the block fails."""
    path = call.new_path(suffix)
    try:
        yield path
    except BaseException:
        path.unlink(missing_ok=True)
        raise
