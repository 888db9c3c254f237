"""The text of documents: PDF, Word, PowerPoint, OpenDocument, RTF, HTML, EPUB, Markdown and subtitles.

text, notes = load_text(Path("report.pdf"))     # "Quarterly report\nRevenue …", ["page 3 of 4 has no text …"]

Only the given file is read: links, images and style sheets in it are not.
"""

import codecs
import ctypes
import email.policy
import html
import io
import posixpath
import re
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import closing, contextmanager, suppress
from functools import partial
from html.parser import HTMLParser
from itertools import dropwhile, groupby
from pathlib import Path
from typing import Any
from unicodedata import combining, normalize
from urllib.parse import unquote

from jarvis_agent.core.concurrency import check_cancelled
from jarvis_agent.core.encodings import decode_text
from jarvis_agent.core.errors import BadInputError, InputError
from jarvis_agent.core.forks import fork_safe
from jarvis_agent.core.notes import Note
from jarvis_agent.core.text import clean, replace_surrogates
from jarvis_agent.media import archives, detect
from jarvis_agent.media.archives import Archive, unpacked
from jarvis_agent.media.detect import detect_media_type
from jarvis_agent.media.office import read_flat, read_office
from jarvis_agent.media.symbols import PRIVATE, symbol
from jarvis_agent.media.tables import read_table, to_csv

MAX_CHARS = 5_000_000
"""Maximum length of a text; a long novel has 3 million characters."""

_FIELDS = r"^Dialogue:(?:[^,\n]*,){9}|\{[^{}\n]*\\p[1-9][^{}\n]*\}[^{\n]*|\{[^{}\n]*\}"
_CUES = {
    **dict.fromkeys((".ass", ".ssa"), _FIELDS),
    ".lrc": r"^(?:\[[0-9:.]+\])+|^\[[A-Za-z#]+:.*\]$|<[0-9:.]+>",
    ".sbv": r"^[0-9]+:[0-9:.]+,[0-9]+:[0-9:.]+$",
    ".sub": r"^\{1\}\{1\}[0-9.]+$|^(?:\{[0-9]*\})+|\{[A-Za-z]:[^{}\n]*\}"  # MicroDVD
    r"|^\[[A-Z][A-Z ]+\].*$|^[0-9]+:[0-9:.]+,[0-9]+:[0-9:.]+$",  # SubViewer
}
"""What is not spoken of subtitles by the ending of the name: times, titles, fields, marks and drawings."""
_CUE = r"^(?:.*\n)?.*-->.*$|<[^<>\n]*>|\{\\[^{}\n]*\}"
"""Of other subtitles: numbers with the times in the next line, and marks."""

_HYPHEN = re.compile(r"((?:[-/.@\\]|\b)\w+)\ufffe\s*(?=(\w+)([.)]\s)?)")
"""At the end of a line, as PDFium marks it; elsewhere the mark stands for a character that it cannot name."""
_UNSHOWN = re.compile(
    r"((?<!\\)\{(?:\\[a-z]+-?[0-9]*\s?)*?)\\(?:deleted|v)(?![a-z0-9])(?![^{}]*\\(?:deleted|v)0)"
)
"""The beginning of a group of RTF whose words are deleted or hidden, and none of them shown again."""
_LIGATURE = re.compile(r"(?<=[^\W\d_])[\x1b-\x1f](?=[^\W\d_])")
_LIGATURES = {"\x1b": "ff", "\x1c": "fi", "\x1d": "fl", "\x1e": "ffi", "\x1f": "ffl"}  # as TeX encodes them
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_CODE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")  # in the font, of a character that has no name
_UNKNOWN = re.compile("[\ufffd\ue000-\uf8ff]")
_RADICALS = re.compile("[\u2e80-\u2fdf]+")  # that stand for whole characters
_STROKE = re.compile("\u0338\\s*(\\S)")
"""Through a sign, which in Unicode is before it, and in TeX after it."""
_TEX = re.compile(r"(?:\w+\+)?CM(?:R|BX|TI|SS|TT|SL|MI|SY|EX)")
_SIGN = re.compile(r"(?<![a-z])[a-z](?![a-z])|[^a-z .,]")
"""What TeX may take from its fonts of signs: each character but letters in words."""
_FEW_CHARS = 40  # of a page that is a picture: a stamp, a page number
_MARGIN = 10  # points that letters may reach beyond the page
_DPI = 150  # dots per inch of rendered pages; a page of A4 has two million pixels
_PDFIUM = fork_safe(threading.Lock())  # PDFium does one thing at a time in a process


def load_text(
    path: Path, *, with_markup: bool = False, scans: dict[int, str] | None = None
) -> tuple[str, list[str]]:
    """Read a document or a text, and notes. Blocks; stops between pages when `run_cpu_bound` is cancelled.

    There is no markup and no time code, unless those of a text are wanted. `scans` are the texts of scanned
    pages of a PDF file by number from 1; "" is put for others.

    Raises InputError: the file is broken, encrypted, too long, without text, or of another type.
    """
    mime = detect_media_type(path)[1]
    if mime == detect.OLE:
        raise InputError(f"{path.name} is encrypted or in an old format; save it as DOCX without a password")
    name, load = _LOADERS.get(mime, ("text", _plain))
    if with_markup and mime in (detect.MARKDOWN, detect.SRT):
        load = _plain
    if mime == detect.PDF:
        load = partial(_pdf, scans={} if scans is None else scans)
    pieces, notes, size = list[str](), list[str](), 0
    with _errors_named(path, name), closing(load(path, notes)) as parts:
        for piece in parts:
            check_cancelled()
            size += len(piece)
            if size > MAX_CHARS:
                raise InputError(f"{path.name} has more than {MAX_CHARS:,} characters; give a part of it")
            pieces.append(piece)
    if not (text := re.sub("\r\n?", "\n", "\n".join(pieces)).strip()):
        advice = "; if its pages are scans, read them as images" if mime == detect.PDF else ""
        raise InputError(f"{path.name} holds no text{advice}")
    return text, notes


@contextmanager
def _errors_named(path: Path, name: str) -> Iterator[None]:
    """Turn what the parsers raise for broken files, errors of any type, into an InputError."""
    try:
        yield
    except (InputError, BadInputError, CancelledError):
        raise
    except Exception as error:
        if "password" in str(error).lower():
            raise InputError(f"{path.name} is encrypted; give a copy without a password") from error
        message = f"{path.name} cannot be read as {name}; open and save it again"
        raise InputError(message, detail=error) from error


@contextmanager
def _opened_pdf(path: Path) -> Iterator[Any]:
    """An opened PDF file; what PDFium cannot read becomes an InputError."""
    from pypdfium2 import PdfDocument

    with _errors_named(path, "a PDF file"), _PDFIUM, closing(PdfDocument(path)) as document:
        document.init_forms()
        yield document


def _page(document: Any, number: int) -> closing[Any]:
    """A page of a PDF file; what is filled in and noted on it is a part of its content."""
    from pypdfium2 import raw

    page = document[number - 1]
    if raw.FPDFPage_Flatten(page, raw.FLAT_NORMALDISPLAY) == raw.FLATTEN_SUCCESS:
        page.close()
        page = document[number - 1]
    return closing(page)


def count_pages(path: Path) -> int:
    """The number of pages of a PDF file. Raises InputError: the file is broken or encrypted."""
    with _opened_pdf(path) as document:
        return len(document)


def extract_pages(path: Path, target: Path, first: int, last: int) -> None:
    """Write some pages, numbered from 1, as a PDF file. Raises InputError: it lacks these, or is broken."""
    from pypdfium2 import PdfDocument

    with _opened_pdf(path) as document, closing(PdfDocument.new()) as part:
        if not 1 <= first <= last <= (count := len(document)):
            raise InputError(f"{path} has {count} pages, and not those that are asked for: {first} to {last}")
        part.import_pages(document, range(first - 1, last))
        part.save(target)


def render_pages(path: Path, target: Path, limit: int, only: int | None = None) -> list[str]:
    """Write pages of a PDF file, or `only` one, as a TIFF file in `_DPI`; return notes on damaged pages.

    Raises InputError: the file is broken or encrypted, or the pages have more than `limit` pixels together.
    """
    from pypdfium2 import PdfiumError

    pages, pixels = dict[int, Any](), 0.0
    with _opened_pdf(path) as document:
        numbers = range(1, len(document) + 1) if only is None else range(only, only + 1)
        for number in numbers:
            check_cancelled()
            with suppress(PdfiumError), _page(document, number) as page:
                pixels += page.get_width() * page.get_height() * (_DPI / 72) ** 2
                if pixels > limit:
                    raise InputError(f"{path.name} has more than {limit:,} pixels; give a part of it")
                pages[number] = page.render(scale=_DPI / 72).to_pil()
    notes = _damage(path, numbers, pages)
    first, *others = pages.values()
    first.save(target, save_all=True, append_images=others, compression="tiff_deflate")
    return notes


def _damage(path: Path, numbers: range, pages: Mapping[int, Any]) -> list[str]:
    """A note on damaged pages, those without an entry. Raises InputError: there are no others."""
    if not pages:
        raise InputError(f"{path.name} cannot be read as a PDF file: every page is damaged")
    damaged = [number for number in numbers if number not in pages]
    return _note_pages("left out of {count} pages: {places} (damaged)", damaged, len(numbers))


def _note_pages(form: str, numbers: Sequence[int], count: int) -> list[str]:
    places = ", ".join(map(str, numbers[:10])) + (" …" if len(numbers) > 10 else "")
    return [Note(form, count=count, places=places)] if numbers else []


def _plain(path: Path, notes: list[str]) -> Iterator[str]:
    """A text as it is."""
    with path.open("rb") as file:
        text, assumed = decode_text(file.read(4 * MAX_CHARS + 1))
    notes += assumed
    yield text


def _pdf(path: Path, notes: list[str], scans: dict[int, str]) -> Iterator[str]:
    """The text of each page. Scanned and damaged ones are named."""
    from pypdfium2 import PdfiumError

    pages, size, unknown, is_tex = dict[int, str](), 0, 0, False
    with _opened_pdf(path) as pdf:
        numbers = range(1, len(pdf) + 1)
        for number in numbers:
            check_cancelled()
            with suppress(PdfiumError), _page(pdf, number) as page, closing(page.get_textpage()) as chars:
                count = chars.count_chars()
                is_tex |= any(_TEX.match(_font(chars, at)) for at in range(0, count, count // 20 + 1))
                text = _text_of_page(page, chars, is_tex).replace("\r\n", "\n").strip()
                if _is_scan(page, len(text)):
                    scans.setdefault(number, "")
                pages[number] = text
                size += len(text)
            if size > 2 * MAX_CHARS:
                break  # what is left is too long, too
    broken = "\n".join(pages.values())
    whole = re.sub(r"\b\w+\ufffe\s*\w+", " ", broken)
    words, compounds = {*re.findall(r"\w+", whole)}, {*re.findall(r"(?=\b(\w+-\w+))", whole)}

    def join(first: re.Match[str]) -> str:
        """Two parts of a word, with a hyphen if more than the line break needs it."""
        left, right, is_label = first.groups()
        if is_label and len(right) < 3:
            return f"{left}-\n"  # of the next item of a list
        is_pair = min(len(left), len(right)) > 3 and {left, right} <= words and left + right not in words
        is_mixed = any(each.isupper() or not each.isalpha() for each in (left[-1], right[0]))
        is_part = not left[0].isalnum() or f"{left}-{right}" in compounds
        return left + "-" * (is_pair or is_mixed or is_part)

    for number, text in pages.items():
        text = _HYPHEN.sub(join, text).replace("\ufffe", "\ufffd")
        text = _RADICALS.sub(lambda found: normalize("NFKC", found[0]), text)
        text = _LIGATURE.sub(lambda found: _LIGATURES[found[0]], text)
        text = clean(_CODE.sub("\ufffd", text))
        unknown += len(_UNKNOWN.findall(text))
        yield max(scans.get(number, ""), text, key=len)
    notes += _damage(path, numbers, pages)
    count = len(numbers)
    left_out = [number for number, read in scans.items() if not read]
    without_text = "left out of {count} pages: {places} (without text, as in a scan)"
    notes += _note_pages(without_text, [number for number in left_out if not pages.get(number)], count)
    few_words = "pages with few words and a picture, which was not read: {places}"
    notes += _note_pages(few_words, [number for number in left_out if pages.get(number)], count)
    notes += _note_pages("scanned pages were read: {places}", [n for n in scans if scans[n]], count)
    notes += [Note("characters that the file does not name: {number}", number=unknown)] if unknown else []


def _font(content: Any, place: int) -> str:
    """The name of the font of a character on a page."""
    from pypdfium2 import raw

    name = ctypes.create_string_buffer(100)
    raw.FPDFText_GetFontInfo(content, place, name, len(name), ctypes.c_int())
    return name.value.decode("latin-1")


def _text_of_page(page: Any, content: Any, is_tex: bool) -> str:
    """The text of a page.

    PDFium has the letters of a ligature from left to right, also in Arabic, and symbols by their codes.
    Slides of TeX have text outside of the page that is not shown yet.
    """
    from pypdfium2 import raw

    text, count = content.get_text_range(), content.count_chars()
    is_whole = len(text.encode("utf-16-le", "surrogatepass")) >= 2 * count  # without codes that are left out
    if is_whole and not (is_tex or any(odd.search(text) for odd in (_RIGHT_TO_LEFT, PRIVATE, _CODE))):
        return str(text)
    x, y = ctypes.c_double(), ctypes.c_double()
    left, bottom, right, top = box = page.get_bbox()
    is_beyond = is_tex and left < right and len(content.get_text_bounded(*box)) < len(text)

    def origin(place: int) -> tuple[float, float]:
        raw.FPDFText_GetCharOrigin(content, place, x, y)
        return x.value, y.value

    letters = [chr(raw.FPDFText_GetUnicode(content, place)) for place in range(count)]
    for found in (_SIGN if is_tex else PRIVATE).finditer("".join(letters)):
        if not raw.FPDFText_IsGenerated(content, at := found.start()):
            letters[at] = symbol(letters[at], [_font(content, at)])
    for at in (place for place, character in enumerate(letters) if character == "\x02"):
        letters[at] = "\ufffe" if raw.FPDFText_IsHyphen(content, at) == 1 else "\x03"
    for at in range(count) if is_beyond else ():
        across, up = origin(at)
        is_shown = left - _MARGIN < across < right + _MARGIN and bottom - _MARGIN < up < top + _MARGIN
        letters[at] = letters[at] if is_shown or raw.FPDFText_IsGenerated(content, at) else ""
    if _RIGHT_TO_LEFT.search(text):
        glyphs = groupby(range(count), lambda at: origin(at) if _RIGHT_TO_LEFT.match(letters[at]) else at)
        parts = ("".join(map(letters.__getitem__, places)) for _, places in glyphs)
        # A mark may stand where its letter does.
        letters = [part if any(map(combining, part)) else part[::-1] for part in parts]
    text = "".join(letters)
    if is_tex:
        text = _STROKE.sub(lambda sign: normalize("NFC", f"{sign[1]}\u0338"), text).replace("↦→", "↦")
    return replace_surrogates(text)


def _is_scan(page: Any, length: int) -> bool:
    """Whether a page has something beside its text, and of that at most few characters, as a stamp."""
    from pypdfium2 import raw

    if not length:
        return any(part.type != raw.FPDF_PAGEOBJ_TEXT for part in page.get_objects())
    if length >= _FEW_CHARS:
        return False
    boxes = [image.get_bounds() for image in page.get_objects([raw.FPDF_PAGEOBJ_IMAGE])]
    covered = sum((right - left) * (top - bottom) for left, bottom, right, top in boxes)
    area = page.get_width() * page.get_height()
    return bool(length * area < _FEW_CHARS * min(area, covered))


def _office(path: Path, notes: list[str]) -> Iterator[str]:
    yield from filter(None, map(_lines, read_office(path, notes)))


def _flat(path: Path, notes: list[str]) -> Iterator[str]:
    yield _lines(read_flat(_markup(path, "XML"), notes))


def _lines(text: str) -> str:
    """A text without empty lines and repeated spaces."""
    return "\n".join(filter(None, (" ".join(line.split()) for line in text.splitlines())))


def _workbook(path: Path, notes: list[str]) -> Iterator[str]:
    """The first sheet as CSV."""
    table = read_table(path)
    notes += table.notes
    yield to_csv(table.cells)


def _rtf(path: Path, notes: list[str]) -> Iterator[str]:
    from striprtf.striprtf import rtf_to_text

    text = _markup(path, "RTF").decode("latin-1")
    if "{\\rtf" not in text[:99]:  # a fragment, of which only the first group would be read
        text = "{\\rtf1 " + "{" * (text.count("}") - text.count("{")) + text + "}"
    text = _UNSHOWN.sub(r"\1\\*", text)  # as groups that are not known
    text = re.sub(r"(?<!\\)\\footnote(?![a-z])", r"\\par", text)
    yield rtf_to_text(text, errors="replace")  # type: ignore[no-untyped-call]


def _markdown(path: Path, notes: list[str]) -> Iterator[str]:
    """The words of Markdown: no asterisks, addresses of links, or rules."""
    from markdown_it import MarkdownIt

    (text,) = _plain(path, notes)
    text = re.sub(r"(?m)^\[\^(.+?)\]:", r"\1:", text)  # a footnote
    page = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text)
    yield _text_of(page)


def _subtitles(path: Path, notes: list[str]) -> Iterator[str]:
    """The spoken lines of subtitles, without numbers, times and marks."""
    (text,) = _plain(path, notes)
    suffix = path.suffix.lower()
    if _CUES.get(suffix) == _FIELDS:
        lines = (line for line in text.splitlines() if line.startswith("Dialogue:"))
        text = re.sub(r"\\[Nn]", "\n", "\n".join(lines)).replace("\\h", " ")
    elif suffix == ".sub":
        text = text.replace("[br]", "\n").replace("|", "\n")
    text = re.sub(r"<v(?:\.[^<>\s]*)?[ \t]+([^<>\s][^<>\n]*)>", r"\1: ", text)  # who speaks
    blocks = "\n".join(text.splitlines()).split("\n\n")
    if blocks[0].startswith("WEBVTT"):
        blocks[0] = blocks[0].partition("\n")[2]
        cues = dropwhile(lambda block: "-->" not in block, blocks)  # styles and regions are above
        blocks = [block for block in cues if "-->" in block or not re.match(r"\s*NOTE\b", block)]
    yield _lines(html.unescape(re.sub(_CUES.get(suffix, _CUE), "", "\n\n".join(blocks), flags=re.MULTILINE)))


def _html(path: Path, notes: list[str]) -> Iterator[str]:
    yield _text_of(_markup(path, "HTML"))


def _email(path: Path, notes: list[str]) -> Iterator[str]:
    """What mail readers show of an e-mail or a stored web page; what else it has is named."""
    content, others = _markup(path, "an e-mail"), list[str]()
    if content.startswith(codecs.BOM_UTF8) or b"\0" in content[:100]:  # UTF-16
        content = "".join(_plain(path, notes)).encode()
    message = email.message_from_bytes(content, policy=email.policy.default.clone(header_factory=_header))
    yield from _texts_of_message(message, notes, others)
    notes += [Note("attached files were left out: {names}", names=", ".join(others))] if others else []


_MAX_HEADER = 5_000  # characters; Python takes a time that grows with their square, and longest for types


def _header(name: str, value: str) -> Any:
    """A header; addresses and dates as they are written, for Python fails to parse broken ones."""
    if name.lower().startswith(("content-", "mime-")):
        return email.policy.default.header_factory(name, value[:1000])
    shown = value if len(value) <= _MAX_HEADER else f"{value[:_MAX_HEADER]} …"
    return email.policy.default.header_factory("Subject", shown)


def _texts_of_message(part: Any, notes: list[str], others: list[str]) -> Iterator[str]:
    """The texts of a message or of a part of one. `others` gets the names of parts that are no text."""
    kind, texts = part.get_content_type(), ("plain", "html")
    if part["subject"]:
        yield str(part["subject"])
    if not re.match('["<]?Saved by ', str(part["from"])):  # a program that stored a page
        yield from (f"{name}: {part[name]}" for name in ("From", "To", "Cc", "Date") if part[name])
    if re.fullmatch("message/.+-(?:status|notification|report)", kind):
        for each in part.get_payload():
            yield from (f"{name}: {value}" for name, value in each.items())
            yield str(each.get_payload(decode=True) or b"", "utf-8", "replace")
    elif part.is_multipart():
        body = part.get_body(texts) if kind == "multipart/alternative" else None
        for each in part.get_payload() if body is None else [body]:
            yield from _texts_of_message(each, notes, others)
    elif not part.is_attachment() and (kind.removeprefix("text/") in texts or "multipart/" in kind):
        content: Any = part.get_payload(decode=True)
        with suppress(LookupError, UnicodeDecodeError):  # it may state none, or a wrong one
            content = content.decode(part.get_content_charset() or "")
        if isinstance(content, bytes) and kind != "text/html":
            content, assumed = decode_text(content)
            notes += assumed
        yield _text_of(content) if kind == "text/html" else content
    elif part.is_attachment() or not (part["content-id"] or part["content-location"]):  # of a page
        others.append(part.get_filename() or kind)


def _markup(path: Path, name: str) -> bytes:
    limit = archives.MAX_MARKUP
    with path.open("rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise InputError(f"{path.name} has more than {limit:,} bytes of {name}; give a part of it")
    return content


_INLINE = re.compile(
    "a|abbr|b|bdi|bdo|big|cite|code|data|del|dfn|em|emphasis|font|i|ins|kbd|mark|nobr|q|s|samp|small|span|strike"
    "|strong|sub|sup|time|tt|u|var|wbr"
)
"""Elements within a line, whose text joins that beside them."""
_BLOCK = re.compile(
    "address|article|aside|blockquote|br|caption|center|d[dlt]|details|dialog|dir|div|fieldset|figcaption|figure"
    "|footer|form|h[1-6]|header|hr|legend|li|main|menu|nav|ol|option|p|pre|section|subtitle|summary|sync|table"
    "|title|tr|ul|v"
)
"""Elements that begin and end a line, also those of FictionBook. Other elements are words of their own."""
_BETWEEN = ("", " ", "\n", " ", "\n")
"""Between texts, by the edges there: none, of a word, of a block, of a cell, of a row; the last prevails."""


class _PageText(HTMLParser):
    """The text of HTML, without a tree of its elements, which takes a hundred times the memory."""

    def __init__(self, *hidden: str) -> None:
        super().__init__()
        self.text, self._gap, self._end, self._label = io.StringIO(), 0, "\n", ""
        self._hides, self._hidden = ("script", "style", "template", "binary", *hidden), ""
        self._is_exact, self._numbers = False, list[int | None]()  # the number that is next in each open list

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._part(tag)
        self._hidden = self._hidden or (tag if tag in self._hides else "")
        self._is_exact |= tag == "pre"
        stated = dict(attrs)
        value = stated.get("start" if tag == "ol" else "value") or ""
        number = int(value) if re.fullmatch("-?[0-9]{1,9}", value) else None
        if tag in ("ol", "ul"):
            self._numbers.append((1 if number is None else number) if tag == "ol" else None)
        elif tag == "li" and self._numbers and (following := self._numbers[-1]) is not None:
            number = following if number is None else number
            self._label, self._numbers[-1] = f"{number}. ", number + 1
        elif tag == "input" and stated.get("type") in ("button", "reset", "submit"):
            self.handle_data(f"{value} ")

    def handle_endtag(self, tag: str) -> None:
        self._part(tag)
        self._hidden = "" if tag == self._hidden else self._hidden
        self._is_exact &= tag != "pre"
        if tag in ("ol", "ul"):
            self._label = ""  # of an item without text
            del self._numbers[-1:]

    def _part(self, tag: str) -> None:
        if not _INLINE.fullmatch(tag):
            edge = {"tr": 4, "table": 4, "td": 3, "th": 3}.get(tag, 2 if _BLOCK.fullmatch(tag) else 1)
            self._gap = max(self._gap, edge)

    def handle_data(self, data: str) -> None:
        if self._is_exact:
            text, gap = re.sub("^\r?\n", "", data) if self._gap > 1 else data, 0
        else:
            text, gap = " ".join(data.split()), int(data[-1:].isspace())
            self._gap = self._gap or int(data[:1].isspace())
        if text and not self._hidden:
            self.text.write(("" if self._end == "\n" else _BETWEEN[self._gap]) + self._label + text)
            self._gap, self._end, self._label = gap, text[-1], ""

    def unknown_decl(self, data: str) -> None:
        self.handle_data(data.removeprefix("CDATA["))


def _text_of(page: str | bytes, *hidden: str) -> str:
    """The text of HTML, with a line for each block; without that of some elements."""
    from bs4.dammit import UnicodeDammit

    text = page if isinstance(page, str) else UnicodeDammit(page, is_html=True).unicode_markup or ""
    # Tags that never end take the parser a time that grows with the square of their number.
    end = text.rfind(">") + 1
    parser = _PageText(*hidden)
    parser.feed(text[:end] + text[end:].partition("<")[0])
    parser.close()
    return parser.text.getvalue()


def _epub(path: Path, notes: list[str]) -> Iterator[str]:
    """The chapters of an e-book in reading order; each is an XHTML file."""
    from bs4 import BeautifulSoup

    with Archive(path) as file, zipfile.ZipFile(file) as archive:

        def parse(name: str) -> Any:
            return BeautifulSoup(dict(unpacked(path, archive, [name]))[name], "html.parser")

        package = str(parse("META-INF/container.xml").find("rootfile")["full-path"])
        listed = parse(package)
        items = {item["id"]: item for item in listed.find_all("item")}
        spine = [items[item["idref"]] for item in listed.find_all("itemref")]
        paths = [unquote(item["href"]) for item in spine if "nav" not in item.get("properties", "").split()]
        names = [posixpath.normpath(posixpath.join(posixpath.dirname(package), name)) for name in paths]
        if "META-INF/rights.xml" in archive.namelist():
            raise InputError(f"{path.name} is encrypted (DRM); give a copy without copy protection")
        yield from (_text_of(content, "title") for _, content in unpacked(path, archive, names))


_LOADERS: Mapping[str, tuple[str, Callable[[Path, list[str]], Any]]] = {
    detect.PDF: ("a PDF file", _plain),
    **dict.fromkeys(detect.WORKBOOKS, ("a workbook", _workbook)),
    detect.DOCX: ("a Word document", _office),
    detect.PPTX: ("a PowerPoint file", _office),
    **dict.fromkeys((detect.ODT, detect.ODP), ("an OpenDocument file", _office)),
    detect.FODT: ("an OpenDocument file", _flat),
    detect.EMAIL: ("an e-mail", _email),
    detect.RTF: ("a rich text file", _rtf),
    detect.HTML: ("an HTML page", _html),
    detect.EPUB: ("an e-book", _epub),
    detect.MARKDOWN: ("Markdown", _markdown),
    detect.SRT: ("subtitles", _subtitles),
}
