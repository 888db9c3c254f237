"""What an answer leaves out: results that it does not contain, and failures that it does not mention.

    contains_result("There are three zebras.", result, "How many zebras are in a.jpg?")  # True
    mentions_failure("I could not draw it: text-to-image failed.", {"text-to-image"}, "out of memory")  # True

An answer contains a result if it has the name of one of its files, or enough of its words, pairs of Chinese
characters, and numbers, also rounded, as percentages or in words (see `_core`). In another language than the
result, any answer passes that says something. It mentions a failure if a sentence with a denial has its name
or the reason.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path

from jarvis_agent.core.languages import language_of_script
from jarvis_agent.core.text import excerpt
from jarvis_agent.core.types import TaskResult

_SHARE = 0.5
_MOST = 10
"""The words and numbers of a text that are enough, however long it is."""

_MOST_DATA = 2
_MAX_WORDS = 200

_WORDS: dict[str, dict[str, str]] = tomllib.loads(
    (Path(__file__).parent / "data" / "words.toml").read_text(encoding="utf-8")
)
_COMMON = {language: frozenset(words.split()) for language, words in _WORDS["common"].items()}
_COMMON_IN_ANY = frozenset().union(*_COMMON.values())
_NUMBERS = {
    word: str(number) for words in _WORDS["numbers"].values() for number, word in enumerate(words.split())
}
_DENIAL, _FINE, _GOES_ON = (
    re.compile("|".join(_WORDS[name].values()), re.IGNORECASE) for name in ("denial", "fine", "goes_on")
)
_ASIAN = r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+"
_TOKEN = re.compile(rf"\d+(?:[.,]\d+)*|{_ASIAN}|[^\W\d_]+")
_THOUSANDS = re.compile(r",(?=\d{3}(?:\D|$))")
_SUFFIX = re.compile(r"(?<=\w\w\w)(?:ings?|ed|es|e|s)$")
_DOUBLED = re.compile(r"([b-df-hj-np-tv-z])\1$")
_SCORED = re.compile(r"(?:1\. )?(.+?) \([01]\.\d\d\)")
"""The best entry of a summary with scores, such as "cat (0.81), dog (0.12)"."""

_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？；])")
_GAP = re.compile(r"[\W_]+")
_BULLET = re.compile(r"\s*(?:[-*•|]|\d+[.)])\s*")


def contains_result(answer: str, result: TaskResult, request: str = "") -> bool:
    """Whether an answer has a file of a result or the core of its text; true if it has neither."""
    paths = list(result.paths())
    if any(path.name in answer for path in paths):
        return True
    core, most = _core(result)
    wanted = list(dict.fromkeys(_tokens(core)))[:_MAX_WORDS]
    if not wanted:
        return not paths
    enough = min(most, -(-len(wanted) * _SHARE // 1))
    if _common(wanted, answer) >= enough:
        return True
    if result.task.task.startswith("translation") or language(core) == language(answer):
        return False
    said = " ".join(sentence for sentence in _sentences(answer) if not denies(sentence))
    # A word of another language may stand for two pairs of characters.
    return len(set(_tokens(said)) - set(_tokens(request))) >= enough / 2


def mentions_failure(answer: str, names: Iterable[str], reason: str) -> bool:
    """Whether an answer says what failed: by a name in a sentence with a denial, or by the reason."""
    known = list(names)
    wanted = set(_tokens(reason)) - {word for name in known for word in _tokens(name)}
    sentences = list(_sentences(answer))
    for sentence, after in zip_longest(sentences, sentences[1:], fillvalue=""):
        said = f"{sentence} {after}" if _GOES_ON.match(after.lower()) else sentence
        has_reason = _common(wanted, said) >= max(2, _SHARE * len(wanted))
        if denies(said) and (has_reason or any(_names(sentence, name) for name in known)):
            return True
    return False


def denies(text: str) -> bool:
    """Whether a text says that something is not so, or did not work."""
    return _DENIAL.search(_FINE.sub("", text)) is not None


def language(text: str) -> str:
    """The language of a text, by its script and, for Latin letters, its common words; "en" if unclear."""
    text = excerpt(text)
    script, words = language_of_script(text), set(_TOKEN.findall(text.lower()))
    best = max(_COMMON, key=lambda code: len(words & _COMMON[code]))
    return best if script == "en" and len(words & _COMMON[best]) > 1 else script


def _core(result: TaskResult) -> tuple[str, int]:
    """The text of which an answer must have a part, and how many of its words are enough.

    Half of a text, at most ten words. Of labels one word: of the best one if they exclude each other, else of
    any. Of other data two words or numbers.
    """
    rows = result.output if isinstance(result.output, list) else []
    if rows and all(isinstance(row, dict) and "label" in row for row in rows):
        exclusive = all(row.keys() <= {"label", "score"} for row in rows)
        return " ".join(str(row["label"]) for row in rows[: 1 if exclusive else None]), 1
    part = result.resource("text")
    text = ((part.text if part else None) or "").strip()
    if best := _SCORED.match(text):
        return best[1], _MOST_DATA
    is_data = text[:1] in ("{", "[") or all(resource.kind != "text" for resource in result.resources[:1])
    if not text and not result.resources:
        text = json.dumps(result.output, ensure_ascii=False, default=str) if result.output else ""
    return text, _MOST_DATA if is_data else _MOST


def _tokens(text: str) -> Iterator[str]:
    """The distinctive words, numbers and pairs of Asian characters; all words if none is distinctive."""
    words = [part for token in _TOKEN.findall(text.lower()) for part in _parts(token)]
    distinctive = [
        word for word in words if word not in _COMMON_IN_ANY and (len(word) > 1 or word.isdecimal())
    ]
    return (_DOUBLED.sub(r"\1", _SUFFIX.sub("", word)) for word in distinctive or words)


def _parts(token: str) -> Iterator[str]:
    number = _THOUSANDS.sub("", token).replace(",", ".")
    if token in _NUMBERS:
        yield _NUMBERS[token]
    elif token[0].isdecimal():  # `float` reads no other digits, such as "①"
        yield f"{float(number):.10g}" if number.count(".") < 2 else number
    elif re.match(_ASIAN, token):
        yield from (_NUMBERS[char] for char in token if char in _NUMBERS)
        yield from (token[place : place + 2] for place in range(max(1, len(token) - 1)))
    else:
        yield token


def _common(wanted: Iterable[str], answer: str) -> int:
    """How many of the words and numbers an answer has."""
    said = set(_tokens(answer))
    return sum(not said.isdisjoint(_forms(word)) for word in wanted)


def _forms(word: str) -> set[str]:
    """A word; a number also rounded, and as a percentage."""
    if not word[0].isdecimal() or word.count(".") > 1:
        return {word}
    return {f"{round(float(word) * scale, places):.10g}" for scale in (1, 100) for places in range(4)} - {
        "0"
    } | {word}


def _sentences(answer: str) -> Iterator[str]:
    """The sentences of an answer; those of a list each with the line above the list."""
    heading = ""
    for line in filter(str.strip, answer.splitlines()):
        heading = heading if _BULLET.match(line) else ""
        yield from (heading + part for part in _SENTENCE.split(line))
        if line.rstrip(" *_").endswith((":", "：")):
            heading = f"{line} "


def _names(sentence: str, name: str) -> bool:
    """Whether a sentence has a name, or for several words the distinctive ones of them."""
    if " " in name:
        return set(_tokens(name)) <= set(_tokens(sentence))
    return _GAP.sub(" ", name.lower()) in _GAP.sub(" ", sentence.lower())
