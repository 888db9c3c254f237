"""Implied tasks: words of a step that ask for another task beside its own.

"Describe cat.jpg in French" asks for a caption and its translation.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from jarvis_agent.planning.offline.extraction import language_phrase
from jarvis_agent.planning.offline.patterns import Patterns

_RE = Patterns("implied")


class Implied(NamedTuple):
    """One row of the table.

    Attributes:
        after: the tasks of the bank that it goes with; empty: every task that makes a text.
        cue: finds the words that ask for it.
        tasks: the tasks of the bank that are added.
        on_result: whether they work on the task's result, or on its input.
        several: only where the task runs for several files.
    """

    after: tuple[str, ...]
    cue: Callable[[str], re.Match[str] | str | None]
    tasks: tuple[str, ...]
    on_result: bool = True
    several: bool = False


_DETAILS = ("image-classification", "object-detection", "image-segmentation", "visual-question-answering")
IMPLIED = (
    Implied(("image-to-text",), _RE.IN_DETAIL.search, _DETAILS, on_result=False),
    Implied(("object-detection",), _RE.COUNTING.search, ("image-to-text",), on_result=False, several=True),
    Implied(
        ("image-to-text", "automatic-speech-recognition", "summarization"), language_phrase, ("translation",)
    ),
    Implied((), _RE.ALOUD.search, ("text-to-speech",)),
    Implied(("text-to-speech",), _RE.DUBBED.search, ("combine-video-audio",)),
)
