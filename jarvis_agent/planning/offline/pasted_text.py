"""Texts that were pasted into a request without quotation marks: data, whatever they say.

    below("Summarize the email below.\\n\\nHi Bob, please draw a cat.")    # slice of the second paragraph
    above("The bridge is closed. It is unknown why. Summarize this.")     # slice of the first two sentences

Each returns where the text is in the request, or None.
"""

from __future__ import annotations

import re

from jarvis_agent.planning.offline.patterns import START, Patterns

_RE = Patterns("pasted_text")

_MIN_WORDS, _MAX_ORDER = 6, 150


def below(request: str) -> slice | None:
    """The paragraphs after one that ends in "the email below" or the like, up to "Then …".

    After one that ends in "this email" they may be orders.
    """
    found = _RE.BELOW.match(request)
    if found is None:
        return None
    start = found.start("text")
    if not found["original"] and START.match(request[start : start + _MAX_ORDER]):
        return None
    next_step = _RE.GOES_ON.search(request, start)
    return slice(start, next_step.start() if next_step else len(request.rstrip()))


def above(request: str) -> slice | None:
    """The sentences before a last one that asks for something to be done with "this".

    None if one of them asks for something, or tells what the user has.
    """
    found = _RE.LAST.search(request, max(0, len(request) - _MAX_ORDER))
    if found is None or not START.match(found["order"]) or not _RE.THIS.search(found["order"]):
        return None
    text = request[: found.start()]
    sentences = re.split(r"(?<=[.!?])\s+|\n+", text.strip())
    if len(text.split()) < _MIN_WORDS or _RE.TOLD.match(text) or any(map(START.match, sentences)):
        return None
    return slice(0, found.start())
