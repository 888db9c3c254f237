"""Media types of files, detected from their content.

detect_media_type(Path("cat.jpg"))           # ("image", "image/jpeg")
"""

from __future__ import annotations

import mimetypes
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jarvis_agent.core.errors import InputError
from jarvis_agent.core.tasks.spec import Modality

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

MAGIC_NUMBERS: tuple[tuple[int, bytes, Modality, str], ...] = (
    (0, b"glTF", "3d", "model/gltf-binary"),
    (0, b"ply\n", "3d", "model/ply"),
    (0, b"ply\r", "3d", "model/ply"),
    (0, b"caff", "audio", "audio/x-caf"),
    (4, b"ftyp", "video", "video/mp4"),
)
"""Kinds of files that the package filetype does not tell: where their mark is, and the mark."""

_KIND_OF_MIME: dict[str, Modality] = {"image": "image", "audio": "audio", "video": "video"}


def detect_media_type(path: Path) -> tuple[Modality, str]:
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
    return detect_from_bytes(head, path)


def _refuse_other_than_files(path: Path) -> None:
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise InputError(f"{path} is a directory; name a file in it")
    if not stat.S_ISREG(mode):
        # Whoever opens a pipe to which nobody writes waits for ever.
        raise InputError(f"{path} is a pipe, a socket or a device; store what it gives in a file")


@contextmanager
def disk_errors(what: str) -> Iterator[None]:
    """A block that writes `what` to a disk; what the disk has against it becomes an InputError."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{what} can not be written: {error}; "
            "check the output directory (JARVIS_OUTPUT_DIR) and the space on its disk"
        ) from error


def detect_suffix(content: bytes, mime: str | None = None) -> str:
    """The suffix of a file with this content, such as ".wav"; `mime` tells where the content does not.

    Returns:
        "" if neither is known.
    """
    import filetype

    guess = filetype.guess(content[:8192])
    return f".{guess.extension}" if guess else mimetypes.guess_extension(mime or "") or ""


def detect_from_bytes(head: bytes, path: Path) -> tuple[Modality, str]:
    """As `detect_media_type`, for the first bytes of a file that is named `path`."""
    import filetype

    guess = filetype.guess(head)
    if guess is not None:
        mime = str(guess.mime)
        if mime == "video/webm" and path.suffix.lower() in (".weba", ".opus"):
            mime = "audio/webm"
        return _KIND_OF_MIME.get(mime.partition("/")[0], "file"), mime
    for place, mark, kind, mime in MAGIC_NUMBERS:
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
