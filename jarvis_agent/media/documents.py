"""The text of documents: PDF, Word (DOCX), HTML and EPUB, read with langchain-community's loaders.

load_text(Path("report.pdf"))        # "Quarterly report\nRevenue grew by 12 % …"

Only the given file is read: links, images and style sheets in it are not. Parts of DOCX and EPUB files are
unpacked up to `MAX_MARKUP` bytes, whatever sizes the archive states.
"""

from __future__ import annotations

import io
import posixpath
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote

from jarvis_agent.core.concurrency import check_cancelled
from jarvis_agent.core.errors import InputError, MissingExtraError, describe_error
from jarvis_agent.media.detect import DOCX, EPUB, HTML, OLE, PDF, detect_media_type

MAX_CHARS = 5_000_000
"""Maximum length of a text; a long novel has 3 million characters."""

MAX_MARKUP = 20_000_000
"""Maximum size of HTML or XML in bytes; parsed, it takes about ten times as much memory."""

_MAX_READ = 10_000_000
"""Maximum number of bytes that are read at once from an archive; its list of members is read at once."""

_WORD_PARTS = ("word/document", "word/header", "word/footer")


def load_text(path: Path) -> str:
    """Read a document or a UTF-8 text file. Blocks; stops between pages when `run_cpu_bound` is cancelled.

    Raises:
        InputError: the file is broken, encrypted, too long, without text, or of another type.
        MissingExtraError: the file is a document, and the extra `community` is not installed.
    """
    name, load = _LOADERS.get(detect_media_type(path)[1], ("text in UTF-8", _plain))
    pieces, size = [], 0
    try:
        for piece in load(path):
            check_cancelled()
            size += len(piece)
            _check_length(path, size)
            pieces.append(piece)
    except ImportError as error:
        raise MissingExtraError(f"reading {path.name}", "community") from error
    except (InputError, CancelledError):
        raise
    except Exception as error:  # The parsers raise errors of any type for broken files.
        if type(error).__name__ in ("FileNotDecryptedError", "DependencyError"):
            raise InputError(f"{path} is encrypted; give a copy without a password") from error
        message = f"{path} cannot be read as {name}: {describe_error(error)}; open and save it again"
        raise InputError(message) from error
    if not (text := "\n".join(pieces).strip()):
        raise InputError(f"{path} holds no text; if its pages are scans, give them as images and read those")
    return text


def count_pages(path: Path) -> int:
    """The number of pages of a PDF file, which may be encrypted.

    Raises:
        InputError: the file is broken.
        MissingExtraError: the extra `community` is not installed.
    """
    try:
        from pypdf import PdfReader
    except ImportError as error:
        raise MissingExtraError(f"reading {path.name}", "community") from error
    try:
        return PdfReader(path).get_num_pages()
    except Exception as error:  # It raises errors of any type for broken files.
        raise InputError(f"{path} cannot be read as a PDF file: {error}; open and save it again") from error


def _check_length(path: Path, size: int) -> None:
    if size > MAX_CHARS:
        raise InputError(f"{path} has more than {MAX_CHARS:,} characters; give a part of it")


def _plain(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8-sig") as file:
        yield file.read(MAX_CHARS + 1)


def _old_office(path: Path) -> Iterator[str]:
    raise InputError(f"{path} is encrypted or in an old format; save it as DOCX without a password")


def _pdf(path: Path) -> Iterator[str]:
    from langchain_community.document_loaders.pdf import PyPDFLoader

    size = 0

    def count(text: str, *_: Any) -> None:
        nonlocal size
        size += len(text)
        _check_length(path, size)

    visitors = {"visitor_text": count, "visitor_operand_before": lambda *_: check_cancelled()}
    loader = PyPDFLoader(path, mode="single", pages_delimiter="\n", extraction_kwargs=visitors)
    yield from (document.page_content for document in loader.lazy_load())


def _docx(path: Path) -> Iterator[str]:
    from langchain_community.document_loaders.word_document import Docx2txtLoader

    with _Archive(path) as file, zipfile.ZipFile(file) as archive, TemporaryDirectory() as folder:
        names = [name for name in archive.namelist() if name.startswith(_WORD_PARTS)]
        # The loader unpacks without limits, so it gets a copy with the parts that hold text.
        copy = Path(folder, "copy.docx")
        with zipfile.ZipFile(copy, "w") as parts:
            for name, content in _unpacked(path, archive, names):
                parts.writestr(name, content)
        yield from (document.page_content for document in Docx2txtLoader(copy).load())


def _html(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        content = file.read(MAX_MARKUP + 1)
    if len(content) > MAX_MARKUP:
        raise InputError(f"{path} has more than {MAX_MARKUP:,} bytes of HTML; give a part of it")
    yield _text_of(content)


def _text_of(page: bytes) -> str:
    from langchain_community.document_loaders.parsers.html import BS4HTMLParser
    from langchain_core.documents.base import Blob

    # Without a separator, the last word of a paragraph and the first of the next one become one word.
    parser = BS4HTMLParser(features="html.parser", get_text_separator=" ")
    (document,) = parser.lazy_parse(Blob.from_data(page))
    lines = (" ".join(line.split()) for line in document.page_content.splitlines())
    return "\n".join(filter(None, lines))


def _epub(path: Path) -> Iterator[str]:
    """The chapters of an e-book in reading order; each is an XHTML file."""
    from bs4 import BeautifulSoup

    with _Archive(path) as file, zipfile.ZipFile(file) as archive:

        def parse(name: str) -> Any:
            return BeautifulSoup(dict(_unpacked(path, archive, [name]))[name], "html.parser")

        package = str(parse("META-INF/container.xml").find("rootfile")["full-path"])
        items = parse(package)
        paths = {item["id"]: unquote(item["href"]) for item in items.find_all("item")}
        chapters = [paths[item["idref"]] for item in items.find_all("itemref")]
        names = [posixpath.normpath(posixpath.join(posixpath.dirname(package), name)) for name in chapters]
        if "META-INF/rights.xml" in archive.namelist():
            raise InputError(f"{path} is encrypted (DRM); give a copy without copy protection")
        yield from (_text_of(content) for _, content in _unpacked(path, archive, names))


class _Archive(io.FileIO):
    """A file that refuses an archive with a huge list of members, which takes much memory."""

    def read(self, size: int | None = -1) -> bytes | Any:
        if size is not None and size > _MAX_READ:
            raise zipfile.BadZipFile(f"it has a part of more than {_MAX_READ:,} bytes")
        return super().read(size)


def _unpacked(path: Path, archive: zipfile.ZipFile, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Members of an archive by name, each once."""
    left = MAX_MARKUP
    for name in dict.fromkeys(names):
        # Only these methods stop at the number of bytes that is asked for.
        if archive.getinfo(name).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InputError(f"{path} is compressed in an unusual way; open and save it again")
        with archive.open(name) as member:
            content = member.read(left + 1)
        left -= len(content)
        if left < 0:
            raise InputError(f"{path} unpacks to more than {MAX_MARKUP:,} bytes; give a part of it")
        yield name, content


_LOADERS: Mapping[str, tuple[str, Callable[[Path], Iterator[str]]]] = {
    PDF: ("a PDF file", _pdf),
    DOCX: ("a Word document", _docx),
    HTML: ("an HTML page", _html),
    EPUB: ("an e-book", _epub),
    **dict.fromkeys((OLE, "application/msword"), ("an Office file", _old_office)),
}
