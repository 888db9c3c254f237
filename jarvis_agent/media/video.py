"""Videos, read and written with PyAV: their properties, sampled frames, new and converted files.

    probe_video(Path("clip.mp4")).duration                   # 2.0
    spread_frames(Path("clip.mp4"), 8)                       # [(0.125, image), …]
    write_video(Path("new.mp4"), images, 8.0)
    to_mp4(Path("clip.webm"), Path("clip.mp4"))

Videos are written as MP4 with H.264 and AAC, which browsers and phones play. What cannot be read as a video,
or has no frames, is a `BadInputError`; without PyAV, everything here raises a `MissingExtraError`.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from jarvis_agent.core.errors import BadInputError, MissingExtraError
from jarvis_agent.core.notes import Note

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_FRAME_PIXELS = 700_000_000
"""Maximum number of pixels over all sampled frames; they take 2 GB."""

_MIN_FRAME_LIMIT = 4096 * 2304  # pixels that every frame may have: the resolution of recorded calls grows
_MAX_FPS = 240  # highest frame rate assumed; the number of frames gives the minimum duration

_PLAYLISTS = {"concat", "dash", "hls", "image2", "imf", "rtp", "rtsp", "sap", "sdp", "whip"}
_UNREAD = _PLAYLISTS | {"cdg", "ico", "mjpeg", "mjpeg_2000", "tty"}
"""Formats of FFmpeg that open other files or addresses, or that it takes texts, pictures and data for."""

_FASTSTART = {"movflags": "+faststart"}


@dataclass(frozen=True, slots=True)
class VideoFacts:
    """Width and height in pixels, frames per second, duration in seconds (to 1 ms), and number of frames."""

    width: int
    height: int
    fps: float
    duration: float
    frames: int


def _load_av() -> Any:
    try:
        import av
    except ImportError as error:
        raise MissingExtraError("this format of video or audio", "local") from error
    return av


@contextmanager
def open_container(file: Path | BinaryIO) -> Iterator[Any]:
    """Open a recording; PyAV's own errors pass. Formats that name other files or addresses are refused."""
    av = _load_av()
    formats = ",".join(sorted(av.formats_available - _UNREAD))
    with av.open(file, options={"format_whitelist": formats}, metadata_errors="replace") as container:
        yield container


@contextmanager
def opened(path: Path, kind: Literal["video", "audio"] = "video") -> Iterator[Any]:
    """Open a video, or any file with sound, with PyAV; its errors in the block become a `BadInputError`."""
    av = _load_av()
    form, content = ("a video", "frames") if kind == "video" else ("audio", "sound")
    try:
        with open_container(path) as file:
            if not any(stream.codec_context for stream in getattr(file.streams, kind)[:1]):
                raise BadInputError(f"{path.name} has no {content} that can be decoded")
            for stream in file.streams.video:
                # Each frame may have another size than the header, which is all that media.limits checks.
                if codec := stream.codec_context:
                    most = (stream.width + 128) * (stream.height + 128)  # decoders count whole blocks
                    codec.options = {**codec.options, "max_pixels": str(max(most, _MIN_FRAME_LIMIT))}
            yield file
    # PyAV raises a ValueError if the number of channels changes within a stream.
    except (av.FFmpegError, OSError, ValueError) as error:
        raise BadInputError(f"{path.name} cannot be read as {form}", detail=error) from error


def decoded(container: Any, kind: Literal["video", "audio"], notes: list[str] | None = None) -> Iterator[Any]:
    """The frames of the first stream of a kind. Damaged parts are left out, with a note, unless all are."""
    damage, count = None, 0
    packets = container.demux(getattr(container.streams, kind)[0])
    while True:
        try:
            for frame in next(packets).decode():
                count += 1
                yield frame
        except StopIteration:
            break
        except _load_av().FFmpegError as error:
            damage = error
    if not count and (damage or kind == "video"):
        raise damage or BadInputError(f"{Path(container.name).name} has no frames that can be decoded")
    if damage is not None and notes is not None:
        notes.append(Note("damaged parts of the {kind} were left out", kind=kind))


def probe_video(path: Path) -> VideoFacts:
    """Read the properties of a video."""
    with opened(path) as video:
        stream = video.streams.video[0]
        first = _upright(next(decoded(video, "video")))
        rate = float(stream.average_rate or stream.guessed_rate or 0)
    with opened(path) as video:
        duration, frames = measure_packets(video)
        fps = rate if 0 < rate <= _MAX_FPS or not duration else frames / duration
        return VideoFacts(first.width, first.height, round(fps, 3), round(duration, 3), frames)


def spread_frames(path: Path, count: int) -> list[tuple[float, Image]]:
    """At most `count` frames, upright, evenly spread over a video, each with its time in seconds."""
    with opened(path) as video:
        total = measure_packets(video)[1]
    frames, seen = _frames_at(path, count, total)
    if len(frames) < min(count, seen):  # fewer are decoded than a damaged file has packets
        frames, seen = _frames_at(path, count, seen)
    return frames


def _frames_at(path: Path, count: int, total: int) -> tuple[list[tuple[float, Image]], int]:
    """At most `count` of `total` frames, and how many were decoded for them."""
    parts = min(count, total)
    wanted = {(2 * part + 1) * total // (2 * parts) for part in range(parts)}
    frames, pixels, seen = list[tuple[float, "Image"]](), 0, 0
    with opened(path) as video:
        for frame in decoded(video, "video"):
            if seen in wanted:
                pixels += frame.width * frame.height
                if pixels > MAX_FRAME_PIXELS:
                    raise BadInputError(
                        f"{len(wanted)} frames of {path.name} have more than {MAX_FRAME_PIXELS:,} pixels "
                        "together; take fewer, or make the video smaller"
                    )
                frames.append((float(frame.time or 0.0), _upright(frame).to_image()))
            seen += 1
            if len(frames) == len(wanted):
                break
    return frames, seen


def write_video(path: Path, images: Iterable[Image], fps: float) -> None:
    """Write one or more images of one size as MP4; an odd side is cropped by one pixel. Raises OSError."""
    av = _load_av()
    rest = iter(images)
    first = next(rest)
    with av.open(path, "w", options=_FASTSTART) as output:
        stream = _add_h264(output, *first.size, Fraction(fps).limit_denominator(1001))
        box = (0, 0, stream.width, stream.height)
        pictures = (image.convert("RGB").crop(box) for image in chain([first], rest))
        output.mux(_encoded(map(av.VideoFrame.from_image, pictures), stream))


def _add_h264(output: Any, width: int, height: int, rate: Fraction) -> Any:
    """Add an H.264 stream to an output container. The format needs even sides."""
    stream = output.add_stream("libx264", rate=rate)
    stream.width, stream.height = (max(2, side - side % 2) for side in (width, height))
    stream.pix_fmt = "yuv420p"
    stream.options = {"crf": "20", "preset": "veryfast"}
    return stream


def to_mp4(source: Path, target: Path, sound: Path | None = None) -> None:
    """Write a video as MP4, with its own `sound`, if any, or that of another file.

    Pictures that `is_mp4` are copied; others, and the sound, are encoded. The longer one sets the length.
    """
    # Each stream is read to its end, so both of one file need it opened twice.
    others = opened(sound, "audio") if sound else opened(source)
    with opened(source) as file, others as heard, _load_av().open(target, "w", options=_FASTSTART) as output:
        # The header lists all streams, so each is added before the first is written.
        pictures = file.streams.video[0]
        if is_mp4(file):
            video = output.add_stream_from_template(pictures)
            packets: Iterator[Any] = (packet for packet in file.demux(pictures) if packet.dts is not None)
        else:
            rate = pictures.average_rate or pictures.guessed_rate or Fraction(25)
            frames = map(_upright, decoded(file, "video"))
            first = next(frames)
            video = _add_h264(output, first.width, first.height, rate)
            if first.pts is not None:  # else frames follow at the rate
                video.codec_context.time_base = pictures.time_base
            packets = _encoded(chain([first], frames), video)
        has_sound = any(stream.codec_context for stream in heard.streams.audio[:1])
        encoded = _sound(output, "aac", heard) if has_sound else ()
        for packet in packets:
            packet.stream = video
            output.mux(packet)
        output.mux(encoded)


def _upright(frame: Any) -> Any:
    """A frame whose pixels are turned and mirrored as its display matrix says."""
    if (matrix := frame.side_data.get("DISPLAYMATRIX")) is None:
        return frame
    from PIL.Image import Image, Transpose

    a, b, _, c, d, *_ = struct.unpack("=9i", bytes(matrix))
    turns = [Transpose.TRANSPOSE] if a == d == 0 != b else []
    turns += [Transpose.FLIP_LEFT_RIGHT] if (a or c) < 0 else []
    turns += [Transpose.FLIP_TOP_BOTTOM] if (d or b) < 0 else []
    if not turns:
        return frame
    upright = type(frame).from_image(reduce(Image.transpose, turns, frame.to_image()))
    upright.pts, upright.time_base = frame.pts, frame.time_base
    return upright


def is_mp4(video: Any) -> bool:
    """Whether an opened video is MP4 with H.264 in yuv420p, which every player shows."""
    pictures = video.streams.video[0].codec_context
    # Packets of other containers lack data that MP4 needs: Matroska stores no decoding times.
    is_container = "mp4" in video.format.name.split(",")
    return is_container and pictures.name == "h264" and pictures.pix_fmt == "yuv420p"


def _sound(output: Any, codec: str, file: Any, notes: list[str] | None = None) -> Iterator[Any]:
    """Add a stream to an output, and return its packets: the first audio stream of an opened file, encoded.

    It has the rate and channels of the source, but at most two channels if the codec compresses.
    """
    source, rates = file.streams.audio[0], _load_av().Codec(codec, "w").audio_rates
    rate = source.rate if rates is None or source.rate in rates else 48_000
    is_exact = codec in ("pcm_s16le", "flac")
    mixed = "mono" if source.layout.nb_channels == 1 else "stereo"
    stream = output.add_stream(codec, rate=rate, layout=source.layout.name if is_exact else mixed)
    return _encoded(decoded(file, "audio", notes), stream)


SOUND_CODECS = {
    "wav": "pcm_s16le", "mp3": "libmp3lame", "flac": "flac", "ogg": "libopus", "m4a": "aac", "aac": "aac"
}  # fmt: skip
"""By ending of the file's name."""


def write_sound(source: Path, target: Path, notes: list[str] | None = None) -> None:
    """Write the sound of a file, in the format of the target's ending; notes on damage are added."""
    suffix = target.suffix[1:]
    options = _FASTSTART if suffix == "m4a" else {}
    with opened(source, "audio") as file, _load_av().open(target, "w", options=options) as output:
        output.mux(_sound(output, SOUND_CODECS[suffix], file, notes))


def _encoded(frames: Iterable[Any], stream: Any) -> Iterator[Any]:
    for frame in chain(frames, [None]):
        if frame is not None and stream.type == "audio":
            frame.pts = None  # sound goes on where a part is missing
        yield from stream.encode(frame)


def measure_packets(container: Any) -> tuple[float, int]:
    """Seconds of an opened container and frames of its first video stream, counted in its packets.

    Timestamps can be forged, so a stream lasts at least as long as its packets together, and a frame of a
    video at least 1 / `_MAX_FPS` s.
    """
    starts, end = dict[int, float](), 0.0
    together, counts = defaultdict[int, float](float), defaultdict[int, int](int)
    with suppress(_load_av().FFmpegError):  # the file breaks off
        for packet in container.demux():
            stream = packet.stream
            if not packet.size or packet.time_base is None or stream.type not in ("audio", "video"):
                continue
            counts[stream.index] += 1
            # FFmpeg states some negative durations as numbers of 32 bits without a sign.
            units = packet.duration or 0
            seconds = float(units * packet.time_base) if 0 < units < 2**31 else 0.0
            if packet.pts is not None:
                place = float(packet.pts * packet.time_base)
                end = max(end, place + seconds - max(starts.setdefault(stream.index, place), 0.0))
            least = 1 / max(stream.average_rate or 0, _MAX_FPS) if stream.type == "video" else 0.0
            together[stream.index] += max(seconds, least)
    frames = counts[container.streams.video[0].index] if container.streams.video else 0
    return max(end, *together.values(), 0.0), frames
