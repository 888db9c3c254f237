"""Text in any encoding: byte order marks and UTF-8 first, else the most plausible of the common code pages.

decode_text(b"Jos\xe9")                      # ("José", ["the encoding Windows-1252 was assumed"])
"""

from __future__ import annotations

import codecs
import re

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
    "cp1252 gb18030 cp932 shift_jis big5 cp949 euc_jp cp1251 cp1250 cp1253 cp1254 cp1255 cp1256 cp1257 cp874 "
    "koi8_r mac_roman utf_16_le utf_16_be cp866 iso8859_5 mac_cyrillic iso8859_2 iso8859_7 cp855"
).split()
"""Encodings without a mark, by Python's name; of equally plausible ones the first is assumed."""

_CONTROL = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f]")

_EBCDIC = ["cp037", "cp273", "cp424", "cp500", "cp875", "cp1026", "cp1140"]
"""Encodings of mainframes, in which any bytes are letters."""

_SHORTEST = 8  # fewest characters of a text in UTF-16 without a mark: a few bytes may be anything
_SAMPLE = 65_536  # bytes from which an encoding is guessed


def decode_text(content: bytes) -> tuple[str, list[str]]:
    """A text, and a note on its encoding unless that is certain. Raises UnicodeDecodeError: none fits."""
    encoding, notes = find_encoding(content)
    return content.decode(encoding, errors="replace"), notes


def find_encoding(content: bytes) -> tuple[str, list[str]]:
    """Python's name of the encoding of a text, and a note unless that is certain. As `decode_text`."""
    if (certain := certain_encoding(content)) is not None:
        return certain, []
    damaged = 0 if b"\0" in content else (text := content.decode("utf-8", "replace")).count("\ufffd")
    if damaged and 20 * damaged < len(text) - len(text.encode("ascii", "ignore")):
        return "utf-8", [Note("damaged characters were replaced: {count}", count=damaged)]
    return _guess(content[:_SAMPLE])


def certain_encoding(content: bytes) -> str | None:
    """The encoding that a mark states, or UTF-8 if it fits; the content may be the beginning of a text."""
    marked = next((encoding for mark, encoding in MARKS if content.startswith(mark)), None)
    if marked is not None or b"\0" in content or b"\x1b$" in content:  # ISO-2022 has escape sequences
        return marked
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        is_cut = error.start >= len(content) - 3 and error.reason == "unexpected end of data"
        return "utf-8" if is_cut else None
    return "utf-8"


def _guess(sample: bytes) -> tuple[str, list[str]]:
    from charset_normalizer import CharsetMatch, from_bytes

    is_wide = b"\0" in sample

    def names(match: CharsetMatch) -> list[str]:
        """The encodings in which the sample is the same text, the most common first."""
        return [name for name in _COMMON if name in match.could_be_from_charset]

    def rank(match: CharsetMatch) -> tuple[float, bool, float, int]:
        place = _COMMON.index(names(match)[0]) if names(match) else len(_COMMON)
        return round(match.chaos, 1), not names(match), -round(match.coherence, 1), place

    whole = sample[: len(sample) // 2 * 2] if is_wide else sample
    matches = from_bytes(whole, cp_exclusion=_EBCDIC)
    plausible = [match for match in matches if match.encoding.startswith("utf") == is_wide]
    best = min(plausible, key=rank, default=None)
    if best is None or not _is_plausible(str(best), is_wide):
        raise UnicodeDecodeError("text", sample[:16], 0, 1, "no known encoding fits")
    encoding = next(iter(names(best)), best.encoding)
    is_windows = encoding.startswith(("cp125", "cp874"))
    label = f"Windows-{encoding[2:]}" if is_windows else encoding.upper().replace("_", "-")
    return encoding, [Note("the encoding {name} was assumed", name=label)]


def _is_plausible(text: str, is_wide: bool) -> bool:
    """Whether a decoded text has no control characters, and zero bytes where UTF-16 has them."""
    swapped, plain = sum(ord(char) % 256 == 0 for char in text), sum(ord(char) < 256 for char in text)
    return not _CONTROL.search(text) and (not is_wide or (swapped < plain and len(text) >= _SHORTEST))
