"""How people ask for tools in passing, and which tool they mean by the same words of another thing.

A new habit is a row of a table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TRANSLATION, HEARD = "translation", "automatic-speech-recognition"
_TONGUES = "French|Spanish|German|Italian|Chinese|Japanese|Russian|Korean|Portuguese|Hindi|Arabic|Dutch"
_LANGUAGE = re.compile(
    rf"\b(?:in|into|to) ({_TONGUES})\b(?! (?:text|audio|document|article|image))"
    rf"|\b({_TONGUES}) (?:audio|version|speech|translation|summary)\b"
)


@dataclass(frozen=True, slots=True)
class Swap:
    """A tool, and the one that is meant instead by what there is to work on.

    Attributes:
        after: the kinds that may have been made last; empty: nothing was made.
        cue: must be found in the clause, or in the whole request (`anywhere`).
        unless: must not be found in the clause.
    """

    tool: str
    instead: str
    after: tuple[str, ...]
    cue: re.Pattern[str]
    unless: re.Pattern[str]
    anywhere: bool = False

    def holds(self, tool: str, last: str, clause: str, request: str) -> bool:
        """Whether the other tool is meant by a clause; `last` is the kind that was made last."""
        if tool != self.tool or last not in self.after or self.unless.search(clause):
            return False
        return bool(self.cue.search(request if self.anywhere else clause))


SWAPS = (
    Swap(
        "image-classification",
        "tabular-classification",
        ("", "image"),
        re.compile(
            r"\b(?:image|picture|photo)\b[^.]{0,30}\btables?\b|\btab(?:le|ular) (?:image|data|file)",
            re.IGNORECASE,
        ),
        re.compile(r"\bobjects?\b", re.IGNORECASE),
        anywhere=True,
    ),
    Swap(
        "image-to-text",
        "text-generation",
        ("text",),
        re.compile(r"\b(?:descri|explain|caption)", re.IGNORECASE),
        re.compile(r"\b(?:images?|pictures?|photos?|scene)\b", re.IGNORECASE),
    ),
)

IMPLIED = {
    HEARD: re.compile(r"\b(?:transcribed|transcription|transcript)\b", re.IGNORECASE),
    TRANSLATION: re.compile(r"\btranslated\b", re.IGNORECASE),
    "image-segmentation": re.compile(r"\bsegmented\b", re.IGNORECASE),
    "image-editing": re.compile(r"\b(?:edited|modified) (?:image|picture|photo|version)\b", re.IGNORECASE),
}
"""By tool: words that name what it made, where no clause asks for it."""

BESIDE = {
    "text-to-speech": (
        "text",
        re.compile(
            r"\bin (?:an? )?(?:both )?(?:text and )?(?:audio|spoken|speech|voice) (?:format|form)\b"
            r"|\bin the form of (?:an? )?(?:audio|speech)\b|\bas (?:an? )?(?:audio|speech|voice message)\b"
            r"|\b(?:aloud|out loud)\b",
            re.IGNORECASE,
        ),
    ),
    "audio-to-audio": (
        "audio",
        re.compile(
            r"\b(?:enhanced|improved|better|higher?)[\w -]{0,14}\b(?:quality|clarity)\b|\benhanced\b",
            re.IGNORECASE,
        ),
    ),
}
"""By tool: after tools that make which kind of a text, and by which words in passing, it is wanted too."""


def language_in_passing(text: str) -> str | None:
    """The language in which a clause wants what it asks for ("an audio version in French")."""
    found = _LANGUAGE.search(text)
    return (found[1] or found[2]) if found else None
