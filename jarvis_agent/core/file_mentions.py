"""Find the files and URLs that a text mentions.

mentions("What is in a.jpg and 'my photo.png'?")     # ["a.jpg", "my photo.png"]
mentions("描述照片1.jpg")                             # ["1.jpg"]: no space separates words and name
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

# Letters of the scripts in which words follow one another, or a name, without a space: 描述猫.jpg里的图.
_EAST = "\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_LETTER = rf"[^\W{_EAST}]"
# Beside letters: marks of decomposed letters (NFD, as macOS writes them), of Indic scripts and of Thai.
_IN_PATH = r"\w.~/\\@+=\-\u0300-\u036f\u0900-\u0e7f"
_SUFFIX = r"\.[A-Za-z][A-Za-z0-9]{1,4}"
_NAME_ENDS = rf"{_SUFFIX}(?=[{_EAST}])"
_IN_URL = r"[^\s\"'<>「」，。、（）【】《》；：？！“”‘’]"
_URL = re.compile(rf"https?://(?:(?!{_NAME_ENDS}){_IN_URL})+(?:{_NAME_ENDS})?", re.IGNORECASE)
_TITLE = re.compile(r"《([^《》\n]+)》")
_QUOTED = re.compile(rf"\"([^\"\n]+)\"|(?<!{_LETTER})'([^'\n]+)'(?!{_LETTER})|“([^“”\n]+)”|`([^`\n]+)`")
# Letters of paths are read in runs, each once, so that a long text takes no longer than its length. A run
# ends before a script without spaces; the name in it ends with its last suffix.
_RUN = re.compile(
    rf"(?:(?<![{_IN_PATH}])[A-Za-z]:)?(?:(?!{_NAME_ENDS})[{_IN_PATH}])+(?:{_NAME_ENDS})?|{_NAME_ENDS}"
)
_PATH = re.compile(rf".*[\w~\-\u0300-\u036f\u0900-\u0e7f]{_SUFFIX}(?!\.*{_LETTER})")
LONGEST_PATH = 1000
"""The most characters of a path; a longer text is none."""
_ENDS_IN_SUFFIX = re.compile(rf"{_SUFFIX}\Z")
_LAST_STRETCH = re.compile(rf"(?:[{_EAST}]+|[^{_EAST}]*)$")
_STOPS = ".,;:!?"

MOST_NAMES = 256
"""The most files and URLs of one text; no plan has more tasks."""


def mentions(text: str, is_file: Callable[[str], bool] = lambda name: False) -> list[str]:
    """The first `MOST_NAMES` URLs and file names in a text, in order, each once.

    File names are words with an extension ("e1.jpg", "./a/b.wav"), or quoted text that has one
    ("my photo.png"). If words precede a name without a space ("描述照片1.jpg"), the longest suffix that
    `is_file` accepts is used, else the part in the last script ("1.jpg"). The title of a work
    (《Node.js》) is a name only if `is_file` accepts it.
    """
    taken = bytearray(len(text))
    for title in _TITLE.finditer(text):
        if not is_file(title[1]):
            taken[title.start() : title.end()] = b"\1" * len(title.group())
    places = [
        (place, word, pattern is _RUN)
        for pattern in (_URL, _QUOTED, _RUN)
        for word, place in _words_of(pattern, text, taken).items()
    ]
    names: dict[str, None] = {}
    for _, word, is_run in sorted(places):
        if len(names) == MOST_NAMES:
            break
        names[_name_at_end(word, is_file) if is_run else word] = None
    return list(names)


def split_names(text: str, names: Iterable[str]) -> list[str]:
    """A text split at these file names; every second part is one. Longer names come first.

    A name is not part of a longer one: no letter, digit, dot, hyphen or slash joins it to another word.
    """
    longest_first = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    if not longest_first:
        return [text]
    return re.split(
        rf"(?<!{_LETTER})(?<![-./\\~@])({longest_first})(?![-/\\]|\.?{_LETTER})",
        text,
    )


def _words_of(pattern: re.Pattern[str], text: str, taken: bytearray) -> dict[str, int]:
    """The first `MOST_NAMES` words with a name, each with its first place; `taken` marks their letters."""
    places: dict[str, int] = {}
    for match in pattern.finditer(text):
        if taken[match.start()]:
            continue
        words = match.group()
        word = words if pattern is _RUN and words in places else _name_in(match, pattern)
        if word is None:
            continue
        taken[match.start() : match.end()] = b"\1" * len(words)
        places.setdefault(word, match.start())
        if len(places) == MOST_NAMES:
            break
    return places


def _name_in(match: re.Match[str], pattern: re.Pattern[str]) -> str | None:
    if pattern is _RUN:
        path = _PATH.match(match.group()) if "." in match.group() else None
        return path.group() if path and path.end() <= LONGEST_PATH else None
    word = next((group for group in match.groups() if group), match.group())
    return _without_stops(word) if pattern is _URL or _ENDS_IN_SUFFIX.search(word) else None


def _name_at_end(run: str, is_file: Callable[[str], bool]) -> str:
    """The file name at the end of a run of characters that may begin with other words."""
    words = re.match(rf".*[{_EAST}]", run)
    if words is None:
        return run
    known = next((run[i:] for i in range(words.end() + 1) if is_file(run[i:])), None)
    if known is not None:
        return known
    first = re.split(r"[/\\]", run, maxsplit=1)[0]
    is_bare = first == run
    if is_bare:
        first = run[: run.rindex(".")]
    stretch = _LAST_STRETCH.search(first)
    assert stretch is not None
    cut = stretch.start() if is_bare or not re.match(rf"[{_EAST}]", stretch.group()) else len(first)
    return run[cut:]


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
