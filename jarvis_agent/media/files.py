"""Files of media: what they are, by their content, and how they are read and written.

kind, mime = sniff(Path("cat.jpg"))           # ("image", "image/jpeg")
samples = read_audio(Path("clip.wav"), 16_000)  # float32, mono, in [-1, 1]
"""

from __future__ import annotations

import mimetypes
import stat
import wave
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis_agent.core.display import IMAGE_ERRORS
from jarvis_agent.core.errors import BadInputError, InputError, MissingExtraError
from jarvis_agent.core.tasks.spec import Modality

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

_TEXT_KINDS: dict[str, tuple[Modality, str]] = {
    ".csv": ("table", "text/csv"),
    ".tsv": ("table", "text/tab-separated-values"),
    ".json": ("data", "application/json"),
    ".md": ("text", "text/markdown"),
    ".html": ("text", "text/html"),
    ".obj": ("3d", "model/obj"),
    ".stl": ("3d", "model/stl"),
    ".svg": ("file", "image/svg+xml"),
}
_BINARY_KINDS: dict[str, tuple[Modality, str]] = {".stl": ("3d", "model/stl")}
"""Kinds of files without a mark of their own, by their suffix."""

_MARKS: tuple[tuple[int, bytes, Modality, str], ...] = (
    (0, b"glTF", "3d", "model/gltf-binary"),
    (0, b"ply\n", "3d", "model/ply"),
    (0, b"ply\r", "3d", "model/ply"),
    (0, b"caff", "audio", "audio/x-caf"),
    (4, b"ftyp", "video", "video/mp4"),
)
"""Kinds of files that the package filetype does not tell: where their mark is, and the mark."""

MAX_SAMPLES = 500_000_000
"""Most samples of all channels together that a sound may have: they take 2 GB when decoded."""

_KIND_OF_MIME: dict[str, Modality] = {"image": "image", "audio": "audio", "video": "video"}


def sniff(path: Path) -> tuple[Modality, str]:
    """The kind and the media type of a file, from its first bytes; its name tells texts and 3D files apart.

    Raises:
        InputError: the file is missing, empty, not readable, or of a kind that nothing here takes.
    """
    try:
        _refuse_other_than_files(path)
        with path.open("rb") as file:
            head = file.read(8192)
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist; check its name and the working directory") from error
    except OSError as error:
        raise InputError(f"{path} can not be read: {error.strerror or error}") from error
    if not head:
        raise InputError(f"{path} is empty (0 bytes)")
    return sniff_bytes(head, path)


def _refuse_other_than_files(path: Path) -> None:
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise InputError(f"{path} is a directory; name a file in it")
    if not stat.S_ISREG(mode):
        # Whoever opens a pipe to which nobody writes waits for ever.
        raise InputError(f"{path} is a pipe, a socket or a device; store what it gives in a file")


@contextmanager
def writing(what: str) -> Iterator[None]:
    """A block that writes `what` to a disk; what the disk has against it becomes an InputError."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{what} can not be written: {error}; "
            "check the output directory (JARVIS_OUTPUT_DIR) and the space on its disk"
        ) from error


def suffix_of(content: bytes, mime: str | None = None) -> str:
    """The suffix of a file with this content, such as ".wav"; `mime` tells where the content does not.

    Returns:
        "" if neither is known.
    """
    import filetype

    guess = filetype.guess(content[:8192])
    return f".{guess.extension}" if guess else mimetypes.guess_extension(mime or "") or ""


def sniff_bytes(head: bytes, path: Path) -> tuple[Modality, str]:
    """As `sniff`, for the first bytes of a file that is named `path`."""
    import filetype

    guess = filetype.guess(head)
    if guess is not None:
        mime = str(guess.mime)
        if mime == "video/webm" and path.suffix.lower() in (".weba", ".opus"):
            mime = "audio/webm"
        return _KIND_OF_MIME.get(mime.partition("/")[0], "file"), mime
    for place, mark, kind, mime in _MARKS:
        if head.startswith(mark, place):
            return kind, mime
    if b"\0" in head and (known := _BINARY_KINDS.get(path.suffix.lower())):
        return known
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        # The cut at 8192 bytes may fall within a character.
        if error.start < len(head) - 4 or b"\0" in head:
            raise InputError(
                f"{path} is not a kind of file that is known (its content is no image, sound, video or text)"
            ) from error
    if b"\0" in head:
        raise InputError(f"{path} is not a kind of file that is known (binary data)")
    return _TEXT_KINDS.get(path.suffix.lower(), ("text", "text/plain"))


def check_pixels(path: Path, limit: int) -> None:
    """Refuse an image that would fill the memory; only its header is read.

    Raises:
        InputError: it has more than `limit` pixels, or no header that can be read.
    """
    from PIL import Image

    try:
        with Image.open(path) as opened:
            width, height = _size_in(opened)
    except Image.DecompressionBombError as error:
        raise InputError(f"{path} is too large an image: {error}") from error
    except IMAGE_ERRORS as error:
        raise InputError(f"{path} cannot be read as an image: {error}") from error
    if width * height > limit:
        raise InputError(
            f"{path} has {width} x {height} pixels, more than {limit:,} (JARVIS_MAX_PIXELS); make it smaller"
        )


def _size_in(opened: Image) -> tuple[int, int]:
    """Width and height of an opened image. The header of an icon may tell less than the picture in it."""
    icon: Any = getattr(opened, "ico", None)
    if icon is None:
        return opened.size
    width, height = icon.frame(icon.getentryindex(opened.size)).size
    return width, height


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
