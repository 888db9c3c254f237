"""Media types of files, as the libraries see them that read the files.

detect_media_type(Path("cat.jpg"))           # ("image", "image/jpeg")

Pillow reads the headers of images, PyAV the streams of recordings. The ending of the name distinguishes
formats of text, and recordings if PyAV is missing.
"""

import logging
import mimetypes
import re
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from io import SEEK_END, BytesIO
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from urllib.parse import urlsplit

from jarvis_agent.core.encodings import certain_encoding, decode_text
from jarvis_agent.core.errors import BadInputError, InputError, MissingExtraError
from jarvis_agent.core.images import identified, is_heic
from jarvis_agent.core.tasks.spec import Modality
from jarvis_agent.media.recordings import open_container

logger = logging.getLogger(__name__)

PDF, HTML, EPUB, RTF = "application/pdf", "text/html", "application/epub+zip", "application/rtf"
SRT, MARKDOWN, EMAIL = "application/x-subrip", "text/markdown", "message/rfc822"
_OFFICE, _OPEN = "application/vnd.openxmlformats-officedocument", "application/vnd.oasis.opendocument"
DOCX, PPTX = f"{_OFFICE}.wordprocessingml.document", f"{_OFFICE}.presentationml.presentation"
ODT, ODP, FODT = f"{_OPEN}.text", f"{_OPEN}.presentation", f"{_OPEN}.text-flat-xml"
XLSX, ODS, XLS = f"{_OFFICE}.spreadsheetml.sheet", f"{_OPEN}.spreadsheet", "application/vnd.ms-excel"
XLSB = f"{XLS}.sheet.binary.macroenabled.12"
_DOCUMENTS = {".pdf": PDF, ".docx": DOCX, ".pptx": PPTX, ".odt": ODT, ".odp": ODP, ".epub": EPUB, ".rtf": RTF}
_SHEETS = {".xlsx": XLSX, ".xls": XLS, ".xlsb": XLSB, ".ods": ODS}
WORKBOOKS = frozenset(_SHEETS.values())
OLE = "application/x-ole-storage"
"""Container of old Office files, and of encrypted ones."""

_HEAD_BYTES, _TAIL_BYTES, _SEARCHED_BYTES = 8192, 1_000_000, 50_000_000
_SIGNATURES: tuple[tuple[tuple[bytes, ...], Modality, str], ...] = (
    ((b"glTF\1\0", b"glTF\2\0"), "3d", "model/gltf-binary"),
    ((b"ply\nformat ", b"ply\r\nformat "), "3d", "model/ply"),
    ((b"{\\rtf", b"{\\pard"), "text", RTF),
    ((b"%!PS",), "file", "application/postscript"),
)
"""Of formats that are text, or that no library here tells."""

TEXTS = {".csv": "text/csv", ".tsv": "text/tab-separated-values", ".json": "application/json", ".fodt": FODT}
TEXTS |= dict.fromkeys((".markdown", ".md"), MARKDOWN) | dict.fromkeys((".mht", ".mhtml", ".eml"), EMAIL)
TEXTS |= dict.fromkeys((".ass", ".lrc", ".sbv", ".ssa", ".sub", ".vtt", ".srt"), SRT)
TEXTS |= dict.fromkeys((".dfxp", ".fb2", ".htm", ".sami", ".smi", ".ttml", ".xhtml", ".html"), HTML)
TEXTS |= {".obj": "model/obj", ".stl": "model/stl", ".svg": "image/svg+xml"}
"""Endings that distinguish formats of text; a text under another name is plain text."""

_SUFFIXES = TEXTS | _DOCUMENTS | _SHEETS | {".ply": "model/ply", ".glb": "model/gltf-binary"}
_SUFFIXES |= {".heic": "image/heic", ".webp": "image/webp", ".png": "image/png", ".jpg": "image/jpeg"}
_SUFFIXES |= {".m4a": "audio/mp4", ".wav": "audio/wav", ".flac": "audio/flac", ".ogg": "audio/ogg"}
_SUFFIXES |= {".weba": "audio/webm", ".mka": "audio/x-matroska", ".caf": "audio/x-caf"}
_SUFFIXES |= {".ogv": "video/ogg", ".mkv": "video/x-matroska", ".ts": "video/mp2t"}
"""Media types by the ending of the name, where Python's own list differs between machines."""

SUFFIXES = {mime: suffix for suffix, mime in _SUFFIXES.items()}
"""The usual ending of file names by media type."""

_RECORDINGS = {name: name for name in ("aac", "flac", "mpeg", "ogg", "wav")}
_RECORDINGS |= {"asf": "x-ms-asf", "au": "basic", "avi": "x-msvideo"}
_RECORDINGS |= {"mov": "mp4", "mp3": "mpeg", "mpegts": "mp2t"}
"""Subtypes of media types by FFmpeg's name of the container; of others it is the name after "x-"."""

_SIGNED = frozenset({"aiff", "asf", "au", "avi", "caf", "flac", "flv", "matroska", "mov", "ogg", "wav"})
"""Containers with a signature. Any bytes may look like other formats until they are decoded."""

_MEMBERS = {b"word/document": DOCX, b"ppt/presentation.xml": PPTX, b"workbook.xml": XLSX}
_MEMBERS |= {b"workbook.bin": XLSB, b"META-INF/container.xml": EPUB, b"\0content.xml": ODT}
"""The member that every archive of a type has."""

_HTML_START = re.compile(r"\s*(?>(<\?xml[^>]*>|<!--.*?-->)\s*)*+<(!doctype\s+html|html[\s>])", re.I | re.S)
_SRT_START = re.compile(r"\s*(WEBVTT\b(?=[^>]*-->)|[0-9]+\s+[0-9:]+[,.][0-9]{3} --> [0-9:]+[,.][0-9]{3}\s)")
_KINDS: Mapping[str, Modality] = {
    **{kind: kind for kind in ("image", "audio", "video", "text")},
    **dict.fromkeys((*_DOCUMENTS.values(), FODT, SRT, EMAIL), "text"),
    **dict.fromkeys((*WORKBOOKS, "text/csv", "text/tab-separated-values"), "table"),
    "application/json": "data",
    "model": "3d",
    "image/svg+xml": "file",
}
"""By media type, or its first part."""


def detect_media_type(path: Path, name: str = "") -> tuple[Modality, str]:
    """The kind and the media type of a file. Errors call it by `name`, else by its name on the disk.

    Raises InputError: it is missing, empty, unreadable, not a regular file, or of an unknown type.
    """
    name = name or path.name or str(path)
    try:
        if path.is_dir():
            raise InputError(f"{name} is a directory; name a file in it")
        if path.exists() and not path.is_file():
            # Opening a pipe without a writer blocks forever.
            raise InputError(f"{name} is a pipe, a socket or a device; store what it gives in a file")
        with path.open("rb") as file:
            return detect_content(file, path, name)
    except FileNotFoundError as error:
        missing = "{file} does not exist; check its name and the working directory"
        raise InputError(missing, file=name) from error
    except OSError as error:
        raise InputError(f"{name} cannot be read", detail=error.strerror or error) from error


def detect_suffix(content: bytes, mime: str | None = None, name: str = "") -> str:
    """The file suffix for some content, such as ".wav"; of a text that of its name or of `mime`; else ""."""
    suffix = PurePosixPath(name).suffix.lower()
    with suppress(InputError):
        detected = detect_content(BytesIO(content), Path(f"content{suffix}"))[1]
        if detected == TEXTS.get(suffix):
            return suffix
        mime = mime if mime and detected == "text/plain" else detected
    return SUFFIXES.get(mime or "") or mimetypes.guess_extension(mime or "") or ""


def kind_by_name(name: str) -> Modality:
    """The kind of a file or URL, guessed from the ending of its name. The file need not exist."""
    return _by_name(name)[0]


def _by_name(name: str) -> tuple[Modality, str]:
    paths = [] if "://" in name else [name]  # what ends a URL's path is a part of a file's name: "a#1.csv"
    with suppress(ValueError):
        paths.append(urlsplit(name).path)  # without the page in "a.pdf#page=2"
    suffixes = [PurePosixPath(path).suffix.lower() for path in paths]
    mimes = (_SUFFIXES.get(suffix) or mimetypes.guess_type(f"a{suffix}")[0] for suffix in suffixes)
    mime = next(filter(None, mimes), "")
    return _kind_of(mime), mime


def _kind_of(mime: str) -> Modality:
    return _KINDS.get(mime) or _KINDS.get(mime.partition("/")[0], "file")


def detect_content(file: BinaryIO, path: Path, name: str = "") -> tuple[Modality, str]:
    """As `detect_media_type`, for an open file. Of `path` the name alone counts."""
    head, name = file.read(_HEAD_BYTES), name or path.name
    if not head:
        raise InputError(f"{name} is empty (0 bytes)")
    for signatures, kind, mime in _SIGNATURES:
        if head.lstrip(b"\r\n\t \x04").startswith(signatures):
            return kind, mime
    encoding = certain_encoding(head)
    # A PDF file may begin with other bytes, and may be text.
    if b"%PDF-" in head[:1024] and (encoding is None or b" obj" in head):
        return "text", PDF
    if encoding is not None:
        # MPEG audio of layer I may begin as UTF-16 does.
        recording = _of_recording(head, file, path) if encoding == "utf-16" else None
        return recording or _of_text(head.decode(encoding, "replace"), file, path)
    if head.startswith(b"\xd0\xcf\x11\xe0"):
        file.seek(0)
        content, streams = file.read(_SEARCHED_BYTES), ("Workbook", "Book\0\0")  # the second before Excel 97
        is_table = any(stream.encode("utf-16-le") in content for stream in streams)
        return ("table", XLS) if is_table else ("file", OLE)
    if head.startswith(b"PK\3\4"):
        mime = _of_archive(head, file)
        return _kind_of(mime), mime
    if image := _of_image(file, path):
        return image
    with suppress(UnicodeDecodeError):  # recordings have control characters
        return _of_text(decode_text(head)[0], file, path)
    return _of_recording(head, file, path) or _of_other(head, file, path, name)


def _of_archive(head: bytes, file: BinaryIO) -> str:
    # A member may state the type, mostly the first one; the list of members is at the end.
    file.seek(max(0, file.seek(0, SEEK_END) - _TAIL_BYTES))
    stated, tail = head[38:], file.read()
    # It may be the first one of a large file, or missing.
    with suppress(Exception), zipfile.ZipFile(BytesIO(tail)) as parts, parts.open("mimetype") as member:
        stated = member.read(100)
    names = tail.replace(b"\\", b"/")  # as some programs write them
    known = (mime for mime in (ODT, ODP, ODS, EPUB) if stated.startswith(mime.encode()))
    return next(chain(known, (mime for name, mime in _MEMBERS.items() if name in names)), "application/zip")


def _of_text(text: str, file: BinaryIO, path: Path) -> tuple[Modality, str]:
    if _HTML_START.match(text):
        return "text", HTML
    if _SRT_START.match(text):
        return "text", SRT
    if path.suffix.lower() in TEXTS:
        return _by_name(path.name)
    return (_of_image(file, path) if kind_by_name(path.name) == "image" else None) or ("text", "text/plain")


def _of_image(file: BinaryIO, path: Path) -> tuple[Modality, str] | None:
    from PIL import Image

    file.seek(0)
    try:
        with identified(file, path.name) as image:
            return "image", Image.MIME.get(image.format or "", f"image/x-{image.format or 'other'}".lower())
    except BadInputError as error:
        if type(error.__cause__).__name__ == "DecompressionBombError":
            raise InputError(error.note) from error
        return ("image", "image/heic") if is_heic(file) else None


def _of_recording(head: bytes, file: BinaryIO, path: Path) -> tuple[Modality, str] | None:
    file.seek(0)
    try:
        with open_container(file) as container:
            name = container.format.name.split(",")[0]
            pictures = container.streams.video
            is_cover = (stream.disposition & stream.disposition.attached_pic for stream in pictures)
            kind: Modality = "audio" if all(is_cover) else "video"
            # A picture that is damaged, or too large to be identified, must not count as a video.
            is_picture = name.endswith("_pipe") or head.startswith(b"ftypavi", 4)
            if is_picture or not (container.streams.audio or pictures):
                return None
            if name not in _SIGNED:
                for packet in islice(container.demux(), 3):
                    packet.decode()
    except MissingExtraError:
        return named if (named := _by_name(path.name))[0] in ("audio", "video") else None
    except Exception:  # PyAV raises errors of many types for other files.
        logger.debug("%s is no recording", path, exc_info=True)
        return None
    subtype = _RECORDINGS.get(name, f"x-{name}")
    if name == "matroska" and b"webm" in head[:64]:
        subtype = "webm"
    if kind == "video" and head.startswith(b"ftypqt  ", 4):
        subtype = "quicktime"
    return kind, f"{kind}/{subtype}"


def _of_other(head: bytes, file: BinaryIO, path: Path, name: str) -> tuple[Modality, str]:
    size = 84 + 50 * int.from_bytes(head[80:84], "little")  # subtitles have this ending, too
    if path.suffix.lower() == ".stl" and size <= file.seek(0, SEEK_END):
        return _by_name(path.name)
    raise InputError(f"{name} is damaged, or not a supported file type (image, audio, video, table or text)")
