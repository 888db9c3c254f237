"""Audio files, decoded to samples and written as WAV.

samples = read_audio(Path("clip.wav"), 16_000)  # float32, mono, in [-1, 1]
probe_audio(Path("clip.wav")).duration          # 3.5
"""

from __future__ import annotations

import wave
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis_agent.core.errors import BadInputError, MissingExtraError
from jarvis_agent.media.video import duration_of, opened

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_SAMPLES = 500_000_000
"""Maximum number of samples over all channels; decoded, they take 2 GB."""


def read_audio(path: Path, rate: int) -> NDArray[np.float32]:
    """Read a file as mono float32 in [-1, 1], shape (samples,), resampled to `rate` Hz.

    Raises:
        BadInputError: the file cannot be read as audio, or holds no samples.
        MissingExtraError: soundfile and soxr are not installed.
    """
    try:
        import numpy as np
        import soxr
    except ImportError as error:
        raise MissingExtraError("reading audio", "starter") from error
    samples, native = decode_audio(path)
    mono = samples.mean(axis=1)
    resampled = mono if native == rate else soxr.resample(mono, native, rate)
    return np.ascontiguousarray(resampled, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class AudioFacts:
    """Duration in seconds (to 1 ms), samples per second (Hz), and number of channels."""

    duration: float
    sampling_rate: int
    channels: int


def probe_audio(path: Path) -> AudioFacts:
    """Read the properties of a recording, or of the sound of a video, without decoding it.

    Raises:
        BadInputError: the file cannot be read as audio.
        MissingExtraError: no installed library reads its format.
    """
    with suppress(ImportError, OSError, RuntimeError):  # soundfile raises RuntimeErrors
        import soundfile

        known = soundfile.info(path)
        return AudioFacts(round(float(known.duration), 3), known.samplerate, known.channels)
    with opened(path, "audio") as file:
        stream = file.streams.audio[0]
        return AudioFacts(round(duration_of(file), 3), stream.rate, stream.layout.nb_channels)


def decode_audio(path: Path) -> tuple[NDArray[np.float32], int]:
    """Decode a file to float32 in [-1, 1], shape (samples, channels), and its rate in Hz.

    soundfile reads WAV, FLAC, OGG and MP3. PyAV, if installed, reads other formats (AAC, M4A, WebM, videos).

    Raises:
        BadInputError: the file cannot be read as audio, or holds no samples.
        MissingExtraError: soundfile is not installed.
    """
    try:
        import soundfile
    except ImportError as error:
        raise MissingExtraError("reading audio", "starter") from error
    try:
        known = soundfile.info(path)
        _check_samples(path, known.frames * known.channels)
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (soundfile.LibsndfileError, OSError) as error:
        if find_spec("av") is None:
            missing = MissingExtraError("a format such as AAC or M4A", "local")
            raise BadInputError(f"{path} cannot be read as audio: {error} ({missing})") from error
        samples, rate = _decode_by_av(path)
    if not len(samples):
        raise BadInputError(f"{path} holds no sound (0 samples)")
    return samples, int(rate)


def _check_samples(path: Path, count: int) -> None:
    if count > MAX_SAMPLES:
        raise BadInputError(f"{path} claims {count:,} samples, more than {MAX_SAMPLES:,}; give a part of it")


def _decode_by_av(path: Path) -> tuple[NDArray[np.float32], int]:
    import av
    import numpy as np

    with opened(path, "audio") as file:
        stream = file.streams.audio[0]
        resampler = av.AudioResampler(format="fltp", layout=stream.layout, rate=stream.rate)
        parts, size = [np.zeros((stream.layout.nb_channels, 0))], 0
        for frame in chain(file.decode(stream), [None]):
            parts += [part.to_ndarray() for part in resampler.resample(frame)]
            size += parts[-1].size
            _check_samples(path, size)
        return np.concatenate(parts, axis=1).T.astype(np.float32), stream.rate


def write_audio(path: Path, samples: Any, rate: int) -> float:
    """Write mono samples in [-1, 1], shape (n,) or (1, n), as a 16-bit WAV file; return its seconds."""
    import numpy as np

    mono = np.asarray(samples, dtype=np.float32).reshape(-1)
    pcm = (np.nan_to_num(mono).clip(-1, 1) * 32767).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(pcm.tobytes())
    return len(mono) / rate
