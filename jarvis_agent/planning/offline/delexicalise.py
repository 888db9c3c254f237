"""Delexicalisation: a step with nouns for its files and texts, as in the phrases of the bank.

    readings("please translate the caption of \\ue000", masked)
    # Readings(as_is=("translate the caption of the image",), as_text="translate the caption of the text")

The second reading is for tasks that work on texts, for which the file would first be turned into one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from jarvis_agent.core.tasks.spec import Modality
from jarvis_agent.planning.offline.clauses import without_lead_in
from jarvis_agent.planning.offline.extraction import language_phrase, prompt
from jarvis_agent.planning.offline.masking import MARK, Entity, MaskedText
from jarvis_agent.planning.offline.patterns import Patterns, word

_RE = Patterns("delexicalise")

_WORDS: Mapping[Modality, str] = {
    "image": "the image",
    "audio": "the recording",
    "video": "the video",
    "text": "the text",
    "table": "the table",
}
SPEAKER = word("words.SPEAKER")
"""The user, also in the third person ("the user wants …")."""
_LONGEST_CLAUSE = 300
_NOUN = word("delexicalise.NOUN")

_KIND = word("delexicalise.KIND")
_STOCK_PROMPT = "a zeppelin"
"""Replaces the prompt of a step. The bank has phrases with it, and few requests have it."""


@dataclass(frozen=True, slots=True)
class Readings:
    """A step as it is compared with phrases.

    Attributes:
        as_is: the step with nouns for its files; if it has a prompt, again with a stock prompt, since a long
            prompt would outweigh the rest.
        as_text: the step as if its files had been turned into texts.
        as_sound: the step as if the sound of its videos had been taken out.
    """

    as_is: tuple[str, ...]
    as_text: str
    as_sound: str


def readings(text: str, masked: MaskedText, context: str = "") -> Readings:
    """The readings of a step's text, after a context that may say what "it" is."""
    words = _RE.ONE_OF_THEM.sub("it", without_lead_in(text))
    if len(of := masked.within(context)) == 1 and not masked.within(text):
        words = _RE.IT.sub(_kind_of(of[0]), words, count=1)
    words = _several(words, masked)
    if (language := language_phrase(words)) and _RE.OF_ANOTHER.search(words):
        words = words.replace(language, "").strip()
    as_text = re.sub(rf"(?:\b(?:the |this |an? )?{_KIND}\s+)?{MARK}", "the text", words, flags=re.IGNORECASE)
    named = re.sub(rf"\b({_KIND})\s+(?:named |called )?{MARK}", r"\1", words, flags=re.IGNORECASE)
    as_is = _with_kinds(named, masked)
    said = prompt(text)
    as_sound = re.sub(r"\b(?:the |this |my )?(?:video|clip|film)\b", "the recording", as_is)
    if said is None:
        return Readings((as_is,), as_text, as_sound)
    return Readings((as_is, as_is.replace(_with_kinds(said, masked), _STOCK_PROMPT)), as_text, as_sound)


def _several(words: str, masked: MaskedText) -> str:
    """Marks in a row as one noun, in the plural after "of" ("which of the images")."""
    row = rf"({MARK})(?:(?:\s*,\s*|\s*and\s*|\s*or\s*|\s)+{MARK})+"
    return re.sub(
        rf"\bof {row}",
        lambda match: f"of {_kind_of(masked.marks[match[1]])}s",
        re.sub(rf"(?<!\bof ){row}", r"\1", words),
    )


def _with_kinds(text: str, masked: MaskedText) -> str:
    return "".join(_kind_of(masked.marks[c]) if c in masked.marks else c for c in text)


def is_document(mark: Entity) -> bool:
    """Whether it is an image whose name says that it is one of a document."""
    return mark.kind == "image" and _RE.DOCUMENT.search(mark.value) is not None


def _kind_of(mark: Entity) -> str:
    if is_document(mark):
        return "the document image"
    return _WORDS.get(mark.kind, "the file")


def clause_words(text: str, masked: MaskedText) -> str:
    """A clause without its opening words, with nouns in place of its marks."""
    words = _RE.LEFT_OVER.sub("", without_lead_in(text)) or text
    words = _RE.GROUNDS.sub(r"\1", words)
    words = re.sub(rf"\(\s*({MARK})\s*\)", r"\1", words)
    words = re.sub(
        rf"{_NOUN}({MARK})", lambda m: f" {_noun_of(masked.marks[m[1]])} ", words, flags=re.IGNORECASE
    )
    return re.sub(r"\s+", " ", words).strip(" .,;:!()'\"")[:_LONGEST_CLAUSE]


def _noun_of(mark: Entity) -> str:
    if mark.kind == "text" and not mark.is_file and mark.value.rstrip(" .'\"").endswith(("?", "？")):
        return "the question"
    return {"image": "the image", "audio": "the audio", "video": "the video"}.get(mark.kind, "the text")
