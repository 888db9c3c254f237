"""Verbs that a sentence leaves out, put where they belong.

with_verbs("Translate \\ue000 into French and \\ue001 into German")
# "Translate \\ue000 into French and translate \\ue001 into German"
with_verbs("For \\ue000: caption, depth map")     # "For \\ue000, give me caption, then give me depth map"
with_verbs("A picture of a fox, please.")         # "Give me A picture of a fox, please."
"""

from __future__ import annotations

import re

from jarvis_agent.planning.offline.asking import ACTIONS, BEFORE, START
from jarvis_agent.planning.offline.marks import FIRST_MARK, LAST_MARK, MARK
from jarvis_agent.planning.offline.wordings import results

_MARKS = f"{FIRST_MARK}-{LAST_MARK}"
_VERB = rf"(?:{ACTIONS})"
_AND = r"(?:\s*,\s*(?:and\s+|while\s+)?|\s+(?:and|while)\s+)"
_PLACED = r"(?:to|into|in|as|at|by|down to|up to|onto|on)"
_THING = r"(?:the|an?)\s+[\w -]{1,30}?"

_SHARED = (
    (
        re.compile(rf"{_AND}(?=(?:(?:the|my)\s+(?:\w+\s+)?)?{MARK}\s+{_PLACED}\s)", re.IGNORECASE),
        re.compile(
            rf".*\b(?P<verb>{_VERB})\s(?:(?!\b{_VERB}\s)[^.!?;])*{MARK}\s+{_PLACED}\s[^.!?;{_MARKS}]*$",
            re.IGNORECASE,
        ),
    ),
    (
        re.compile(
            rf"{_AND}(?={_THING}\s(?:of|in|from|on)\s{MARK}(?:\s+to\s|\W*$))",
            re.IGNORECASE,
        ),
        re.compile(
            rf".*\b(?P<verb>{_VERB})\s+{_THING}\s(?:of|in|from|on)\s{MARK}(?:\s+to\s[^.!?;{_MARKS}]+)?$",
            re.IGNORECASE,
        ),
    ),
)
"""Where another thing begins that something is done to, and what must stand before it: the verb, the first
such thing, and into what ("resize \ue000 to 300", "use the pose of \ue000 to draw a fox")."""

_ITEM = re.compile(
    r"(?:(?:the|its?|an?|all|some)\s+)*(?:[\w-]+\s+){0,2}?"
    rf"(?:{results()})s?(?:\s+(?:of|in|from|for)\s[\w ]{{1,30}})?",
    re.IGNORECASE,
)
"""A noun for a result, of which several may stand in a row ("for \ue000 I need a caption and depth map")."""
_LIST_OF = re.compile(
    r"\s*:\s*|\b(?:i(?: would|['’]d)? (?:need|want|like)|give me|show me|get me)\s*:?\s+", re.IGNORECASE
)
_NEXT = re.compile(r"\s*,\s*(?:and\s+)?|\s+and\s+", re.IGNORECASE)
_POLITE_END = re.compile(r"\W*(?:\b(?:please|thanks)\b)?\W*$", re.IGNORECASE)
_DRAWN = r"(?:images?|pictures?|photos?|videos?|clips?)"
_BARE = re.compile(
    rf"^{BEFORE}(?:(?:the|an?|one|some)\s+)?(?:[\w-]+\s+)?"
    rf"(?:(?:{results()})s?|(?P<drawn>{_DRAWN})(?= of| showing))"
    r"(?=\s+(?:please|plus|thanks|of|about|for|from|in|to|that|with|showing|and)\b|\s*[,.!]|\s*$)",
    re.IGNORECASE,
)
"""A sentence that only names what is wanted ("a picture of a fox, please")."""
_SAYS = re.compile(
    r"\b(?:is|are|was|were|has|have|had|shows?|contains?|says?|looks?|comes?|would|will|might|can|should)\b"
    r"|['’]s\b",
    re.IGNORECASE,
)
_ONE_MORE = re.compile(
    r"\b(?P<kind>image|picture|photo|video|clip|drawing|painting|poem|story|song|sound|tune)\s+"
    r"(?P<of>of|about)\s+(?P<what>[^.;,]+?)\s+and\s+(?:another(?: one)?|one)\s+(?:of|about)\s",
    re.IGNORECASE,
)


def with_verbs(sentence: str) -> str:
    """A marked sentence with a verb for each thing that is wanted."""
    if _is_bare(sentence):
        sentence = f"Give me {sentence.lstrip()}"
    sentence = _ONE_MORE.sub(r"\g<kind> \g<of> \g<what> and a \g<kind> \g<of> ", sentence)
    sentence = _with_each_named(sentence)
    for other, first in _SHARED:
        sentence = _with_shared_verb(sentence, other, first)
    return sentence


def _with_each_named(sentence: str) -> str:
    """A sentence that ends in a list of results, with a verb for each of them."""
    end = _POLITE_END.search(sentence)
    assert end is not None
    for head in _LIST_OF.finditer(sentence, 0, end.start()):
        items = _NEXT.split(sentence[head.end() : end.start()])
        # One by one: as one pattern, a long list could be read in too many ways.
        if len(items) > 1 and all(map(_ITEM.fullmatch, items)):
            wishes = ", then ".join(f"give me {item}" for item in items)
            return f"{sentence[: head.start()]}, {wishes}{end[0]}"
    return sentence


def _is_bare(sentence: str) -> bool:
    bare = _BARE.match(sentence)
    if bare is None or START.match(sentence) or _SAYS.search(sentence):
        return False
    return not (bare["drawn"] and re.search(MARK, sentence))


def _with_shared_verb(sentence: str, other: re.Pattern[str], first: re.Pattern[str]) -> str:
    place = 0
    while match := other.search(sentence, place):
        place = match.end()
        if shared := first.match(sentence[: match.start()]):
            sentence = f"{sentence[:place]}{shared['verb'].lower()} {sentence[place:]}"
    return sentence
