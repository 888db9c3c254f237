"""Find the files and URLs that a text mentions.

mentions("What is in a.jpg and 'my photo.png'?")     # ["a.jpg", "my photo.png"]
mentions("描述照片1.jpg")                             # ["1.jpg"]: no space separates words and name

Names that are known are found by comparison, whatever letters they have (`NameIndex`), and others by
their form. The longest known name wins.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Generic, TypeVar

T = TypeVar("T")

# Letters of the scripts in which words follow one another, or a name, without a space: 描述猫.jpg里的图.
_EAST = "\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
LETTER = rf"[^\W{_EAST}]"
"""A letter, digit or underscore of a script with spaces between words."""
# Beside letters: marks of decomposed letters (NFD, as macOS writes them), of Indic scripts and of Thai.
_IN_PATH = r"\w.~/\\@+=\-\u0300-\u036f\u0900-\u0e7f"
_IN_NAME = rf"{_IN_PATH}#%&!,()\[\]{{}}"
_SUFFIX = r"\.[A-Za-z][A-Za-z0-9]{1,4}"
_NAME_ENDS = rf"{_SUFFIX}(?=[{_EAST}])"
_IN_URL = r"[^\s\"'<>「」，。、（）【】《》；：？！“”‘’]"
_URL = re.compile(rf"(?:https?|file)://(?:(?!{_NAME_ENDS}){_IN_URL})+(?:{_NAME_ENDS})?", re.IGNORECASE)
_TITLE = re.compile(r"《([^《》\n]+)》")
_QUOTED = re.compile(
    rf"\"([^\"\n]+)\"|(?<!{LETTER})'([^'\n]+)'(?!{LETTER})|“([^“”\n]+)”|‘([^‘\n]+)’(?!{LETTER})|`([^`\n]+)`"
    r"|«([^«»\n]+)»|「([^「」\n]+)」|『([^『』\n]+)』|„([^„“”\n]+)[“”]"
)
# Letters of names are read in runs, each once, so that a long text takes no longer than its length.
_RUN = re.compile(rf"(?:(?<![{_IN_NAME}])[A-Za-z]:)?[{_IN_NAME}]+")
_END = re.compile(rf"(?<=[\w~\-)\]}}!\u0300-\u036f\u0900-\u0e7f]){_SUFFIX}(?!\.*{LETTER})")
_BETWEEN = re.compile(rf"[#%&!,()\[\]{{}}{_EAST}]")
LONGEST_PATH = 1000
"""The most characters of a path; a longer text is none."""
_ENDS_IN_SUFFIX = re.compile(rf"{_SUFFIX}\Z")
_LAST_STRETCH = re.compile(rf"(?:[{_EAST}]+|[^{_EAST}]*)$")
_QUOTES = frozenset("\"'“”‘’`«»「」『』„《》")
_STOPS = ".,;:!?"
_GOES_ON = re.compile(rf"\.*{LETTER}|[-/\\]+\w")
"""The start of a text that is part of the name before it."""
_JOINS = re.compile(rf"(?:{LETTER}|[#%&+~^$=/\\\u0300-\u036f\u0900-\u0e7f-]|(?<={LETTER})[,.!)\]}}])\Z")
"""The end of a text that is part of the name after it: no space, quotation mark or opening bracket."""
_LISTS = re.compile(rf"{_SUFFIX}[,&+!)\]}}]\Z")
"""The end of a text that is the end of another name."""

MOST_NAMES = 256
"""The most files and URLs of one text; no plan has more tasks."""
_HEAD = 3
"""The first letters of names, by which they are looked up."""


class FoldedText:
    """A text in which letters that look alike are equal: case, widths, marks, quotes, dashes and spaces.

    Attributes:
        text: as written.
        folded: for comparison.
        places: the place in `text` of each letter of `folded`.
    """

    def __init__(self, text: str, *, loose: bool = False) -> None:
        """With `loose`, only letters, digits, dots and slashes count."""
        self.text = text
        self.folded = text.lower().replace("`", "'")
        self.places: Sequence[int] = range(len(text))
        if text.isascii() and "  " not in text and not loose:
            return
        letters, places = list[str](), list[int]()
        for place, char in enumerate(text):
            for letter in _fold(char):
                if letter.isalnum() or letter in "./\n" if loose else letter != " " or letters[-1:] != [" "]:
                    letters.append(letter)
                    places.append(place)
        self.folded, self.places = "".join(letters), places

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The place in the text of letters of `folded`."""
        return self.places[start], self.places[end - 1] + 1

    def is_quoted(self, start: int, end: int) -> bool:
        """Whether this stands alone between quotation marks, or is the whole text."""
        before, after = self.span(start, end)
        if not before:
            return after == len(self.text)
        return self.text[before - 1] in _QUOTES and self.text[after : after + 1] in _QUOTES

    def can_start(self, start: int) -> bool:
        """Whether a name can start here: nothing before it is part of it."""
        place = self.places[start]
        before = self.text[max(0, place - 10) : place]
        if not _JOINS.search(before) or _LISTS.search(before):
            return True
        return bool(re.match(rf"[{_EAST}]", self.text[place])) and before[-1].isalnum()

    def can_end(self, end: int) -> bool:
        """Whether a name can end here: nothing after it goes on with it."""
        return not _GOES_ON.match(self.text, self.places[end - 1] + 1)


@lru_cache(maxsize=8192)
def _fold(char: str) -> str:
    if char in "‘’‚‛ʼ`´′":
        return "'"
    if char in "“”„‟″«»":
        return '"'
    same = {"Zs": " ", "Pd": "-", "Cf": ""}.get(unicodedata.category(char))
    return unicodedata.normalize("NFKD", char).casefold() if same is None else same


class NameIndex(Generic[T]):
    """Names, each with what it stands for, that are compared by look-alike letters."""

    def __init__(self, names: Iterable[tuple[str, T]], *, loose: bool = False) -> None:
        self._loose = loose
        self._names: dict[str, list[tuple[str, T]]] = {}
        self._lengths: dict[str, set[int]] = {}
        for name, value in names:
            folded = FoldedText(name, loose=loose).folded
            self._names.setdefault(folded, []).append((name, value))
            self._lengths.setdefault(folded[:_HEAD], set()).add(len(folded))

    def find(self, name: str) -> list[T]:
        """What has this name, else what has one that looks alike."""
        alike = self._names.get(FoldedText(name, loose=self._loose).folded, [])
        return [value for known, value in alike if known == name] or [value for _, value in alike]

    def __iter__(self) -> Iterator[T]:
        """What the names stand for."""
        return (value for alike in self._names.values() for _, value in alike)

    def starts(self, text: FoldedText) -> Iterator[int]:
        """Where names may start."""
        heads, folded = self._lengths, text.folded
        sizes = {len(head) for head in heads}
        return (at for at in range(len(folded)) if any(folded[at : at + size] in heads for size in sizes))

    def ends(self, text: FoldedText, start: int) -> Iterator[int]:
        """Where names end that start here, the longest first."""
        heads = (text.folded[start : start + size] for size in range(1, _HEAD + 1))
        for length in sorted({n for head in heads for n in self._lengths.get(head, ())}, reverse=True):
            end = start + length
            if end <= len(text.folded) and text.folded[start:end] in self._names:
                yield end


KnownNames = Callable[[str], Iterable[tuple[int, int]]]
"""Finds where a text has known names: their starts and ends."""


def mentions(text: str, known: KnownNames = lambda text: ()) -> list[str]:
    """The first `MOST_NAMES` URLs and file names in a text, in order, each once and as the text has it.

    File names are those that are known, and words with an extension ("e1.jpg", "./a/b.wav"), or quoted text
    that has one ("my photo.png"). If words precede an unknown name without a space ("描述照片1.jpg"), the
    part in the last script is used ("1.jpg"). A work's title (《Node.js》) is a name only if it is known.
    """
    taken = bytearray(len(text))
    names: dict[int, str] = {}

    def take(start: int, end: int, name: str) -> None:
        if name and not any(taken[start:end]):
            names[start] = name
            taken[start:end] = b"\1" * (end - start)

    for url in _URL.finditer(text):
        name = _without_stops(url.group())
        take(url.start(), url.start() + len(name), name)
    ends, reached, within = dict[int, int](), 0, bytearray(len(text))
    for start, end in sorted(known(text), key=lambda span: (span[0], -span[1])):
        if start >= reached:
            ends[start], reached = end, end
            within[start:end] = b"\1" * (end - start)
    for title in _TITLE.finditer(text):
        if ends.get(title.start(1)) != title.end(1):
            taken[title.start() : title.end()] = b"\1" * len(title.group())
    for quoted in _QUOTED.finditer(text):
        start, end = quoted.span(quoted.lastindex or 0)
        is_known = start in ends or within[start - 1]
        if not is_known and end - start <= LONGEST_PATH and _ENDS_IN_SUFFIX.search(text, start, end):
            take(start, end, text[start:end])
    for start, end in ends.items():
        take(start, end, text[start:end])
    for run in _RUN.finditer(text):
        for start, end in _names_in(run) if "." in run.group() else ():
            take(start, end, text[start:end])
    return list(dict.fromkeys(names[start] for start in sorted(names)))[:MOST_NAMES]


def is_name(text: str) -> bool:
    """Whether a text is nothing but a file name or URL."""
    return len(text) <= LONGEST_PATH and mentions(text) == [text]


def split_names(text: str, names: Iterable[str]) -> list[str]:
    """A text split at these file names; every second part is one. Longer names come first.

    A name is not part of a longer one: no letter, digit, dot, hyphen or slash joins it to another word.
    """
    longest_first = "|".join(re.escape(name) for name in sorted(filter(None, names), key=len, reverse=True))
    if not longest_first:
        return [text]
    return re.split(
        rf"(?<!{LETTER})(?<![-./\\~@])({longest_first})(?![-/\\]|\.?{LETTER})",
        text,
    )


def _names_in(run: re.Match[str]) -> Iterator[tuple[int, int]]:
    """The places of the names in a run of letters of names."""
    text, begin = run.string, run.start()
    suffixes = list(_END.finditer(text, begin, run.end()))
    for number, suffix in enumerate(suffixes, 1):
        end = suffix.end()
        if number < len(suffixes) and not _BETWEEN.search(text, end, suffixes[number].start()):
            continue  # a suffix within a name: "v1.final-2.png"
        start = _start_of_name(text, begin, end) if end - begin <= LONGEST_PATH else end
        if start < suffix.start():
            yield start, end
        begin = end


def _start_of_name(text: str, start: int, end: int) -> int:
    """Where the name at the end of a run of characters starts, that may begin with words and brackets."""
    start += len(text[start:end]) - len(text[start:end].lstrip(",!&+()[]{}"))
    depth = 0
    for place in range(end - 1, start - 1, -1):
        depth += (text[place] in ")]}") - (text[place] in "([{")
        if depth < 0:
            start = place + 1
            break
    if depth > 0:
        return end
    run = text[start:end]
    if not re.search(rf"[{_EAST}]", run):
        return start
    first = re.split(r"[/\\]", run, maxsplit=1)[0]
    is_bare = first == run
    if is_bare:
        first = run[: run.rindex(".")]
    stretch = _LAST_STRETCH.search(first)
    assert stretch is not None
    is_whole = is_bare or not re.match(rf"[{_EAST}]", stretch.group())
    return start + (stretch.start() if is_whole else len(first))


def _without_stops(word: str) -> str:
    """A word without trailing punctuation and unbalanced brackets."""
    end = len(word.rstrip(_STOPS))
    surplus = word.count(")") - word.count("(")
    while surplus > 0 and word[end - 1] == ")":
        surplus -= 1
        end -= 1
        while word[end - 1] in _STOPS:
            end -= 1
    return word[:end]
