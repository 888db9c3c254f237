"""What an answer leaves out: results that it does not contain, and failures that it does not mention.

    contains("There are three zebras.", result, "How many zebras are in a.jpg?")     # True
    admits("I could not draw it: text-to-image failed.", {"text-to-image"}, "out of memory")    # True

An answer contains a result if it has the name of one of its files, or enough of its words, pairs of Chinese
characters, and numbers, also rounded, as percentages or in words (see `_core`). In another language than the
result, any answer passes that says something. It admits a failure if a sentence with a denial has its name or
the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import zip_longest

from jarvis_agent.core.languages import language_of_script
from jarvis_agent.core.types import TaskResult

_SHARE = 0.5
_MOST = 10
"""The words and numbers of a text that are enough, however long it is."""

_MOST_DATA = 2
_MAX_WORDS = 200

_COMMON = {
    "en": "the and for with that this from are was were has have had its his her you your not can could "
    "will would there here which what who how into than then also but one it is in of on at to by an as no",
    "de": "der die das und ist ein eine einen einem einer mit von den dem des auf für im nicht sich es ich",
    "fr": "le la les des est une un et dans avec pour sur qui que au du en ce cette il elle je vous sont",
    "es": "el los las una es y en con por para que del se su al como está son lo",
}
_COMMON_WORDS = {language: frozenset(words.split()) for language, words in _COMMON.items()}
_COMMON_IN_ANY = frozenset().union(*_COMMON_WORDS.values())

_TOKEN = re.compile(r"\d+(?:[.,]\d+)*|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+|[^\W\d_]+")
_ASIAN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_THOUSANDS = re.compile(r",(?=\d{3}(?:\D|$))")
_SUFFIX = re.compile(r"(?<=\w\w\w)(?:ings?|ed|es|e|s)$")
_DOUBLED = re.compile(r"([b-df-hj-np-tv-z])\1$")
_ENGLISH_NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve"
_NUMBERS = {
    word: str(number)
    for names in (_ENGLISH_NUMBERS.split(), "零一二三四五六七八九十", "〇一两")
    for number, word in enumerate(names)
}
_SCORED = re.compile(r"(?:1\. )?(.+?) \([01]\.\d\d\)")
"""The best entry of a summary with scores, such as "cat (0.81), dog (0.12)"."""

_DENIAL = re.compile(
    r"n['’]t\b|\b(?:no|not|none|cannot|nor|never|unable|without|unfortunately|sorry|apolog\w*|unavailable|missing|"
    r"impossible|fail\w*|error\w*|skip\w*|unsuccessful\w*|crash\w*|(?:left|timed|ran) out|"
    r"nicht|kein\w*|fehl\w*|leider|pas|aucun\w*|échou\w*|échec|impossible|désolé\w*|imposible|fall[aóo]\w*|"
    r"falhou|não|non|impossibile|не|ошибк\w*)\b"
    r"|失败|失敗|无法|無法|未能|没|沒|不|未|跳过|出错|错误|抱歉|できま|エラー|실패|오류|못",
    re.IGNORECASE,
)
_FINE = re.compile(
    r"\b(?:no|without(?: any)?|zero|0) (?:errors?|problems?|failures?|issues?)\b(?: at all)?"
    r"|\b(?:nothing|none|no \w+) (?:has |was |were )?(?:failed|skipped)|\bnot only"
    r"|没有?(?:任何)?(?:错误|失败|问题)|不仅",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？；])")
_GAP = re.compile(r"[\W_]+")
_BULLET = re.compile(r"\s*(?:[-*•|]|\d+[.)])\s*")
_GOES_ON = re.compile(
    r"\W*(?:it|this|that|these|they|but|however|unfortunately|这|但|它|不过|可是)\b|\W*[这但它不可]"
)


def contains(answer: str, result: TaskResult, request: str = "") -> bool:
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


def admits(answer: str, names: Iterable[str], reason: str) -> bool:
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
    script = language_of_script(text)
    if script != "en":
        return script
    words = re.findall(r"[^\W\d_]+", text.lower())
    counts = {code: sum(word in common for word in words) for code, common in _COMMON_WORDS.items()}
    best = max(counts, key=lambda code: counts[code])
    return best if counts[best] > 1 else "en"


def _core(result: TaskResult) -> tuple[str, int]:
    """The text of which an answer must have a part, and how many of its words are enough.

    Half of a text, at most ten words. Of labels one word: of the best one if they exclude each other, else of
    any. Of other data two words or numbers.
    """
    rows = result.output if isinstance(result.output, list) else []
    if rows and all(isinstance(row, dict) and "label" in row for row in rows):
        exclusive = all(row.keys() <= {"label", "score"} for row in rows)
        return " ".join(str(row["label"]) for row in rows[: 1 if exclusive else None]), 1
    found = result.resource("text")
    text = ((found.text if found else None) or "").strip()
    if best := _SCORED.match(text):
        return best[1], _MOST_DATA
    is_data = text[:1] in ("{", "[") or all(resource.kind != "text" for resource in result.resources[:1])
    if not text and not result.resources:
        text = json.dumps(result.output, ensure_ascii=False, default=str) if result.output else ""
    return text, _MOST_DATA if is_data else _MOST


def _tokens(text: str) -> Iterator[str]:
    """The distinctive words, numbers and pairs of Asian characters; all words if none is distinctive."""
    words = [token for match in _TOKEN.findall(text.lower()) for token in _parts(match)]
    distinctive = [word for word in words if word not in _COMMON_IN_ANY and (len(word) > 1 or word.isdigit())]
    return map(_stem, distinctive or words)


def _parts(token: str) -> Iterator[str]:
    if token in _NUMBERS:
        yield _NUMBERS[token]
    elif _ASIAN.match(token):
        yield from (_NUMBERS[char] for char in token if char in _NUMBERS)
        yield from (token[place : place + 2] for place in range(max(1, len(token) - 1)))
    else:
        yield token


def _stem(word: str) -> str:
    return _DOUBLED.sub(r"\1", _SUFFIX.sub("", word))


def _common(wanted: Iterable[str], answer: str) -> int:
    """How many of the words and numbers an answer has."""
    said = set(_tokens(answer))
    numbers = [number for word in said if word[0].isdigit() for number in _readings(word)]
    return sum(word in said or (word[0].isdigit() and _is_rounded(word, numbers)) for word in wanted)


def _readings(word: str) -> Iterator[tuple[float, int]]:
    """The values of a number and their decimals: "61" is 61 or 61 %."""
    plain = _THOUSANDS.sub("", word).replace(",", ".")
    if plain.count(".") < 2:
        places = len(plain.partition(".")[2])
        yield float(plain), places
        yield float(plain) / 100, places + 2


def _is_rounded(word: str, numbers: Iterable[tuple[float, int]]) -> bool:
    values = [value for value, _ in _readings(word)][:1]
    return any(abs(value - number) <= 0.501 * 10**-places for value in values for number, places in numbers)


def _sentences(answer: str) -> Iterator[str]:
    """The sentences of an answer; those of a list each with the line above the list."""
    heading = ""
    for line in filter(str.strip, answer.splitlines()):
        is_item = _BULLET.match(line) is not None
        if line.rstrip().rstrip("*_").endswith((":", "：")) and not is_item:
            heading = line
            continue
        if not is_item:
            heading = ""
        yield from (f"{heading} {part}" if heading else part for part in _SENTENCE.split(line) if part)


def _names(sentence: str, name: str) -> bool:
    """Whether a sentence has a name, or for several words the distinctive ones of them."""
    if " " in name:
        return set(_tokens(name)) <= set(_tokens(sentence))
    return _GAP.sub(" ", name.lower()) in _GAP.sub(" ", sentence.lower())
