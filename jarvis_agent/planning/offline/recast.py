"""Sentences whose order of words is not the order of doing, put as plain orders one after the other.

    recast("Before captioning \\ue000, make it brighter.")         # "make \\ue000 brighter, then caption it."
    recast("Write a story and have it narrated")                   # "Write a story and narrate it"

A new construction is a row of ROWS. What leaves verbs out is the matter of `gaps`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from jarvis_agent.core.languages import LANGUAGES
from jarvis_agent.planning.offline.asking import ACTIONS, BEFORE, OPENERS, QUESTIONS
from jarvis_agent.planning.offline.gaps import with_verbs
from jarvis_agent.planning.offline.marks import MARK

LONGEST = 250
"""Letters of a sentence that is looked at: no plain order has more, and patterns take long on long ones."""

_IRREGULAR = {
    "read": "read",
    "spoken": "speak",
    "written": "write",
    "drawn": "draw",
    "cut": "cut",
    "made": "make",
    "said": "say",
    "sung": "sing",
    "put": "put",
    "taken": "take",
}
_IT = re.compile(r"\b(?:it|this|that)\b", re.IGNORECASE)
_ITEM_NUMBER = re.compile(
    r"(?P<before>^|\s)(?:\(?\d{1,2}\)\s+|(?:(?<=\n)|^)\d{1,2}\.\s+|(?:step|part)\s+\d{1,2}\s*[:.)]\s*)(?=\w)",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?;])(\s+)|(\n+)")
_VERB = rf"(?:{ACTIONS})"
_END = r"(?=[.!?]?$)"
_NOUN = (
    rf"(?:(?:it|them|that|this|those|these|both)|{MARK}|"
    r"(?:the|my|this|that|its|both)\s+(?:[\w-]+\s+){0,2}?[\w-]+)"
)
_ALOUD = r"(?:\s+(?:out loud|aloud|out|back))?"
_FRAMED = r"(?:pictures?|images?|drawings?|photos?|paintings?|illustrations?)"
_A_THING = r"(?:an?|one)\s[^,;.]+?"
_DRAWS = rf"{BEFORE}{OPENERS}(?:draw|paint|sketch|generate|create|make|produce|illustrate)(?:\s+me)?"
_LANGUAGE = rf"(?:{'|'.join(language.name for language in LANGUAGES)})"


def recast(text: str) -> str:
    """A marked text in the order of doing, with verbs where they were left out."""
    parts = _SENTENCE.split(_ITEM_NUMBER.sub(r"\g<before>\n", text))
    return "".join(_recast(part) if part and len(part) <= LONGEST else part or "" for part in parts)


def _recast(sentence: str) -> str:
    for pattern, change in ROWS:
        if match := pattern.search(sentence):
            sentence = f"{sentence[: match.start()]}{change(match)}{sentence[match.end() :]}"
    return with_verbs(sentence)


def _in_order(first: str, then: str) -> str:
    """Two orders one after the other; "it" in the first is what the second one names."""
    named = re.search(MARK, then)
    if named and not re.search(MARK, first) and _IT.search(first):
        return f"{_IT.sub(named[0], first, count=1)}, then {then.replace(named[0], 'it', 1)}"
    return f"{first}, then {then}"


def _swapped(match: re.Match[str]) -> str:
    return _in_order(match["first"].strip(" ,"), match["then"].strip(" ,"))


def _before(match: re.Match[str]) -> str:
    return _in_order(match["first"].strip(" ,"), f"{_base()[match['done'].lower()]}{match['rest']}")


def _after(match: re.Match[str]) -> str:
    return _in_order(f"{_base()[match['done'].lower()]}{match['rest']}", match["then"].strip(" ,"))


def _active(match: re.Match[str]) -> str:
    """`have it captioned and the caption read aloud`: "caption it and read the caption aloud"."""
    more = f" and {_base()[match['done2'].lower()]} {match['what2']}" if match["what2"] else ""
    how = match["how"] + (match["how2"] or "")
    return f"{_base()[match['done'].lower()]} {match['what']}{more}{how}"


def _apart(match: re.Match[str]) -> str:
    """`draw a cat and a dog as two separate pictures`: "draw a cat, then draw a dog"."""
    things = re.split(r"\s*,\s*(?:and\s+)?|\s+and\s+(?=(?:an?|one)\s)", match["things"])
    return ", then ".join(f"{match['verb'].strip()} {thing}" for thing in things)


def _led(match: re.Match[str]) -> str:
    return f"{match[0].rstrip()}, "


@lru_cache(maxsize=1)
def _base() -> Mapping[str, str]:
    """Verbs by their gerunds and participles ("captioning" and "captioned" to "caption")."""
    found: dict[str, str] = {}
    for verb in ACTIONS.split("|"):
        for ending in ("ing", "ed"):
            for stem in (verb.removesuffix("e"), verb + verb[-1], verb):
                found[stem + ending] = verb
        found[re.sub(r"y$", "ied", verb)] = verb
    return {**found, **_IRREGULAR}


def _forms(ending: str) -> str:
    return "|".join(sorted((form for form in _base() if form.endswith(ending)), key=len, reverse=True))


_GERUND = rf"(?P<done>{_forms('ing')})"
_PARTICIPLES = f"{_forms('ed')}|{'|'.join(_IRREGULAR)}"
_ORDER = rf"^(?P<then>[^;]*?{_VERB}\b[^;]*?)\s*,?\s+"

Change = Callable[[re.Match[str]], str]
_PATTERNS: tuple[tuple[str, Change], ...] = (
    (
        rf"^{BEFORE}{OPENERS}before (?:you (?:start )?)?{_GERUND}\b(?P<rest>[^,;]*),\s*"
        rf"(?P<first>[^;]+?){_END}",
        _before,
    ),
    (rf"{_ORDER}but\s+(?P<first>{_VERB}\s[^,;]*?)\s+(?:first|before that){_END}", _swapped),
    (rf"{_ORDER}but\s+(?:only )?first\s+(?P<first>{_VERB}\s[^;]*?){_END}", _swapped),
    (rf"{_ORDER}(?<!ing )(?:only )?after\s+(?:first\s+)?{_GERUND}\b(?P<rest>\s[^,;]*?){_END}", _after),
    (
        rf"\b(?:have|get)\s+(?P<what>{_NOUN})\s+(?P<done>{_PARTICIPLES})\b(?P<how>{_ALOUD})"
        rf"(?:\s+and\s+(?P<what2>(?:the|its)\s+[\w-]+)\s+(?P<done2>{_PARTICIPLES})\b(?P<how2>{_ALOUD}))?",
        _active,
    ),
    (
        rf"^(?P<verb>{_DRAWS})\s+(?:{_FRAMED} of\s+)?"
        rf"(?P<things>{_A_THING}(?:,\s*{_A_THING})*,?\s+and\s+{_A_THING}),?\s+"
        rf"(?:as|in|on|each|all)\s[^,;.]*?(?:separate|different|own|distinct)\s+{_FRAMED}",
        _apart,
    ),
    (
        rf"^{BEFORE}(?:from|based on|using|with|out of)\s+(?:the|its|that|this|my|these)\s+"
        rf"(?:(?!{_VERB}\b)(?:[\w-]+|{MARK})\s+){{1,5}}(?={_VERB}\s+(?:an?|the|me|it|some|{MARK}|\d))",
        _led,
    ),
    (rf"^{BEFORE}(?:in|on|from|for|about)\s+(?:the \w+ )?{MARK}\s+(?=(?:{QUESTIONS})\b|{_VERB}\s)", _led),
    (
        rf"^{BEFORE}{OPENERS}read\s+(?:through\s+)?(?P<file>(?:the \w+ )?{MARK})\s+and\s+"
        r"(?=(?:answer|tell|find|say)\b)",
        lambda m: f"From {m['file']}, ",
    ),
    (r"(?:(?<=[\ue000-\uf8ff])|(?<=\bit))\s*\(\s*(?:and )?not\b[^()]*\)", lambda _: ""),
    (r"\btell (?:her|him|them|us|everyone)(?=,?\s)", lambda _: "tell me"),
    (rf",\s*(?P<how>aloud|out loud)\s*,\s*(?P<what>[^,;]+?){_END}", lambda m: f" {m['what']} {m['how']}"),
    (
        rf",?\s*\bso\s+(?P<language>in(?:to)? {_LANGUAGE})(?:,?\s+please)?{_END}",
        lambda m: f". Translate it {m['language']}",
    ),
)
ROWS: tuple[tuple[re.Pattern[str], Change], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), change) for pattern, change in _PATTERNS
)
"""Patterns of a sentence, and what is put in place of what they find."""
