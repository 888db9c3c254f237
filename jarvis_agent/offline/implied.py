"""Tasks that are wanted along with another one, by words that are no step of their own.

Such as:
    "describe cat.jpg in French"             a caption, and its translation
    "tell me what animal it is, aloud"       a classification, and its label spoken
    "dub it"                                 speech, and the video joined with it
    "describe it in as much detail as possible"     a caption, and classes, boxes, masks and an answer
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from jarvis_agent.offline.extraction import language_phrase
from jarvis_agent.offline.patterns import pattern

_ALOUD = pattern("implied.ALOUD")
_IN_DETAIL = pattern("implied.IN_DETAIL")
_DUBBED = pattern("implied.DUBBED")
_COUNTING = pattern("implied.COUNTING")


def _words_of(pattern: re.Pattern[str]) -> Callable[[str], str | None]:
    return lambda text: match.group() if (match := pattern.search(text)) else None


@dataclass(frozen=True, slots=True)
class Companion:
    """One row of the table.

    Attributes:
        after: bank names of the tasks that it goes with; empty: every task that makes a text.
        cue: gives the words of a step that ask for it, or None.
        tasks: bank names of the tasks that are added.
        on_result: whether they work on the task's result, or on what the task itself works on.
        several: only where the task is run for several files.
    """

    after: frozenset[str]
    cue: Callable[[str], str | None]
    tasks: tuple[str, ...]
    on_result: bool = True
    several: bool = False


COMPANIONS: tuple[Companion, ...] = (
    Companion(
        frozenset({"image-to-text"}),
        _words_of(_IN_DETAIL),
        ("image-classification", "object-detection", "image-segmentation", "visual-question-answering"),
        on_result=False,
    ),
    Companion(
        frozenset({"object-detection"}),
        _words_of(_COUNTING),
        ("image-to-text",),
        on_result=False,
        several=True,
    ),
    Companion(
        frozenset({"image-to-text", "automatic-speech-recognition", "summarization"}),
        language_phrase,
        ("translation",),
    ),
    Companion(frozenset(), _words_of(_ALOUD), ("text-to-speech",)),
    Companion(frozenset({"text-to-speech"}), _words_of(_DUBBED), ("combine-video-audio",)),
)
