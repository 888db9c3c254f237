"""Videos, read and written with PyAV: their properties, sampled frames, new and converted files.

    probe_video(Path("clip.mp4")).duration                   # 2.0
    spread_frames(Path("clip.mp4"), 8)                       # [(0.125, image), …]
    write_video(Path("new.mp4"), images, 8.0)
    to_mp4(Path("clip.webm"), Path("clip.mp4"))

Videos are written as MP4 with H.264 and AAC, which browsers and phones play.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis_agent.core.errors import BadInputError, MissingExtraError

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_FRAME_PIXELS = 700_000_000
"""Maximum number of pixels over all sampled frames; they take 2 GB."""

_MIN_FRAME_LIMIT = 4096 * 2304
"""Pixels that every frame may have: the resolution of recorded calls grows."""

_MAX_FPS = 240
"""Highest frame rate assumed; the number of frames gives the minimum duration."""


@dataclass(frozen=True, slots=True)
class VideoFacts:
    """Width and height in pixels, frames per second, and duration in seconds."""

    width: int
    height: int
    fps: float
    duration: float

    @property
    def summary(self) -> str:
        """The properties as a phrase for answers."""
        return (
            f"a video of {self.duration:.1f} s, {self.width} × {self.height} pixels, "
            f"{round(self.fps, 1):g} frames a second"
        )


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open a video with PyAV; errors of PyAV in the block become a `BadInputError`.

    Raises:
        BadInputError: the file cannot be read as a video, or has no frames.
        MissingExtraError: PyAV is not installed.
    """
    try:
        import av
    except ImportError as error:
        raise MissingExtraError("reading and writing videos", "local") from error
    try:
        with av.open(path, metadata_errors="replace") as video:
            if not any(stream.codec_context for stream in video.streams.video[:1]):
                raise BadInputError(f"{path.name} has no frames that can be decoded; a video is needed")
            _limit_frame_size(video)
            yield video
    except (av.FFmpegError, OSError) as error:
        raise BadInputError(f"{path.name} cannot be read as a video: {error}") from error


def _limit_frame_size(video: Any) -> None:
    """Make the decoder refuse frames much larger than the header states.

    media.limits checks the size in the header only, and each frame may have another one.
    """
    for stream in video.streams.video:
        if codec := stream.codec_context:
            # Decoders count whole blocks, so the limit is rounded up.
            most = max((stream.width + 128) * (stream.height + 128), _MIN_FRAME_LIMIT)
            codec.options = {**codec.options, "max_pixels": str(most)}


def probe_video(path: Path) -> VideoFacts:
    """Read the properties of a video.

    Raises:
        BadInputError: the file cannot be read as a video, or has no frames.
        MissingExtraError: PyAV is not installed.
    """
    with opened(path) as video:
        stream = video.streams.video[0]
        fps = float(stream.average_rate or stream.guessed_rate or 0)
        return VideoFacts(stream.width, stream.height, fps, duration_of(video))


def spread_frames(path: Path, count: int) -> list[tuple[float, Image]]:
    """At most `count` frames, evenly spread over a video, each with its time in seconds.

    The file is read twice: its packets are counted, then it is decoded frame by frame.

    Raises:
        BadInputError: the file cannot be read as a video, has no frames, or frames that are too large.
        MissingExtraError: PyAV is not installed.
    """
    with opened(path) as video:
        total = sum(packet.pts is not None for packet in video.demux(video.streams.video[0]))
    parts = min(count, total)
    wanted = {(2 * part + 1) * total // (2 * parts) for part in range(parts)}
    found, held = [], 0
    with opened(path) as video:
        for place, frame in enumerate(video.decode(video.streams.video[0])):
            if place in wanted:
                held += frame.width * frame.height
                if held > MAX_FRAME_PIXELS:
                    raise BadInputError(
                        f"{len(wanted)} frames of {path.name} have more than {MAX_FRAME_PIXELS:,} pixels "
                        "together; take fewer, or make the video smaller"
                    )
                found.append((float(frame.time or 0.0), _upright(frame)))
            if len(found) == len(wanted):
                break
    if not found:
        raise BadInputError(f"{path.name} has no frames that can be decoded")
    return found


def write_video(path: Path, images: Iterable[Image], fps: float) -> None:
    """Write images of one size as MP4 (H.264, yuv420p).

    The format needs even sides; an odd side is cropped by one pixel.

    Args:
        path: the new file.
        images: at least one.
        fps: frames per second.

    Raises:
        MissingExtraError: PyAV is not installed.
        OSError: the file cannot be written.
    """
    try:
        import av
    except ImportError as error:
        raise MissingExtraError("reading and writing videos", "local") from error
    with av.open(path, "w", options={"movflags": "+faststart"}) as made:
        stream = None
        for image in images:
            size = _even(*image.size)
            if stream is None:
                stream = _h264(made, size, Fraction(fps).limit_denominator(1001))
            picture = image.convert("RGB").crop((0, 0, *size))
            made.mux(stream.encode(av.VideoFrame.from_image(picture)))
        if stream is not None:
            made.mux(stream.encode(None))


def _h264(made: Any, size: tuple[int, int], rate: Fraction) -> Any:
    """Add an H.264 stream to an output container; `size` is in pixels, both sides even."""
    stream = made.add_stream("libx264", rate=rate)
    stream.width, stream.height = size
    stream.pix_fmt = "yuv420p"
    stream.options = {"crf": "20", "preset": "veryfast"}
    return stream


def _even(width: int, height: int) -> tuple[int, int]:
    """The size rounded down to even sides, at least 2 × 2."""
    return max(2, width - width % 2), max(2, height - height % 2)


def to_mp4(source: Path, target: Path) -> None:
    """Write a video as MP4 (H.264, AAC). Streams in these formats are copied, others are encoded.

    Raises:
        BadInputError: the source cannot be read as a video.
        MissingExtraError: PyAV is not installed.
    """
    with opened(source) as pictures, opened(source) as sound:
        has_sound = any(stream.codec_context for stream in sound.streams.audio[:1])
        join_mp4(pictures, sound if has_sound else None, target)


def join_mp4(pictures: Any, sound: Any | None, target: Path) -> None:
    """Write an MP4 file with the first video stream of one opened file and the first audio stream of another.

    Streams of MP4 files in H.264 and AAC are copied, others are encoded. PyAV reads one stream at a time, so
    both streams of one file need two opened files.
    """
    import av

    with av.open(target, "w", options={"movflags": "+faststart"}) as made:
        # The header of the file lists all streams, so each is added before the first is written.
        fills = [_add_pictures(pictures, made)]
        if sound is not None:
            fills.append(_add_sound(sound, made))
        for fill in fills:
            fill()


def is_mp4(video: Any) -> bool:
    """Whether an opened video is MP4 with H.264 in yuv420p, which every player shows."""
    pictures = video.streams.video[0].codec_context
    return _in_mp4(video) and pictures.name == "h264" and pictures.pix_fmt == "yuv420p"


def _in_mp4(source: Any) -> bool:
    # Packets of other containers lack data that MP4 needs: Matroska stores no decoding times.
    return "mp4" in source.format.name.split(",")


def _add_pictures(source: Any, made: Any) -> Callable[[], None]:
    """Add a video stream to an output; the result writes its packets."""
    stream = source.streams.video[0]
    if is_mp4(source):
        return partial(_copy, source, stream, made, made.add_stream_from_template(stream))
    _limit_frame_size(source)
    rate = stream.average_rate or stream.guessed_rate or Fraction(25)
    encoded = _h264(made, _even(stream.width, stream.height), rate)
    encoded.codec_context.time_base = stream.time_base
    return partial(_encode_pictures, source, made, encoded)


def _add_sound(source: Any, made: Any) -> Callable[[], None]:
    stream = source.streams.audio[0]
    if _in_mp4(source) and stream.codec_context.name == "aac":
        return partial(_copy, source, stream, made, made.add_stream_from_template(stream))
    import av

    rate = stream.rate if stream.rate in av.Codec("aac", "w").audio_rates else 48_000
    layout = "mono" if stream.layout.nb_channels == 1 else "stereo"
    return partial(encode_sound, source, made, made.add_stream("aac", rate=rate, layout=layout))


def encode_sound(source: Any, made: Any, stream: Any) -> None:
    """Encode the first audio stream of a source into a stream of an output."""
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


def duration_of(container: Any) -> float:
    """Seconds of an opened container, from all of its packets.

    Timestamps can be forged, so this is the maximum of: the end of the last packet, the sum of the durations
    of a stream, and the time that its number of frames takes at `_MAX_FPS`.
    """
    longest = 0.0
    together: dict[int, float] = defaultdict(float)
    pictures: dict[int, float] = defaultdict(float)
    for packet in container.demux():
        stream = packet.stream
        if not packet.size or packet.time_base is None or stream.type not in ("audio", "video"):
            continue
        lasts = float(max(packet.duration or 0, 0) * packet.time_base)
        together[stream.index] += lasts
        if packet.pts is not None:
            longest = max(longest, float(packet.pts * packet.time_base) + lasts)
        if stream.type == "video":
            pictures[stream.index] += 1 / max(stream.average_rate or 0, _MAX_FPS)
    return max(longest, *together.values(), *pictures.values(), 0.0)


def _upright(frame: Any) -> Image:
    """The frame as an image, rotated according to its metadata."""
    image: Image = frame.to_image()
    turn = getattr(frame, "rotation", 0)
    return image.rotate(turn, expand=True) if turn else image
