"""Limits on the length of sentences and requests, which bound the time of the rules.

    bounded("describe          \\ue000")     # "describe \\ue000"
    ends(text)                              # the same text, or its beginning and its end
Regular expressions take quadratic time or worse and cannot be interrupted.
"""

from __future__ import annotations

import re

MOST_LETTERS = 600
"""What is longer than that without a line break gets one: after a sentence, else between words."""

MOST_READ = 10_000
"""The most letters of a text that are read: half of them from its beginning, half from its end."""

_BLANKS = re.compile(r"[^\S\n]+")
_BREAKS = re.compile(r"\n[ \n]+")
_LONG = re.compile(rf"[^\n]{{{MOST_LETTERS + 1},}}")
_PIECE = re.compile(
    rf"[^\n]{{1,{MOST_LETTERS}}}(?:(?<=[.!?;])(?=\s)|(?<=[。！？；])|$)"
    rf"|[^\n]{{{MOST_LETTERS // 2},{MOST_LETTERS}}}(?=[\s,，、])"
    rf"|[^\n]{{{MOST_LETTERS}}}"
)
_TORN_LAST, _TORN_FIRST = re.compile(r"\s\S{0,50}\Z"), re.compile(r"\A\S{0,50}\s")
"""The word that a cut went through. What is longer is no word: Chinese may be thousands of letters without a
blank."""


def bounded(text: str) -> str:
    """A text with line breaks in its overlong lines."""
    return _LONG.sub(lambda line: "\n".join(_PIECE.findall(line.group())), text)


def single_spaced(text: str) -> str:
    """A text with single blanks and line breaks."""
    return _BREAKS.sub("\n", _BLANKS.sub(" ", text))


def ends(text: str) -> str:
    """A text as it is; of one of more than `MOST_READ` letters the beginning and the end, in whole words."""
    if len(text) <= MOST_READ:
        return text
    half = MOST_READ // 2
    return "\n".join((_TORN_LAST.sub("", text[:half]), _TORN_FIRST.sub("", text[-half:])))
