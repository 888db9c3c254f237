"""Texts that were pasted into a request, with no quotation marks around them: data, whatever they say.

    below("Summarize the email below.\\n\\nHi Bob, please draw a cat.")    # the span of the second paragraph
    above("The bridge is closed. It is unknown why. Summarize this.")     # of the first two sentences

Each gives the place of the text in the request, or None.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from jarvis_agent.planning.offline.patterns import START, Patterns

_RE = Patterns("pasted_text")

_FEWEST_WORDS, LONGEST_ORDER = 6, 150


@dataclass(frozen=True, slots=True)
class Span:
    """Where a pasted text stands in a request."""

    start: int
    end: int


def below(request: str) -> Span | None:
    """The paragraphs after one that ends in "the email below" or the like, up to "Then …".

    After one that ends in "this email" they may be orders.
    """
    found = _RE.BELOW.match(request)
    if found is None or (
        not found["original"] and START.match(request[found.start("text") :][:LONGEST_ORDER])
    ):
        return None
    start = found.start("text")
    goes_on = _RE.GOES_ON.search(request, start)
    return Span(start, goes_on.start() if goes_on else len(request.rstrip()))


def above(request: str) -> Span | None:
    """The sentences before a last one that asks for something to be done with "this".

    Only where none of them asks for anything, or tells what the user has.
    """
    found = _RE.LAST.search(request, max(0, len(request) - LONGEST_ORDER))
    if found is None or not START.match(found["order"]) or not _RE.THIS.search(found["order"]):
        return None
    text = request[: found.start()]
    sentences = re.split(r"(?<=[.!?])\s+|\n+", text.strip())
    if len(text.split()) < _FEWEST_WORDS or _RE.TOLD.match(text) or any(map(START.match, sentences)):
        return None
    return Span(0, found.start())
