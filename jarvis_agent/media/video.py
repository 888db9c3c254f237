"""Videos, read and written with PyAV: what one is like, a few of its pictures, pictures as a new one.

    probe_video(Path("clip.mp4")).duration                   # 2.0
    spread_frames(Path("clip.mp4"), 8)                       # [(0.125, image), …]
    write_video(Path("new.mp4"), images, 8.0, {"title": "…"})

Videos are written as MP4 with H.264, which browsers and phones play.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis_agent.core.errors import BadInputError, MissingExtraError

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_HELD = 700_000_000
"""Most pixels of all pictures together that are taken out of a video at once: they take 2 GB."""

_GROWN = 4096 * 2304
"""Pixels that a later picture may have though the first ones have less: recorded calls grow in this way."""

_FASTEST = 240
"""Pictures a second, where a video says less; how many it has tells how long it lasts at least."""


Fill = Callable[[], None]

_AAC_RATES = frozenset(
    {8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 64_000, 88_200, 96_000}
)
_BEST_RATE = 48_000


@dataclass(frozen=True, slots=True)
class VideoFacts:
    """Width and height in pixels, frames a second, duration in seconds, and whether there is sound."""

    width: int
    height: int
    fps: float
    duration: float
    sound: bool

    @property
    def told(self) -> str:
        """The facts in words."""
        return (
            f"a video of {self.duration:.1f} s, {self.width} × {self.height} pixels, "
            f"{round(self.fps, 1):g} frames a second"
        )


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """A video, opened by PyAV; what PyAV has against it, then or in the block, becomes a BadInputError.

    Raises:
        BadInputError: the file can not be read as a video, or has no pictures.
        MissingExtraError: PyAV is not installed.
    """
    try:
        import av
    except ImportError as error:
        raise MissingExtraError("reading and writing videos", "local") from error
    try:
        with av.open(path, metadata_errors="replace") as video:
            if not any(stream.codec_context for stream in video.streams.video[:1]):
                raise BadInputError(f"{path.name} has no pictures that can be decoded; a video is needed")
            hold_to_head(video)
            yield video
    except (av.FFmpegError, OSError) as error:
        raise BadInputError(f"{path.name} can not be read as a video: {error}") from error


def hold_to_head(video: Any) -> None:
    """Let no picture of an opened video be decoded that is much larger than the video says at its head.

    The size at the head is what was checked (media.limits); every picture of a file can have its own.
    """
    for stream in video.streams.video:
        if codec := stream.codec_context:
            # Decoders count the whole blocks that a picture is made of.
            most = max((stream.width + 128) * (stream.height + 128), _GROWN)
            codec.options = {**codec.options, "max_pixels": str(most)}


def probe_video(path: Path) -> VideoFacts:
    """What a video is like.

    Raises:
        BadInputError: the file can not be read as a video, or has no pictures.
        MissingExtraError: PyAV is not installed.
    """
    with opened(path) as video:
        stream = video.streams.video[0]
        fps = float(stream.average_rate or stream.guessed_rate or 0)
        duration = _duration(video, stream)
        return VideoFacts(stream.width, stream.height, fps, duration, bool(video.streams.audio))


def spread_frames(path: Path, count: int) -> list[tuple[float, Image]]:
    """At most `count` pictures, evenly spread over a video, each with its time in seconds.

    The video is read twice, and never held as a whole: first its packets are counted, then it is decoded.

    Raises:
        BadInputError: the file can not be read as a video, has no pictures, or ones too large to be held.
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
                if held > MAX_HELD:
                    raise BadInputError(
                        f"{len(wanted)} pictures of {path.name} have more than {MAX_HELD:,} pixels together; "
                        "take fewer, or make the video smaller"
                    )
                found.append((float(frame.time or 0.0), _upright(frame)))
            if len(found) == len(wanted):
                break
    if not found:
        raise BadInputError(f"{path.name} has no pictures that can be decoded")
    return found


def write_video(path: Path, images: Iterable[Image], fps: float, tags: Mapping[str, str]) -> None:
    """Write images of one size as MP4 (H.264, yuv420p).

    H.264 in this form needs even sides: an odd one loses its last pixel.

    Args:
        path: where to.
        images: at least one.
        fps: frames a second.
        tags: metadata of the container, such as its title and a comment.

    Raises:
        MissingExtraError: PyAV is not installed.
        OSError: the file can not be written.
    """
    try:
        import av
    except ImportError as error:
        raise MissingExtraError("reading and writing videos", "local") from error
    with av.open(path, "w", options={"movflags": "+faststart"}) as made:
        made.metadata.update(tags)
        stream = None
        for image in images:
            size = even(*image.size)
            if stream is None:
                stream = h264(made, size, Fraction(fps).limit_denominator(1001))
            picture = image.convert("RGB").crop((0, 0, *size))
            made.mux(stream.encode(av.VideoFrame.from_image(picture)))
        if stream is not None:
            made.mux(stream.encode(None))


def h264(made: Any, size: tuple[int, int], rate: Fraction) -> Any:
    """A new stream of H.264 in a container that is being written; `size` in pixels, even."""
    stream = made.add_stream("libx264", rate=rate)
    stream.width, stream.height = size
    stream.pix_fmt = "yuv420p"
    stream.options = {"crf": "20", "preset": "veryfast"}
    return stream


def even(width: int, height: int) -> tuple[int, int]:
    """The size with even sides that is nearest below, and at least 2 × 2."""
    return max(2, width - width % 2), max(2, height - height % 2)


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


def length_of(container: Any) -> float:
    """Seconds of a container that PyAV has opened; all of its packets are read.

    It is the most that they tell: the end of the last one, how long those of a stream last together, and how
    long so many pictures last at least. Each can be made up, and all packets must be decoded all the same.
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
            pictures[stream.index] += 1 / max(stream.average_rate or 0, _FASTEST)
    return max(longest, *together.values(), *pictures.values(), 0.0)


def _duration(video: Any, stream: Any) -> float:
    """Seconds: as the file says, else up to the end of its last packet."""
    if video.duration:
        return float(video.duration) / 1_000_000
    if stream.duration:
        return float(stream.duration * stream.time_base)
    ends = (packet.pts + (packet.duration or 0) for packet in video.demux(stream) if packet.pts is not None)
    return float(max(ends, default=0) * stream.time_base)


def _upright(frame: Any) -> Image:
    """The frame as an image, turned as the file says: phones film sideways and note it."""
    image: Image = frame.to_image()
    turn = getattr(frame, "rotation", 0)
    return image.rotate(turn, expand=True) if turn else image
