"""Media tools without a model: sound and frames of videos with PyAV, facts of files."""

from __future__ import annotations

from typing import Any

from jarvis_agent.backends.base import Call, whole_number
from jarvis_agent.core.errors import BadInputError
from jarvis_agent.media.info import media_info
from jarvis_agent.media.video import encode_sound, join_mp4, opened, spread_frames

FRAMES = 8
"""Frames that are extracted by default."""

MAX_FRAMES = 64


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


def info(call: Call) -> dict[str, Any]:
    """The facts of a file (input: file); see `jarvis_agent.media.info`.

    Raises:
        BadInputError: the file is damaged.
        InputError: it is missing, empty, or of an unknown type.
        MissingExtraError: no installed library reads its format.
    """
    return media_info(call.inputs["file"], call.notes)
