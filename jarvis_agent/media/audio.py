"""Audio files, decoded to samples and written as WAV.

samples, notes = read_audio(Path("clip.wav"), 16_000)   # float32, mono, in [-1, 1]
probe_audio(Path("clip.wav")).duration          # 3.5

Readers take the sound of a video, too. A file that cannot be read as audio, or holds no samples, is a
`BadInputError`; a `MissingExtraError` says that no installed library reads it.
"""

from __future__ import annotations

import wave
from contextlib import suppress
from dataclasses import dataclass
from io import SEEK_END
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis_agent.core.errors import BadInputError, MissingExtraError
from jarvis_agent.core.notes import Note
from jarvis_agent.media.video import decoded, measure_packets, opened

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_SAMPLES = 500_000_000
"""Maximum number of samples over all channels; decoded, they take 2 GB."""

_KEPT_ENERGY = 0.55
"""Share of the strongest channel's energy that a mean of channels keeps; that of unrelated ones has half."""

_SILENT = 1e-9  # energy of recordings that hold the noise of their format alone
_UNRELATED = 0.3  # correlation of channels below which each is a signal of its own
_LOUDEST = 4.0  # largest sample of a recording that is only too loud; in larger ones, full scale is not 1
_OGG_PAGE = 65_307  # bytes of the largest
_STRONGEST = "the strongest of {count} channels was used"


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


@dataclass(frozen=True, slots=True)
class AudioFacts:
    """Duration in seconds (to 1 ms), samples per second (Hz), and number of channels."""

    duration: float
    sampling_rate: int
    channels: int


def probe_audio(path: Path) -> AudioFacts:
    """Read the properties of a recording without decoding it."""
    try:
        with opened(path, "audio") as file:
            stream = file.streams.audio[0]
            return AudioFacts(round(measure_packets(file)[0], 3), stream.rate, stream.layout.nb_channels)
    except (BadInputError, MissingExtraError):
        with suppress(ImportError, OSError, RuntimeError, TypeError):  # the errors of soundfile
            import soundfile

            info = soundfile.info(path)
            return AudioFacts(round(float(info.duration), 3), info.samplerate, info.channels)
        raise


def decode_audio(path: Path) -> tuple[NDArray[np.float32], int, list[str]]:
    """Decode a recording with PyAV, else with soundfile.

    Returns:
        Samples in [-1, 1], float32, shape (samples, channels); their rate in Hz; and notes.
    """
    import numpy as np

    samples, notes = None, list[str]()
    try:
        samples, rate = _decode_by_av(path, notes)
    except (BadInputError, MissingExtraError):
        with suppress(ImportError, OSError, RuntimeError, TypeError):  # the errors of soundfile
            import soundfile

            info = soundfile.info(path)
            _check_samples(path, info.frames * info.channels)
            samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
        if samples is None:
            raise
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


def _check_samples(path: Path, count: int) -> None:
    if count > MAX_SAMPLES:
        raise BadInputError(
            f"{path.name} claims {count:,} samples, more than {MAX_SAMPLES:,}; give a part of it"
        )


def _decode_by_av(path: Path, notes: list[str]) -> tuple[NDArray[np.float32], int]:
    import numpy as np

    with opened(path, "audio") as file:
        import av

        stream = file.streams.audio[0]
        count = stream.layout.nb_channels
        # `to_ndarray` reads beyond the planes of more than two planar channels, so that samples are packed.
        resampler = av.AudioResampler(format="flt", layout=stream.layout, rate=stream.rate)
        parts, size = [np.zeros((0, count), np.float32)], 0
        for frame in chain(decoded(file, "audio", notes), [None]):
            parts += [part.to_ndarray().reshape(-1, count) for part in resampler.resample(frame)]
            size += parts[-1].size
            _check_samples(path, size)
        samples = np.concatenate(parts)
        seconds, stated = len(samples) / (stream.rate or 1), (file.duration or 0) / 1e6
        # Elsewhere the duration may be estimated, or that of the pictures.
        is_exact = "matroska" in file.format.name and not file.streams.video
        shortest = seconds + 0.15 if is_exact else seconds * 1.05 + 0.5
        if shortest < stated < seconds * 20:
            breaks = "the recording breaks off after {seconds:.1f} of {stated:.1f} s"
            notes.append(Note(breaks, seconds=seconds, stated=stated))
        elif _is_cut(path):
            notes.append(Note("the recording breaks off after {seconds:.1f} s", seconds=seconds))
        return samples, stream.rate


def _is_cut(path: Path) -> bool:
    """Whether a recording ends within a packet, or an Ogg file before the page that is marked as its last."""
    sizes, is_cut = dict[bytes, int](), False
    with opened(path, "audio") as file:
        if (name := file.format.name) == "ogg":
            return _lacks_last_page(path)
        with path.open("rb") as header:
            # What is written to a pipe states no size, or about the largest.
            if name == "wav" and not 0 < int.from_bytes(header.read(8)[4:], "little") < 2**31 - 2**16:
                return False
        for packet in file.demux(file.streams.audio[0]):
            if packet.size:
                # The third byte of an MP3 frame has what its size depends on.
                form = bytes(packet)[2:3] if name == "mp3" else b""
                largest = sizes.get(form, 0)
                is_cut = packet.is_corrupt or (name == "mp3" and packet.size < largest)
                sizes[form] = max(packet.size, largest)
    return is_cut


def _lacks_last_page(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-min(_OGG_PAGE, path.stat().st_size), SEEK_END)
        tail = file.read()
    page = tail[tail.rfind(b"OggS") :]
    size = 27 + page[26] + sum(page[27 : 27 + page[26]]) if len(page) > 27 else _OGG_PAGE
    return len(page) < size or not page[5] & 4


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
