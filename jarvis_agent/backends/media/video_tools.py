"""Tools for videos with PyAV: another sound under one, the sound of one, some of its pictures.

combine(call)            # inputs: video, audio
extract_audio(call)      # inputs: video
extract_frames(call)     # inputs: video, count
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.media.image_tools import whole_number
from jarvis_agent.errors import BadInputError
from jarvis_agent.tools.provenance import tags
from jarvis_agent.video import even, h264, opened, spread_frames

FRAMES = 8
"""How many frames are taken where the request does not say."""

MOST_FRAMES = 64


def combine(call: Call) -> dict[str, Any]:
    """Put a sound under the pictures of a video: {path} of an MP4 with H.264 and AAC.

    Pictures in H.264 are copied as they are, others are encoded anew. The longer of the two decides the
    length. A sound that the video had is replaced.

    Raises:
        BadInputError: one of them can not be read, or lacks pictures or sound.
    """
    import av

    target = call.new_path(".mp4")
    try:
        with (
            av.open(call.inputs["video"].path) as video,
            av.open(call.inputs["audio"].path) as audio,
            av.open(target, "w", options={"movflags": "+faststart"}) as made,
        ):
            if not video.streams.video or not audio.streams.audio:
                raise BadInputError("a video with pictures and a file with sound are needed to combine them")
            made.metadata.update(tags(call))
            source = video.streams.video[0]
            is_h264 = source.codec_context.name == "h264"
            pictures = made.add_stream_from_template(source) if is_h264 else _stream_like(source, made)
            sound = made.add_stream("aac", rate=audio.streams.audio[0].rate)
            (_copy if is_h264 else _encode_pictures)(video, made, pictures)
            _encode_sound(audio, made, sound)
    except (av.FFmpegError, OSError, BadInputError) as error:
        target.unlink(missing_ok=True)
        raise BadInputError(f"the video and the audio can not be combined: {error}") from error
    return {"path": target}


def extract_audio(call: Call) -> dict[str, Any]:
    """The sound of a video: {path} of a WAV file, 16-bit, with the rate and channels of the video's sound.

    Raises:
        BadInputError: the video can not be read, or has no sound.
    """
    import av

    source = call.inputs["video"].path
    target = call.new_path(".wav")
    with opened(source) as video:
        if not video.streams.audio:
            raise BadInputError(f"{source.name} has no sound that could be taken out")
        heard = video.streams.audio[0]
        with av.open(target, "w") as made:
            made.metadata.update(tags(call))
            written = made.add_stream("pcm_s16le", rate=heard.rate, layout=heard.layout.name)
            _encode_sound(video, made, written)
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


def _stream_like(source: Any, made: Any) -> Any:
    """A stream of H.264 that keeps the size (made even) and the times of the pictures of another one."""
    rate = source.average_rate or source.guessed_rate or Fraction(25)
    stream = h264(made, even(source.width, source.height), rate)
    stream.codec_context.time_base = source.time_base
    return stream


def _copy(source: Any, made: Any, stream: Any) -> None:
    for packet in source.demux(source.streams.video[0]):
        if packet.dts is not None:
            packet.stream = stream
            made.mux(packet)


def _encode_pictures(source: Any, made: Any, stream: Any) -> None:
    for frame in source.decode(video=0):
        made.mux(stream.encode(frame.reformat(stream.width, stream.height, "yuv420p")))
    made.mux(stream.encode(None))


def _encode_sound(source: Any, made: Any, stream: Any) -> None:
    for frame in source.decode(audio=0):
        frame.pts = None
        made.mux(stream.encode(frame))
    made.mux(stream.encode(None))
