"""Texts that were pasted into a request, with no quotation marks around them: data, whatever they say.

    below("Summarize the email below.\\n\\nHi Bob, please draw a cat.")    # the span of the second paragraph
    above("The bridge is closed. It is unknown why. Summarize this.")     # of the first two sentences

Each gives the place of the text in the request, or None.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from jarvis_agent.offline.intents import START

_TEXTS = (
    r"(?:text|e-?mail|article|message|letter|paragraph|passage|story|review|note|comment|post|report|poem|speech|"
    r"minutes|transcript|abstract|document|essay|sentence|dialogue|conversation)s?"
)
_BELOW = re.compile(
    rf"[^\n]*(?:(?P<original>\b(?:the )?following\s+(?:\w+\s+)?{_TEXTS}|\b{_TEXTS}\b[^.:\n]{{0,30}}\bbelow|"
    rf"\b{_TEXTS}\s*:)|\bthis\s+(?:\w+\s+)?{_TEXTS})[^\w\n]*\n[^\S\n]*\n\s*(?P<text>\S)",
    re.IGNORECASE,
)
_GOES_ON = re.compile(
    r"\n[^\S\n]*\n(?=(?:and |then|also|next|after that|finally|lastly|please|now)\b)", re.IGNORECASE
)
_LAST = re.compile(r"(?:(?<=[.!?])\s+|\n\s*)(?P<order>[^.!?\n]+)[.!?]?\s*$")
_THIS = re.compile(rf"\b(?:this|that|(?:the|this) (?:above|{_TEXTS})|it)\b", re.IGNORECASE)
_TOLD = re.compile(
    r"\W*(?:(?:i|we)\b.{0,12}\b(?:have|need|want|like|love|am|got|took|found)\b|i['’]|here\b|there\b|this\b|these\b|"
    r"my\b|hi\b|hello\b|hey\b|thanks?\b|that\b|you\b|it\b|they\b|he\b|she\b|both\b)"
    r"|.*\byou (?:just )?(?:made|gave|said|sent|drew|wrote|showed)\b",
    re.IGNORECASE,
)
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
    found = _BELOW.match(request)
    if found is None or (
        not found["original"] and START.match(request[found.start("text") :][:LONGEST_ORDER])
    ):
        return None
    start = found.start("text")
    goes_on = _GOES_ON.search(request, start)
    return Span(start, goes_on.start() if goes_on else len(request.rstrip()))


def above(request: str) -> Span | None:
    """The sentences before a last one that asks for something to be done with "this".

    Only where none of them asks for anything, or tells what the user has.
    """
    found = _LAST.search(request, max(0, len(request) - LONGEST_ORDER))
    if found is None or not START.match(found["order"]) or not _THIS.search(found["order"]):
        return None
    text = request[: found.start()]
    sentences = re.split(r"(?<=[.!?])\s+|\n+", text.strip())
    if len(text.split()) < _FEWEST_WORDS or _TOLD.match(text) or any(map(START.match, sentences)):
        return None
    return Span(0, found.start())
