"""Words as people type them in a hurry, put as the other stages know them.

    tidy("can u trasncribe teh vid n sumarize it", knows)
    # "can you transcribe the video and summarize it"

`knows` says of a word whether it is one. A word that is none becomes the one of the planner's own words that
is a slip or two away from it, if there is just one such; so names, and what is to be drawn, stay as they are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache

from jarvis_agent.core.languages import LANGUAGES
from jarvis_agent.planning.offline.asking import ACTIONS
from jarvis_agent.planning.offline.marks import MARK
from jarvis_agent.planning.offline.wordings import load_bank

OFTEN = 2
"""A word that so many phrases of the bank have is one of the planner's own."""
SHORTEST, LONG = 5, 9
"""Letters of a word that may hold a slip, and of one that may hold two."""
_ENDINGS = (
    ("s", ""),
    ("y", ""),
    ("es", ""),
    ("ed", ""),
    ("ed", "e"),
    ("er", ""),
    ("or", "e"),
    ("ies", "y"),
    ("ing", ""),
    ("ing", "e"),
)
"""Endings that a word may have, and what stands there without them: "summarizes" is no slip."""

_SHORT: Mapping[str, str] = {
    "u": "you",
    "ur": "your",
    "pls": "please",
    "plz": "please",
    "thx": "thanks",
    "teh": "the",
    "im": "I am",
    "ive": "I have",
    "id": "I would",
    "whats": "what is",
    "wheres": "where is",
    "whos": "who is",
    "gimme": "give me",
    "lemme": "let me",
    "wanna": "want to",
    "gonna": "going to",
    "pic": "picture",
    "pics": "pictures",
    "img": "image",
    "imgs": "images",
    "vid": "video",
    "vids": "videos",
    "outloud": "out loud",
    "yo": "hey",
    "lol": "",
    "btw": "",
    "kinda": "",
}
_SIGHS = r"(?:hmm?|um|uh|ugh|oh|ah)\b(?!['’-])"
_SIGH = re.compile(rf"(?:^|(?<=[.!?;\n]))[ \t]*{_SIGHS}(?:[ ,.…]+|$)", re.IGNORECASE)
_SIGH_BETWEEN = re.compile(rf",[ \t]*{_SIGHS}(?=[ \t]*,)", re.IGNORECASE)
"""A sigh that begins a sentence, or stands between commas; elsewhere it may be what is to be said."""
_AND = re.compile(rf"(?<=\s)n(?=\s+(?:(?:{ACTIONS}|the|then|also)\b|{MARK}))", re.IGNORECASE)
_WORD = re.compile(r"(?<![\w'’/@#.-])[A-Za-z]+(?![\w'’/@#-]|\.\w)")


def tidy(text: str, knows: Callable[[str], bool]) -> str:
    """A text with short forms written out and slips mended.

    Args:
        text: English, with marks for files and quoted texts.
        knows: whether a word, in small letters, is in the dictionary.
    """

    text = _SIGH.sub(" ", _SIGH_BETWEEN.sub("", text)).lstrip(" ")

    def mended(match: re.Match[str]) -> str:
        begins = text[: match.start()].rstrip()[-1:] in ("", *".!?;:\n")
        return _mended(match[0], knows, begins=begins)

    return re.sub(r" {2,}", " ", _AND.sub("and", _WORD.sub(mended, text)))


def _mended(word: str, knows: Callable[[str], bool], *, begins: bool) -> str:
    """A word without its slips; with a capital letter it may be a name, unless it begins a sentence."""
    small = word.lower()
    if small in _SHORT:
        return _SHORT[small]
    if len(word) < SHORTEST - 1 or word[1:] != word[1:].lower():
        return word
    stems = (small.removesuffix(end) + bare for end, bare in _ENDINGS if small.endswith(end))
    if any(stem in _known() or knows(stem) for stem in (small, *stems)):
        return word
    slips = 1 if len(word) < LONG else 2
    for most in range(1, slips + 1):
        near = {own for own in _own()[small[0]] if is_near(small, own.lower(), most)}
        if len(near) == 1 and (word.islower() or begins or near <= _languages()):
            return near.pop()
        if near:
            break
    return word


def is_near(one: str, other: str, most: int) -> bool:
    """Whether that many slips make one word the other: a letter more, less or wrong, or two swapped."""
    if abs(len(one) - len(other)) > most:
        return False
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        above, row = row, [i]
        for j, wanted in enumerate(other, 1):
            cost = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return False
        before = above
    return row[-1] <= most


@lru_cache(maxsize=1)
def _counts() -> Counter[str]:
    phrases = (phrase for entry in load_bank().values() for phrase in entry.phrases)
    return Counter(word for phrase in phrases for word in set(re.findall(r"[a-z]+", phrase.lower())))


@lru_cache(maxsize=1)
def _known() -> frozenset[str]:
    """Every word of the bank and of the lists of verbs and languages."""
    return frozenset({*_counts(), *ACTIONS.split("|"), *(name.lower() for name in _languages())})


@lru_cache(maxsize=1)
def _languages() -> frozenset[str]:
    return frozenset(language.name for language in LANGUAGES)


@lru_cache(maxsize=1)
def _own() -> Mapping[str, frozenset[str]]:
    """The planner's own words, by the letter that they begin with in small letters."""
    often = {word for word, count in _counts().items() if count >= OFTEN}
    often -= {name.lower() for name in _languages()}
    words = {word for word in {*often, *ACTIONS.split("|"), *_languages()} if len(word) >= SHORTEST}
    letters = {word[0].lower() for word in words}
    found = {letter: frozenset(w for w in words if w[0].lower() == letter) for letter in letters}
    return {**dict.fromkeys("abcdefghijklmnopqrstuvwxyz", frozenset[str]()), **found}
