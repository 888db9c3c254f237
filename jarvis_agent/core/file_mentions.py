"""Find the files and URLs that a text mentions.

mentions("What is in a.jpg and 'my photo.png'?")     # ["a.jpg", "my photo.png"]
mentions("描述照片1.jpg")                             # ["1.jpg"]: no space separates words and name

Names that are known are found by comparison, whatever letters they have (`NameIndex`), and others by
their form. The longest known name wins.
"""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from functools import lru_cache
from typing import Generic, TypeVar

T = TypeVar("T")

# Letters of the scripts in which words follow one another, or a name, without a space: 描述猫.jpg里的图.
_EAST = "\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
LETTER = rf"[^\W{_EAST}]"
"""A letter, digit or underscore of a script with spaces between words."""
# Marks of decomposed letters (NFD, as macOS writes them), of Indic scripts and of Thai.
_MARKS = "\u0300-\u036f\u0900-\u0e7f"
_IN_NAME = rf"\w.~/\\@+=\-{_MARKS}#%&!,()\[\]{{}}"
_SUFFIX = r"\.[A-Za-z][A-Za-z0-9]{1,4}"
_ENDS_IN_SUFFIX = re.compile(rf"{_SUFFIX}\Z")
_NAME_ENDS = rf"{_SUFFIX}(?=[{_EAST}])"
_IN_URL = r"[^\s\"'<>「」，。、（）【】《》；：？！“”‘’]"
_URL = re.compile(rf"(?:https?|file)://(?:(?!{_NAME_ENDS}){_IN_URL})+(?:{_NAME_ENDS})?", re.IGNORECASE)
_TITLE = re.compile(r"《([^《》\n]+)》")
_QUOTED = re.compile(
    rf"\"([^\"\n]+)\"|(?<!{LETTER})'([^'\n]+)'(?!{LETTER})|“([^“”\n]+)”|‘([^‘\n]+)’(?!{LETTER})|`([^`\n]+)`"
    r"|«([^«»\n]+)»|「([^「」\n]+)」|『([^『』\n]+)』|„([^„“”\n]+)[“”]"
)
_QUOTES = frozenset("\"'“”‘’`«»「」『』„《》")
# Letters of names are read in runs, each once, so that a long text takes no longer than its length.
_RUN = re.compile(rf"(?:(?<![{_IN_NAME}])[A-Za-z]:)?[{_IN_NAME}]+")
_END = re.compile(rf"(?<=[\w~\-)\]}}!{_MARKS}]){_SUFFIX}(?!\.*{LETTER})")
_BETWEEN = re.compile(rf"[#%&!,()\[\]{{}}{_EAST}]")
_BALANCED = re.compile(r"(?:[^()\[\]{}]|\([^()\[\]{}]*\)|\[[^()\[\]{}]*\]|\{[^()\[\]{}]*\})+\Z")
_WORD = re.compile(rf"[^{_EAST}]*\Z")
_LAST_SCRIPT = re.compile(rf"(?:[{_EAST}]+|[^{_EAST}]*)\Z")
_CLOSING = r"[,.!)\]}]"
# Nothing before the name joins it to another word, except that this is a name, too: "a.png,b.png".
_AFTER_NAME = "|".join(rf"(?<=\.[A-Za-z][A-Za-z0-9]{{{n}}}[,&+!)\]}}])" for n in range(1, 5))
_START = re.compile(
    rf"(?:(?<!{LETTER})(?<![#%&+~^$=/\\{_MARKS}-])(?<!{LETTER}{_CLOSING})|{_AFTER_NAME}|(?<=\w)(?=[{_EAST}]))(?=\S)"
)
_ESCAPE = re.compile(r"\\[ '()&]")  # of a terminal into which a file was dragged
_ENDING = re.compile(r"[^.]\.\w*[^\W\d]\w*\Z")
_GOES_ON = re.compile(rf"\.*{LETTER}|[-/\\]+\w")
"""The start of a text that is part of the name before it."""

_PAGES = re.compile(r"(.+)#page=([0-9]{1,6})(?:-([0-9]{1,6}))?")

LONGEST_PATH = 1000
"""The most characters of a path; a longer text is none."""
MOST_NAMES = 256
"""The most files and URLs of one text; no plan has more tasks."""

_ALIKE = {**dict.fromkeys("‘’‚‛ʼ`´′", "'"), **dict.fromkeys("“”„‟″«»", '"'), "\\": "/"}
_ALIKE_OF_CATEGORY = {"Zs": " ", "Pd": "-", "Cf": ""}


def has_ending(name: str) -> bool:
    """Whether a name has an ending with a letter: "a.mp3", but not "1.5"."""
    return _ENDING.search(name) is not None


@lru_cache(maxsize=8192)
def _fold(char: str) -> str:
    same = _ALIKE.get(char, _ALIKE_OF_CATEGORY.get(unicodedata.category(char)))
    return unicodedata.normalize("NFKD", char).casefold() if same is None else same


def fold(text: str) -> str:
    """A text in which letters that look alike are equal: case, widths, marks, quotes, dashes and spaces."""
    return "".join(map(_fold, text))


class FoldedText:
    """A text, and for comparison its `fold`, or its letters, digits, dots and slashes if `loose`."""

    def __init__(self, text: str, *, loose: bool = False) -> None:
        self.text, letters = text, list[str]()
        self.places: list[int] = []
        """The place in `text` of each letter of `folded`."""
        for place, char in enumerate(text):
            for letter in "" if _ESCAPE.match(text, place) else _fold(char):
                if not loose or letter.isalnum() or letter in "./\n":
                    letters.append(letter)
                    self.places.append(place)
        self.folded = "".join(letters)

    def starts(self) -> Iterator[int]:
        """Where names may start in the text: nothing before them is part of them."""
        return (match.start() for match in _START.finditer(self.text))

    def can_end(self, end: int) -> bool:
        """Whether a name can end here: nothing after it goes on with it."""
        return not _GOES_ON.match(self.text, end)

    def is_whole(self, start: int, end: int) -> bool:
        """Whether a known name here is meant as one: it has an ending, or stands in quotation marks."""
        before, after = self.text[start - 1 : start], self.text[end : end + 1]
        is_quoted = before in _QUOTES and after in _QUOTES if start else not after
        return self.can_end(end) and (is_quoted or has_ending(self.text[start:end]))


class NameIndex(Generic[T]):
    """Names, each with what it stands for, that are compared as `FoldedText`."""

    def __init__(self, names: Iterable[tuple[str, T]], *, loose: bool = False) -> None:
        self._loose = loose
        self._names: dict[str, list[tuple[str, T]]] = {}
        self._lengths: dict[str, set[int]] = {}
        for name, value in names:
            folded = FoldedText(name, loose=loose).folded
            self._names.setdefault(folded, []).append((name, value))
            self._lengths.setdefault(folded[:1], set()).add(len(folded))

    def find(self, name: str, *, strict: bool = False) -> list[T]:
        """What has this name, else what looks alike, else, if not `strict`, what is loosely equal."""
        alike = self._names.get(FoldedText(name, loose=self._loose).folded, [])
        same = [value for known, value in alike if known == name]
        same = same or [value for known, value in alike if fold(known) == fold(name)]
        return same if same or strict else [value for _, value in alike]

    def closest(self, name: str) -> T | None:
        """What has nearly this name."""
        close = get_close_matches(FoldedText(name, loose=self._loose).folded, self._names, 1, 0.85)
        return self._names[close[0]][0][1] if close else None

    def __iter__(self) -> Iterator[T]:
        """What the names stand for."""
        return (value for alike in self._names.values() for _, value in alike)

    def ends(self, text: FoldedText, start: int) -> Iterator[int]:
        """Where names end that start at this place of a text, the longest first."""
        first = bisect_left(text.places, start)
        if text.places[first : first + 1] == [start]:
            for length in sorted(self._lengths.get(text.folded[first], ()), reverse=True):
                last = first + length - 1
                if last < len(text.places) and text.folded[first : last + 1] in self._names:
                    yield text.places[last] + 1


def mentions(text: str, known: Callable[[str], Iterable[tuple[int, int]]] = lambda text: ()) -> list[str]:
    """The first `MOST_NAMES` URLs and file names in a text, in order, each once and as the text has it.

    File names are those that are known, and words with an extension ("e1.jpg", "./a/b.wav"), or quoted text
    that has one ("my photo.png"). If words precede an unknown name without a space ("描述照片1.jpg"), the
    part in the last script is used ("1.jpg"). A work's title (《Node.js》) is a name only if it is known.

    Args:
        known: finds where a text has known names: their starts and ends.
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


def split_pages(name: str) -> tuple[str, tuple[int, int] | None]:
    """A name and the pages after it, as in "report.pdf#page=2" (RFC 8118) or "report.pdf#page=2-5"."""
    part = _PAGES.fullmatch(name)
    return (part[1], (int(part[2]), int(part[3] or part[2]))) if part else (name, None)


def split_names(text: str, names: Iterable[str]) -> list[str]:
    """A text split at these file names; every second part is one. Longer names come first.

    A name is not part of a longer one: no letter, digit, dot, hyphen or slash joins it to another word.
    """
    longest_first = "|".join(re.escape(name) for name in sorted(filter(None, names), key=len, reverse=True))
    if not longest_first:
        return [text]
    return re.split(rf"(?<!{LETTER})(?<![-./\\~@])({longest_first})(?![-/\\]|\.?{LETTER})", text)


def _names_in(run: re.Match[str]) -> Iterator[tuple[int, int]]:
    """The places of the names in a run of letters of names."""
    text, start = run.string, run.start()
    suffixes = list(_END.finditer(text, start, run.end()))
    for number, suffix in enumerate(suffixes, 1):
        end = suffix.end()
        if number < len(suffixes) and not _BETWEEN.search(text, end, suffixes[number].start()):
            continue  # a suffix within a name: "v1.final-2.png"
        if end - start <= LONGEST_PATH:
            start += _length_of_words(text[start:end])
            if start < suffix.start():
                yield start, end
        start = end


def _length_of_words(run: str) -> int:
    """The length of the words and brackets before the name at the end of a run; the whole if it has none."""
    start = len(run) - len(run.lstrip(",!&+()[]{}"))
    balanced = _BALANCED.search(run, start)
    if balanced is None or (balanced.start() > start and run[balanced.start() - 1] in ")]}"):
        return len(run)
    first, *path = re.split(r"[/\\]", balanced.group(), maxsplit=1)
    word = _WORD.search(first) if path else _LAST_SCRIPT.search(first[: first.rindex(".")])
    return balanced.start() + (word.start() if word else 0)


def _without_stops(word: str) -> str:
    """A word without trailing punctuation and unbalanced brackets."""
    end, surplus = len(word), word.count(")") - word.count("(")
    while word[end - 1] in ".,;:!?" or (word[end - 1] == ")" and surplus > 0):
        surplus -= word[end - 1] == ")"
        end -= 1
    return word[:end]
