"""Sentences of a length that rules can be tried on, however long a text somebody pastes.

    bounded("describe          \\ue000")     # "describe \\ue000"

The time that regular expressions take grows with the square of a sentence's length, or worse, and nothing
can interrupt them. No order that people give is near the bound.
"""

from __future__ import annotations

import re

MOST_LETTERS = 600
"""What is longer than that without a line break gets one: after a sentence, else between words."""

_BLANKS = re.compile(r"[^\S\n]+")
_BREAKS = re.compile(r"\n[ \n]+")
_LONG = re.compile(rf"[^\n]{{{MOST_LETTERS + 1},}}")
_PIECE = re.compile(
    rf"[^\n]{{1,{MOST_LETTERS}}}(?:(?<=[.!?;])(?=\s)|(?<=[。！？；])|$)"
    rf"|[^\n]{{{MOST_LETTERS // 2},{MOST_LETTERS}}}(?=[\s,，、])"
    rf"|[^\n]{{{MOST_LETTERS}}}"
)


def bounded(text: str) -> str:
    """A marked text with single blanks and line breaks, and with line breaks in its overlong lines."""
    lines = _BREAKS.sub("\n", _BLANKS.sub(" ", text))
    return _LONG.sub(lambda line: "\n".join(_PIECE.findall(line.group())), lines)
