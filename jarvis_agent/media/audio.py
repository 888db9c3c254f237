"""Audio files, decoded to samples and written as WAV.

samples = read_audio(Path("clip.wav"), 16_000)  # float32, mono, in [-1, 1]
"""

from __future__ import annotations

import wave
from collections.abc import Mapping
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis_agent.core.errors import BadInputError, MissingExtraError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_SAMPLES = 500_000_000
"""Most samples of all channels together that a sound may have: they take 2 GB when decoded."""


def read_audio(path: Path, rate: int) -> NDArray[np.float32]:
    """The sound of a file: mono float32 in [-1, 1], shape (samples,), resampled to `rate` Hz.

    Raises:
        BadInputError: the file can not be read as audio, or holds no sound.
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


def decode_audio(path: Path) -> tuple[NDArray[np.float32], int]:
    """The sound of a file as it is: float32 in [-1, 1], shape (samples, channels), and its rate in Hz.

    soundfile reads WAV, FLAC, OGG and MP3; what it does not know (AAC, M4A, WebM, the sound of a video) is
    read by PyAV where that is installed.

    Raises:
        BadInputError: the file can not be read as audio, or holds no sound.
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
            raise BadInputError(f"{path} can not be read as audio: {error} ({missing})") from error
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

    try:
        with av.open(path, metadata_errors="replace") as file:
            if not any(stream.codec_context for stream in file.streams.audio[:1]):
                raise BadInputError(f"{path} holds no sound that can be decoded")
            stream = file.streams.audio[0]
            resampler = av.AudioResampler(format="fltp", layout=stream.layout, rate=stream.rate)
            parts, size = [], 0
            for frame in chain(file.decode(stream), [None]):
                parts += [part.to_ndarray() for part in resampler.resample(frame)]
                size += parts[-1].size if parts else 0
                _check_samples(path, size)
        if not parts:
            raise BadInputError(f"{path} holds no sound (0 samples)")
        return np.concatenate(parts, axis=1).T.astype(np.float32), stream.rate
    except (av.FFmpegError, OSError, ValueError) as error:
        # A ValueError is for channels that come or go in the midst of the sound.
        raise BadInputError(f"{path} can not be read as audio: {error}") from error


def write_audio(path: Path, samples: Any, rate: int, tags: Mapping[str, str] | None = None) -> float:
    """Write mono samples in [-1, 1], shape (n,) or (1, n), as a 16-bit WAV file; returns seconds.

    `tags` are texts for the file's metadata: "title", "artist", "comment".
    """
    import numpy as np

    mono = np.asarray(samples, dtype=np.float32).reshape(-1)
    pcm = (np.nan_to_num(mono).clip(-1, 1) * 32767).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(pcm.tobytes())
    if tags:
        tag_wav(path, tags)
    return len(mono) / rate


_WAV_TAGS = {"title": b"INAM", "artist": b"IART", "comment": b"ICMT"}


def tag_wav(path: Path, tags: Mapping[str, str]) -> None:
    """Add texts to the metadata of a WAV file: "title", "artist", "comment".

    They go into a LIST chunk of type INFO at the file's end, which Python's own writer can not do.
    """
    chunks = b"".join(_chunk(_WAV_TAGS[name], value.encode() + b"\0") for name, value in tags.items())
    with path.open("r+b") as file:
        size = file.seek(0, 2) + file.write(_chunk(b"LIST", b"INFO" + chunks))
        file.seek(4)
        file.write((size - 8).to_bytes(4, "little"))


def _chunk(name: bytes, content: bytes) -> bytes:
    """A chunk of a RIFF file: name, length, content, and a byte more where the length is odd."""
    return name + len(content).to_bytes(4, "little") + content + b"\0" * (len(content) % 2)
