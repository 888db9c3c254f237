"""Media types of files, detected from their content.

detect_media_type(Path("cat.jpg"))           # ("image", "image/jpeg")
"""

from __future__ import annotations

import mimetypes
import re
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import filetype

from jarvis_agent.core.errors import InputError
from jarvis_agent.core.tasks.spec import Modality

PDF, HTML, EPUB = "application/pdf", "text/html", "application/epub+zip"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
OLE = "application/x-ole-storage"
"""Container of old Office files, and of encrypted ones."""

MAGIC_NUMBERS: tuple[tuple[int, bytes, Modality, str], ...] = (
    (0, b"glTF", "3d", "model/gltf-binary"),
    (0, b"ply\n", "3d", "model/ply"),
    (0, b"ply\r", "3d", "model/ply"),
    (0, b"caff", "audio", "audio/x-caf"),
    (4, b"ftyp", "video", "video/mp4"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "file", OLE),
)
"""Formats that the package filetype does not know: offset, magic number, kind, media type."""

_HEAD_BYTES, _TAIL_BYTES = 8192, 65_536
_TEXT_KINDS: dict[str, tuple[Modality, str]] = {
    ".csv": ("table", "text/csv"),
    ".tsv": ("table", "text/tab-separated-values"),
    ".json": ("data", "application/json"),
    ".md": ("text", "text/markdown"),
    ".html": ("text", HTML),
    ".htm": ("text", HTML),
    ".xhtml": ("text", HTML),
    ".obj": ("3d", "model/obj"),
    ".stl": ("3d", "model/stl"),
    ".svg": ("file", "image/svg+xml"),
}
_DOCUMENTS = {".pdf": PDF, ".docx": DOCX, ".epub": EPUB}
_MEMBERS = {b"word/document.xml": DOCX, b"META-INF/container.xml": EPUB}
"""The member that every archive of a type has."""

_HTML_START = re.compile(
    rb"(\xef\xbb\xbf)?\s*(?>(<\?xml[^>]*>|<!--.*?-->)\s*)*+<(!doctype\s+html|html[\s>])", re.I | re.S
)
_KIND_OF_MIME: Mapping[str, Modality] = {
    **{kind: kind for kind in ("image", "audio", "video", "text")},
    **dict.fromkeys((PDF, DOCX, EPUB), "text"),
}


def detect_media_type(path: Path) -> tuple[Modality, str]:
    """The kind and the media type of a file, from its first bytes. The suffix distinguishes text formats.

    Raises:
        InputError: the file is missing, empty, unreadable, not a regular file, or of an unknown type.
    """
    try:
        _require_regular_file(path)
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        if not head:
            raise InputError(f"{path} is empty (0 bytes)")
        kind, mime = detect_from_bytes(head, path)
        return _in_archive(path) if mime == "application/zip" else (kind, mime)
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist; check its name and the working directory") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error


def kind_by_name(name: str) -> Modality:
    """The kind of a file or URL, guessed from the ending of its name. The file need not exist."""
    try:
        suffix = PurePosixPath(urlsplit(name).path).suffix.lower()
    except ValueError:
        return "file"
    kind = _TEXT_KINDS.get(suffix, ("file", ""))[0]
    if kind != "file":
        return kind
    return _kind_of(_DOCUMENTS.get(suffix) or mimetypes.guess_type(f"a{suffix}")[0] or "")


def _kind_of(mime: str) -> Modality:
    return _KIND_OF_MIME.get(mime) or _KIND_OF_MIME.get(mime.partition("/")[0], "file")


def _in_archive(path: Path) -> tuple[Modality, str]:
    """The type of an archive by the list of members at its end; the first bytes do not always tell it."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        tail = file.read()
    mime = next((mime for name, mime in _MEMBERS.items() if name in tail), "application/zip")
    return _kind_of(mime), mime


def _require_regular_file(path: Path) -> None:
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise InputError(f"{path} is a directory; name a file in it")
    if not stat.S_ISREG(mode):
        # Opening a pipe without a writer blocks forever.
        raise InputError(f"{path} is a pipe, a socket or a device; store what it gives in a file")


def detect_suffix(content: bytes, mime: str | None = None) -> str:
    """The file suffix for some content, such as ".wav"; `mime` decides where the content does not.

    Returns:
        "" if neither is known.
    """
    guess = filetype.guess(content[:_HEAD_BYTES])
    return f".{guess.extension}" if guess else mimetypes.guess_extension(mime or "") or ""


def detect_from_bytes(head: bytes, path: Path) -> tuple[Modality, str]:
    """The kind and the media type for the first bytes of the file `path`, which is not read.

    Raises:
        InputError: the type is unknown.
    """
    guess = filetype.guess(head)
    suffix = path.suffix.lower()
    if guess is not None:
        mime = str(guess.mime)
        if mime == "video/webm" and suffix in (".weba", ".opus"):
            mime = "audio/webm"
        return _kind_of(mime), mime
    for offset, magic, kind, mime in MAGIC_NUMBERS:
        if head.startswith(magic, offset):
            return kind, mime
    if _HTML_START.match(head):
        return "text", HTML
    if b"\0" in head and suffix == ".stl":
        return _TEXT_KINDS[suffix]
    if b"\0" in head or not _is_utf8(head):
        raise InputError(f"{path} is not a supported file type (image, audio, video, table or text)")
    return _TEXT_KINDS.get(suffix, ("text", "text/plain"))


def _is_utf8(head: bytes) -> bool:
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        # The end of the head may cut a character.
        return error.start >= len(head) - 4
    return True
