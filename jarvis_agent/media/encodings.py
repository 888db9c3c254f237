"""Text in any encoding: byte order marks and UTF-8 first, else the most plausible of the common code pages.

decode_text(b"Jos\xe9")                      # ("José", ["the encoding Windows-1252 was assumed"])
"""

from __future__ import annotations

import codecs
import re

MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte order marks; that of UTF-32 begins with one of UTF-16."""

_ASSUMED = {
    "cp1252": "Windows-1252",
    "gb18030": "GB18030",
    "cp932": "Shift-JIS",
    "big5": "Big5",
    "cp949": "EUC-KR",
    "euc_jp": "EUC-JP",
    "cp1251": "Windows-1251",
    "cp1250": "Windows-1250",
    "cp1253": "Windows-1253",
    "cp1254": "Windows-1254",
    "cp1255": "Windows-1255",
    "cp1256": "Windows-1256",
    "cp1257": "Windows-1257",
    "cp874": "Windows-874",
    "koi8_r": "KOI8-R",
    "mac_roman": "Mac Roman",
    "cp850": "DOS 850",
    "utf_16_le": "UTF-16",
    "utf_16_be": "UTF-16",
}
"""Encodings without a mark, by Python's name; of equally plausible ones the first is assumed."""

_CONTROL = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f]")

_SAMPLE = 65_536
"""Bytes by which an encoding is guessed."""


def decode_text(content: bytes) -> tuple[str, list[str]]:
    """A text, and a note on its encoding unless that is certain.

    Raises:
        UnicodeDecodeError: it is no text in a known encoding.
    """
    encoding, notes = find_encoding(content)
    return content.decode(encoding, errors="replace"), notes


def find_encoding(content: bytes) -> tuple[str, list[str]]:
    """Python's name of the encoding of a text, and a note unless that is certain. As `decode_text`."""
    if (certain := certain_encoding(content)) is not None:
        return certain, []
    return _guess(content[:_SAMPLE])


def certain_encoding(content: bytes) -> str | None:
    """The encoding that a mark states, or UTF-8 if it fits; the content may be the beginning of a text."""
    marked = next((encoding for mark, encoding in MARKS if content.startswith(mark)), None)
    if marked is not None or b"\0" in content:
        return marked
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        is_cut = error.start >= len(content) - 3 and error.reason == "unexpected end of data"
        return "utf-8" if is_cut else None
    return "utf-8"


def _guess(sample: bytes) -> tuple[str, list[str]]:
    from charset_normalizer import from_bytes

    is_wide = b"\0" in sample
    names = [name for name in _ASSUMED if is_wide == name.startswith("utf")]
    whole = sample[: len(sample) // 2 * 2] if is_wide else sample
    matches = from_bytes(whole, cp_isolation=names, preemptive_behaviour=False, enable_fallback=False)
    ranked = sorted(
        (match.chaos, -round(match.coherence, 1), names.index(match.encoding), str(match))
        for match in matches
    )
    if not ranked or not _is_plausible(ranked[0][3], is_wide):
        raise UnicodeDecodeError("text", sample[:16], 0, 1, "no known encoding fits")
    name = names[ranked[0][2]]
    return name, [f"the encoding {_ASSUMED[name]} was assumed"]


def _is_plausible(text: str, is_wide: bool) -> bool:
    """Whether a decoded text has no control characters, and zero bytes where UTF-16 has them."""
    swapped, plain = sum(ord(char) % 256 == 0 for char in text), sum(ord(char) < 256 for char in text)
    return not _CONTROL.search(text) and (not is_wide or swapped < plain)
