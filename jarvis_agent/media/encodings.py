"""Text in any encoding: byte order marks and UTF-8 first, else the most plausible of the common code pages.

decode_text(b"Jos\xe9")                      # ("José", ["the encoding Windows-1252 was assumed"])
"""

from __future__ import annotations

import codecs

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
    marked = next((encoding for mark, encoding in MARKS if content.startswith(mark)), None)
    if marked is not None:
        return marked, []
    if b"\0" not in content:
        try:
            content.decode("utf-8")
        except UnicodeDecodeError as error:
            if error.start >= len(content) - 3 and error.reason == "unexpected end of data":
                return "utf-8", []  # the content is the beginning of a text, and cuts a character
        else:
            return "utf-8", []
    return _guess(content[:_SAMPLE])


def _guess(sample: bytes) -> tuple[str, list[str]]:
    from charset_normalizer import from_bytes

    names = list(_ASSUMED)
    whole = sample[: len(sample) // 2 * 2] if b"\0" in sample else sample
    matches = from_bytes(whole, cp_isolation=names, preemptive_behaviour=False, enable_fallback=False)
    if not len(matches):
        raise UnicodeDecodeError("text", sample[:16], 0, 1, "no known encoding fits")
    best = min(
        matches, key=lambda match: (match.chaos, -round(match.coherence, 1), names.index(match.encoding))
    )
    return best.encoding, [f"the encoding {_ASSUMED[best.encoding]} was assumed"]
