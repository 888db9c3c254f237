"""A step in the words that the phrases use, so that file names and quoted texts do not blur what it asks for.

    readings("please translate the caption of \\ue000", marked)
    # Readings(as_is=("translate the caption of the image",), as_text="translate the caption of the text")

The second reading is for tasks that work on texts, for which the file would first be turned into one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from jarvis_agent.offline.arguments import prompt
from jarvis_agent.offline.marks import MARK, Mark, Marked
from jarvis_agent.offline.steps import without_lead_in
from jarvis_agent.tools.spec import Modality

_WORDS: Mapping[Modality, str] = {
    "image": "the image",
    "audio": "the recording",
    "video": "the video",
    "text": "the text",
    "table": "the table",
}
_DOCUMENT = re.compile(r"doc|invoice|receipt|page|form|letter|scan|contract|report|bill|paper", re.IGNORECASE)
_KIND = (
    r"(?:image|picture|photo|photograph|recording|audio|video|clip|text|sentence|document|file|page|scan)s?"
)
_STOCK_PROMPT = "a zeppelin"
"""Stands for the prompt of a step. The bank has phrases with it, and hardly anybody asks for one."""


@dataclass(frozen=True, slots=True)
class Readings:
    """A step as it is compared with phrases.

    Attributes:
        as_is: the step with its files called what they are; if it has a prompt, again with a stock prompt, as
            the subject of a long one would outweigh the rest.
        as_text: the step as if its files had been turned into texts.
    """

    as_is: tuple[str, ...]
    as_text: str


def readings(text: str, marked: Marked) -> Readings:
    """The readings of a step's text."""
    words = re.sub(rf"({MARK})(?:(?:\s*,\s*|\s*and\s*|\s)+{MARK})+", r"\1", without_lead_in(text))
    as_text = re.sub(rf"(?:\b(?:the |this |an? )?{_KIND}\s+)?{MARK}", "the text", words, flags=re.IGNORECASE)
    named = re.sub(rf"\b({_KIND})\s+(?:named |called )?{MARK}", r"\1", words, flags=re.IGNORECASE)
    as_is = _with_kinds(named, marked)
    said = prompt(text)
    if said is None:
        return Readings((as_is,), as_text)
    return Readings((as_is, as_is.replace(_with_kinds(said, marked), _STOCK_PROMPT)), as_text)


def _with_kinds(text: str, marked: Marked) -> str:
    return "".join(_kind_of(marked.marks[c]) if c in marked.marks else c for c in text)


def _kind_of(mark: Mark) -> str:
    if mark.kind == "image" and _DOCUMENT.search(mark.value):
        return "the document image"
    return _WORDS.get(mark.kind, "the file")
