"""The streams of one container, put into another one: pictures as H.264, sound as AAC.

What is in that form in an MP4 file already is copied as it is.

    with opened(source) as video, opened(source) as again, av.open(target, "w") as made:
        fills = [add_pictures(video, made), add_sound(again, made)]
        for fill in fills:
            fill()

All streams must be added before the first is filled, since the head of a file names them. Each source is read
once, so one that gives both is opened twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from jarvis_agent.media.video import even, h264, hold_to_head, opened

Fill = Callable[[], None]

_AAC_RATES = frozenset(
    {8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 64_000, 88_200, 96_000}
)
_BEST_RATE = 48_000


def to_mp4(source: Path, target: Path, tags: Mapping[str, str]) -> None:
    """Write a video as MP4 (H.264, AAC) with these tags; what is in that form already is copied.

    Raises:
        BadInputError: the source can not be read as a video.
        MissingExtraError: PyAV is not installed.
    """
    with opened(source) as video, opened(source) as again:
        import av

        with av.open(target, "w", options={"movflags": "+faststart"}) as made:
            made.metadata.update(tags)
            fills = [add_pictures(video, made)]
            if any(stream.codec_context for stream in again.streams.audio[:1]):
                fills.append(add_sound(again, made))
            for fill in fills:
                fill()


def is_mp4(video: Any) -> bool:
    """Whether an opened video is MP4 (or its like) with pictures in H.264 that every player shows."""
    pictures = video.streams.video[0].codec_context
    return _in_mp4(video) and pictures.name == "h264" and pictures.pix_fmt == "yuv420p"


def _in_mp4(source: Any) -> bool:
    # Other containers leave out what MP4 needs of a packet: Matroska does not tell when to decode one.
    return "mp4" in source.format.name.split(",")


def add_pictures(source: Any, made: Any) -> Fill:
    """Add the first stream of pictures of an opened video; returns what fills it."""
    stream = source.streams.video[0]
    if is_mp4(source):
        return partial(_copy, source, stream, made, made.add_stream_from_template(stream))
    hold_to_head(source)
    rate = stream.average_rate or stream.guessed_rate or Fraction(25)
    encoded = h264(made, even(stream.width, stream.height), rate)
    encoded.codec_context.time_base = stream.time_base
    return partial(_encode_pictures, source, made, encoded)


def add_sound(source: Any, made: Any) -> Fill:
    """Add the first stream of sound of an opened file as AAC; returns what fills it."""
    stream = source.streams.audio[0]
    if _in_mp4(source) and stream.codec_context.name == "aac":
        return partial(_copy, source, stream, made, made.add_stream_from_template(stream))
    rate = stream.rate if stream.rate in _AAC_RATES else _BEST_RATE
    layout = "mono" if stream.layout.nb_channels == 1 else "stereo"
    return partial(encode_sound, source, made, made.add_stream("aac", rate=rate, layout=layout))


def encode_sound(source: Any, made: Any, stream: Any) -> None:
    """Fill a stream of an encoder with the sound of an opened file."""
    for frame in source.decode(audio=0):
        frame.pts = None
        made.mux(stream.encode(frame))
    made.mux(stream.encode(None))


def _encode_pictures(source: Any, made: Any, stream: Any) -> None:
    for frame in source.decode(video=0):
        made.mux(stream.encode(frame.reformat(stream.width, stream.height, "yuv420p")))
    made.mux(stream.encode(None))


def _copy(source: Any, copied: Any, made: Any, stream: Any) -> None:
    for packet in source.demux(copied):
        if packet.dts is not None:
            packet.stream = stream
            made.mux(packet)
