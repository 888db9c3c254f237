"""Recordings and videos: their properties, samples and frames, and new and converted files, by PyAV.

    samples, notes = read_audio(Path("clip.wav"), 16_000)    # float32, mono, in [-1, 1]
    frames, notes = spread_frames(Path("clip.mp4"), 8)       # [(0.125, image), …]
    write_video(Path("new.mp4"), images, 8.0)

Videos are written as MP4 with H.264 and AAC, which browsers and phones play. Readers of sound take that of a
video, too. What cannot be read as audio or a video, or has no samples or frames, is a `BadInputError`; a
`MissingExtraError` says that no installed library reads it.
"""

from __future__ import annotations

import struct
import wave
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from io import SEEK_END
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple

from jarvis_agent.core.errors import BadInputError, MissingExtraError
from jarvis_agent.core.notes import Note

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

Kind = Literal["video", "audio"]

MAX_FRAME_PIXELS = 700_000_000
"""Maximum number of pixels over all sampled frames; they take 2 GB."""

MAX_SAMPLES = 500_000_000
"""Maximum number of samples over all channels; decoded, they take 2 GB."""

_MIN_FRAME_LIMIT = 4096 * 2304  # pixels that every frame may have: the resolution of recorded calls grows
_MAX_FPS = 240  # highest frame rate assumed; the number of frames gives the minimum duration
_MAX_ASPECT = 4  # largest ratio of a pixel's sides; another is an error of the file
_FASTSTART = {"movflags": "+faststart"}  # the header is written first, so that players need not wait
_PLAYLISTS = {"concat", "dash", "hls", "image2", "imf", "rtp", "rtsp", "sap", "sdp", "whip"}
_UNREAD = _PLAYLISTS | {"cdg", "ico", "mjpeg", "mjpeg_2000", "tty"}
"""Formats of FFmpeg that open other files or addresses, or that it takes texts, pictures and data for."""

_KEPT_ENERGY = 0.55  # of the strongest channel, by a mean of channels; that of unrelated ones has half
_SILENT = 1e-9  # energy of recordings that hold the noise of their format alone
_UNRELATED = 0.3  # correlation of channels below which each is a signal of its own
_LOUDEST = 4.0  # largest sample of a recording that is only too loud; in larger ones, full scale is not 1
_EXACT = ("aiff", "au", "flac", "matroska,webm", "tta", "wv")  # containers that state the duration
_OGG_PAGE = 65_307  # bytes of the largest
_STRONGEST = "the strongest of {count} channels was used"


@dataclass(frozen=True, slots=True)
class VideoFacts:
    """Width and height in pixels, frames per second, duration in seconds (to 1 ms), and number of frames."""

    width: int
    height: int
    fps: float
    duration: float
    frames: int


class Packets(NamedTuple):
    """Seconds of a recording, frames of its video, most from key to key, and kinds that are cut off."""

    seconds: float
    frames: int
    distance: int
    cut: frozenset[str]


@dataclass(frozen=True, slots=True)
class AudioFacts:
    """Duration in seconds (to 1 ms), samples per second (Hz), and number of channels."""

    duration: float
    sampling_rate: int
    channels: int


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
    with av.open(file, "r", options={"format_whitelist": formats}, metadata_errors="replace") as container:
        yield container


@contextmanager
def opened(path: Path, kind: Kind = "video") -> Iterator[Any]:
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
    # PyAV raises a ValueError if the number of channels changes within a stream, and an IndexError if a
    # stream begins later than the others.
    except (av.FFmpegError, OSError, ValueError, IndexError) as error:
        raise BadInputError(f"{path.name} cannot be read as {form}", detail=error) from error


def decoded(container: Any, kind: Kind, notes: list[str] | None = None) -> Iterator[Any]:
    """The frames of the first stream of a kind; a note says that some are damaged. Not all may be."""
    damage, count = None, 0
    packets = container.demux(getattr(container.streams, kind)[0])
    while True:
        try:
            if (packet := next(packets)).has_sidedata("encryption_info"):  # would be decoded to anything
                raise BadInputError(f"{Path(container.name).name} is encrypted; give a copy without it")
            frames = packet.decode()
        except StopIteration:
            break
        except (_load_av().FFmpegError, IndexError) as error:
            damage, frames = error, []
        if notes is not None and (damage or any(frame.is_corrupt for frame in frames)):
            damaged = Note("parts of the {kind} are damaged or missing", kind=kind)
            notes += [] if damaged in notes else [damaged]
        count += len(frames)
        yield from frames
    if not count and (damage or kind == "video"):
        raise damage or BadInputError(f"{Path(container.name).name} has no frames that can be decoded")


def probe_video(path: Path) -> VideoFacts:
    """Read the properties of a video."""
    with opened(path) as video:
        stream = video.streams.video[0]
        first = _upright(next(decoded(video, "video")), stream)
        rate = float(stream.average_rate or stream.guessed_rate or 0)
    with opened(path) as video:
        packets = measure_packets(video)
    fps = rate if 0 < rate <= _MAX_FPS or not packets.seconds else packets.frames / packets.seconds
    return VideoFacts(first.width, first.height, round(fps, 3), round(packets.seconds, 3), packets.frames)


def spread_frames(path: Path, count: int) -> tuple[list[tuple[float, Image]], list[str]]:
    """At most `count` frames, upright, evenly spread over a video, each with its seconds; and notes."""
    with opened(path) as video:
        packets = measure_packets(video)
        notes = _note_end(video, "video", packets.seconds, packets)
    frames, total = list[tuple[float, "Image"]](), max(packets.frames, 1)
    if packets.distance * count < total:
        frames = _seek_frames(path, count, packets.seconds, notes)
    while len(frames) < min(count, total):  # again if fewer are decoded than a damaged file has packets
        frames, total = _frames_at(path, count, total, notes)
    return frames, notes


def _seek_frames(path: Path, count: int, seconds: float, notes: list[str]) -> list[tuple[float, Image]]:
    """`count` frames of a video, decoded from key frames on; none if one is not found, or found twice."""
    frames, damage = list[tuple[float, "Image"]](), list[str]()
    with opened(path) as video:
        stream = video.streams.video[0]
        for part in range(count):
            place = (stream.start_time or 0) + int((part + 0.5) / count * seconds / stream.time_base)
            try:
                video.seek(place, stream=stream)
                frame = next(frame for frame in decoded(video, "video", damage) if frame.pts >= place)
            except (_load_av().FFmpegError, BadInputError, StopIteration, TypeError):  # no times, no index
                return []
            if frames and float(frame.time) <= frames[-1][0]:
                return []
            _add_frame(frames, _upright(frame, stream), path)
    notes += damage
    return frames


def _frames_at(path: Path, count: int, total: int, notes: list[str]) -> tuple[list[tuple[float, Image]], int]:
    """At most `count` of `total` frames, and how many were decoded for them."""
    parts = min(count, total)
    wanted = {(2 * part + 1) * total // (2 * parts) for part in range(parts)}
    frames, seen = list[tuple[float, "Image"]](), 0
    with opened(path) as video:
        for frame in decoded(video, "video", notes):
            if seen in wanted:
                _add_frame(frames, _upright(frame, video.streams.video[0]), path)
            seen += 1
            if len(frames) == len(wanted):
                break
    return frames, seen


def _add_frame(frames: list[tuple[float, Image]], frame: Any, path: Path) -> None:
    pixels = frame.width * frame.height + sum(image.width * image.height for _, image in frames)
    if pixels > MAX_FRAME_PIXELS:
        most = f"more than {MAX_FRAME_PIXELS:,} pixels together; take fewer, or make the video smaller"
        raise BadInputError(f"{len(frames) + 1} frames of {path.name} have {most}")
    frames.append((float(frame.time or 0.0), frame.to_image()))


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
            frames = (_upright(frame, pictures) for frame in decoded(file, "video"))
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


def _upright(frame: Any, stream: Any) -> Any:
    """A frame of a stream, turned and mirrored as its display matrix says, and with square pixels."""
    matrix = None
    with suppress(ValueError):  # PyAV names not all that a frame may have, such as the displays of 3D films
        matrix = frame.side_data.get("DISPLAYMATRIX")
    aspect = stream.sample_aspect_ratio or 1
    if aspect != 1 and 1 / _MAX_ASPECT <= aspect <= _MAX_ASPECT:
        frame = frame.reformat(width=round(frame.width * aspect))
    if matrix is None:
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
    if notes is not None:
        with opened(source, "audio") as file:
            packets = measure_packets(file)
            notes += _note_end(file, "audio", packets.seconds, packets)


def _encoded(frames: Iterable[Any], stream: Any) -> Iterator[Any]:
    for frame in chain(frames, [None]):
        if frame is not None and stream.type == "audio":
            frame.pts = None  # sound goes on where a part is missing
        yield from stream.encode(frame)


def measure_packets(container: Any) -> Packets:
    """What the packets of the first video and the first sound of an opened container tell.

    Timestamps can be forged, so a stream lasts at least as long as its packets together, and a frame of a
    video at least 1 / `_MAX_FPS` s.
    """
    streams, is_mp3 = container.streams, container.format.name == "mp3"
    starts, lasts, largest = dict[str, float](), defaultdict[str, float](float), Counter[tuple[str, bytes]]()
    end, frames, since_key, distance, cut = 0.0, 0, 0, 0, set[str]()
    with suppress(_load_av().FFmpegError, IndexError):  # the file breaks off
        for packet in container.demux(*streams.video[:1], *streams.audio[:1]):
            kind = packet.stream.type
            if not packet.size or packet.time_base is None:
                continue
            # The third byte of an MP3 frame has what its size depends on.
            form = kind, bytes(packet)[2:3] if is_mp3 else b""
            is_short = is_mp3 and packet.size < largest[form]
            (cut.add if packet.is_corrupt or is_short else cut.discard)(kind)
            largest[form] = max(packet.size, largest[form])
            # FFmpeg states some negative durations as numbers of 32 bits without a sign.
            units = packet.duration or 0
            seconds = float(units * packet.time_base) if 0 < units < 2**31 else 0.0
            if packet.pts is not None:
                place = float(packet.pts * packet.time_base)
                end = max(end, place + seconds - max(starts.setdefault(kind, place), 0.0))
            if kind == "video":
                frames += 1
                since_key = 1 if packet.is_keyframe else since_key + 1
                distance = max(distance, since_key)
                seconds = max(seconds, 1 / max(packet.stream.average_rate or 0, _MAX_FPS))
            lasts[kind] += seconds
    return Packets(max(end, *lasts.values(), 0.0), frames, distance, frozenset(cut))


def read_audio(path: Path, rate: int) -> tuple[NDArray[np.float32], list[str]]:
    """Read a recording as mono float32 in [-1, 1], shape (samples,), resampled to `rate` Hz; and notes.

    Of channels that differ, only the strongest is read.
    """
    voices, notes = read_voices(path, rate)
    if len(voices) > 1:
        notes.append(Note(_STRONGEST, count=2))
    return voices[0], notes


def read_voices(path: Path, rate: int) -> tuple[list[NDArray[np.float32]], list[str]]:
    """As `read_audio`; but two callers with a channel each are two signals, the stronger first."""
    try:
        import numpy as np
        import soxr
    except ImportError as error:
        raise MissingExtraError("reading audio", "starter") from error
    samples, native, notes = decode_audio(path)
    voices = _voices(samples, notes)
    if native != rate:
        voices = [soxr.resample(voice, native, rate) for voice in voices]
    return [np.ascontiguousarray(voice, dtype=np.float32) for voice in voices], notes


def _voices(samples: NDArray[np.float32], notes: list[str]) -> list[NDArray[np.float32]]:
    """The mean of the channels, or the strongest where the mean would cancel or drown it.

    Of two channels without any relation, as in recorded calls, both.
    """
    offsets = samples.mean(axis=0, dtype=float)  # what is constant is not heard; float32 would not do
    covariance = samples.T @ samples / len(samples) - offsets[:, None] * offsets
    energies = covariance.diagonal().clip(0)
    if energies.max() < _SILENT or covariance.mean() >= _KEPT_ENERGY * energies.max():
        return [samples.mean(axis=1)]
    first, second = energies.argsort()[::-1][:2]
    is_heard = energies[second] > energies[first] / 20
    is_related = abs(covariance[first, second]) >= _UNRELATED * energies.prod() ** 0.5
    if is_heard and samples.shape[1] == 2 and not is_related:
        return [samples[:, first], samples[:, second]]
    if is_heard:
        notes.append(Note(_STRONGEST, count=samples.shape[1]))
    return [samples[:, first]]


def probe_audio(path: Path) -> AudioFacts:
    """Read the properties of a recording without decoding it."""
    with opened(path, "audio") as file:
        stream = file.streams.audio[0]
        return AudioFacts(round(measure_packets(file).seconds, 3), stream.rate, stream.layout.nb_channels)


def decode_audio(path: Path) -> tuple[NDArray[np.float32], int, list[str]]:
    """Samples in [-1, 1], float32, shape (samples, channels); their rate in Hz; and notes."""
    import numpy as np

    notes = list[str]()
    samples, rate = _decode(path, notes)
    is_number = np.isfinite(samples)
    if not is_number.any():
        why = "its samples are not numbers" if len(samples) else "0 samples"
        raise BadInputError(f"{path.name} holds no sound: {why}")
    if not is_number.all():
        lost = int((~is_number).sum())
        notes.append(Note("{count:,} samples are not numbers, and were taken as silence", count=lost))
        samples = np.where(is_number, samples, np.float32(0))
    if (peak := np.abs(samples).max()) > _LOUDEST:
        notes.append(Note("the samples reach {peak:.3g} instead of 1, and were scaled", peak=float(peak)))
        samples = samples / peak
    return samples, rate, notes


def _decode(path: Path, notes: list[str]) -> tuple[NDArray[np.float32], int]:
    import numpy as np

    av = _load_av()
    with opened(path, "audio") as file:
        stream = file.streams.audio[0]
        count = stream.layout.nb_channels
        # `to_ndarray` reads beyond the planes of more than two planar channels, so that samples are packed.
        resampler = av.AudioResampler(format="flt", layout=stream.layout, rate=stream.rate)
        parts, size = [np.zeros((0, count), np.float32)], 0
        for frame in chain(decoded(file, "audio", notes), [None]):
            parts += [part.to_ndarray().reshape(-1, count) for part in resampler.resample(frame)]
            size += parts[-1].size
            if size > MAX_SAMPLES:
                most = f"claims {size:,} samples, more than {MAX_SAMPLES:,}"
                raise BadInputError(f"{path.name} {most}; give a part of it")
        samples, rate = np.concatenate(parts), stream.rate
    with opened(path, "audio") as file:
        notes += _note_end(file, "audio", len(samples) / (rate or 1), measure_packets(file))
    return samples, rate


def _note_end(file: Any, kind: Kind, seconds: float, packets: Packets) -> list[str]:
    """A note if the `seconds` that were read of an opened file end too early.

    That is before the duration that the container states, within a packet, or before an Ogg file's last page.
    """
    stated = (file.duration or 0) / 1e6
    # Elsewhere the duration may be estimated, or that of the pictures.
    is_exact = file.format.name in _EXACT and not file.streams.video
    shortest = seconds + 0.15 if is_exact else seconds * 1.05 + 0.5
    if shortest < stated < seconds * 20:
        breaks = "the recording breaks off after {seconds:.1f} of {stated:.1f} s"
        return [Note(breaks, seconds=seconds, stated=stated)]
    is_cut, path = kind in packets.cut, Path(file.name)
    with path.open("rb") as content:
        if file.format.name == "ogg":
            content.seek(-min(_OGG_PAGE, path.stat().st_size), SEEK_END)
            is_cut = not _ends_in_last_page(content.read())
        elif file.format.name == "wav":
            # What is written to a pipe states no size, or about the largest.
            is_cut &= 0 < int.from_bytes(content.read(8)[4:], "little") < 2**31 - 2**16
    return [Note("the recording breaks off after {seconds:.1f} s", seconds=seconds)] if is_cut else []


def _ends_in_last_page(ogg: bytes) -> bool:
    page = ogg[ogg.rfind(b"OggS") :]
    size = 27 + page[26] + sum(page[27 : 27 + page[26]]) if len(page) > 27 else _OGG_PAGE
    return len(page) >= size and bool(page[5] & 4)


def write_audio(path: Path, samples: Any, rate: int) -> float:
    """Write mono samples in [-1, 1], shape (n,) or (1, n), as a 16-bit WAV file; return its seconds."""
    pcm = to_pcm(samples)
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        file.writeframes(pcm)
    return len(pcm) / 2 / rate


def to_pcm(samples: Any) -> bytes:
    """Mono samples in [-1, 1] as numbers of 16 bits, little endian."""
    import numpy as np

    mono = np.asarray(samples, dtype=np.float32).reshape(-1)
    return (np.nan_to_num(mono).clip(-1, 1) * 32767).astype("<i2").tobytes()
