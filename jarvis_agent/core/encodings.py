"""Text in any encoding: byte order marks and UTF-8 first, else the likeliest of the common code pages."""

import codecs
import re
from unicodedata import category

from jarvis_agent.core.notes import Note

MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte order marks; that of UTF-32 begins with one of UTF-16."""

_COMMON = (  # noqa: SIM905
    "UTF-16-LE UTF-16-BE HZ-GB-2312 ISO-2022-JP ISO-2022-KR Windows-1252 GB18030 CP932 Big5 CP949 EUC-JP "
    "Windows-1251 Windows-1250 Windows-1253 Windows-1254 Windows-1255 Windows-1256 Windows-1257 Windows-1258 "
    "CP874 KOI8-U MacRoman IBM866 CP852 ISO-8859-2 ISO-8859-5 ISO-8859-6 ISO-8859-7"
).split()
"""Encodings without a mark. In all that exist, a short text is often more plausible."""

_WESTERN, _PREFERENCE = "Windows-1252", 1.7
"""The encoding of most texts without a mark, and a factor of its confidence. Of 92 short texts in 20
encodings, factors from 1.4 to 2 read 83 to 85 rightly, and 1 reads 82."""

_CONTROL = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f]")

_SHORTEST = 8  # fewest characters of a text in UTF-16 without a mark: a few bytes may be anything
_SAMPLE = 65_536  # bytes from which an encoding is guessed


def decode_text(content: bytes) -> tuple[str, list[str]]:
    """A text, and a note on its encoding unless that is certain. Raises UnicodeDecodeError: none fits."""
    is_padded = content.endswith(bytes(4))  # as after a loss of power
    content = content.rstrip(b"\0") if is_padded else content
    encoding, notes = find_encoding(content)
    if is_padded:  # the last letter in UTF-16 or UTF-32 may end in zeros
        return (content + bytes(-len(content) % 4)).decode(encoding, errors="replace").rstrip("\0"), notes
    return content.decode(encoding, errors="replace"), notes


def find_encoding(content: bytes) -> tuple[str, list[str]]:
    """Python's name of the encoding of a text, and a note unless that is certain. As `decode_text`."""
    import chardet

    certain = certain_encoding(content, is_whole=True)
    # Old e-mails have Chinese in 7 bits: ~{VPND~}.
    is_hz = b"~{" in content and chardet.detect(content[:_SAMPLE])["encoding"] == "HZ-GB-2312"
    if certain is not None and not is_hz:
        return certain, []
    text = "" if b"\0" in content else content.decode("utf-8", "replace")
    damaged, others = text.count("\ufffd"), len(text) - len(text.encode("ascii", "ignore"))
    # Of a word in another encoding some letters may be valid by chance; those beside them are not.
    is_word = re.search("\ufffd[^\0-\x7f]|[^\0-\x7f]\ufffd", text)
    if damaged and (4 if is_word else 2) * damaged < others:
        return "utf-8", [Note("damaged characters were replaced: {count}", count=damaged)]
    return _guess(content[:_SAMPLE])


def certain_encoding(content: bytes, *, is_whole: bool = False) -> str | None:
    """The encoding that a mark states, or UTF-8 if it fits. Unless `is_whole`, the end may be cut."""
    marked = next((encoding for mark, encoding in MARKS if content.startswith(mark)), None)
    if marked is not None or b"\0" in content or b"\x1b$" in content:  # ISO-2022 has escape sequences
        return marked
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        is_cut = error.start >= len(content) - 3 and error.reason == "unexpected end of data"
        return "utf-8" if is_cut and not is_whole else None
    return "utf-8"


def _guess(sample: bytes) -> tuple[str, list[str]]:
    import chardet

    # Numbers and English words say nothing, and hide what a few names say.
    telling = b"\n".join(line for line in sample.splitlines() if not line.isascii())
    is_wide = b"\0" in sample
    guesses = chardet.detect_all(sample if is_wide or not telling else telling, include_encodings=_COMMON)
    weights = {guess["encoding"]: guess["confidence"] for guess in guesses}
    weights[_WESTERN] = weights.get(_WESTERN, 0.0) * _PREFERENCE
    best = max(weights, key=weights.__getitem__)
    if best is None or not _is_plausible(sample.decode(best, "replace"), is_wide):
        raise UnicodeDecodeError("text", sample[:16], 0, 1, "no known encoding fits")
    name = {name.lower(): name for name in _COMMON}.get(best.lower(), best)
    return best, [Note("the encoding {name} was assumed", name=name)]


def _is_plausible(text: str, is_wide: bool) -> bool:
    """Whether a text has no control characters; in UTF-16 also zero bytes in place, and known characters."""
    if not is_wide:
        return not _CONTROL.search(text)
    swapped, plain = sum(ord(char) % 256 == 0 for char in text), sum(ord(char) < 256 for char in text)
    is_known = all(category(char) != "Cn" for char in text)
    return is_known and swapped < plain and len(text) >= _SHORTEST and not _CONTROL.search(text)
