"""The rules of `data/chinese.json`: patterns of Chinese clauses, with their meaning in English.

    signs = as_signs("把\\ue000抠图", masked)      # "把ⓘ抠图"
    next(r for r in load_rules().all if r.pattern.search(signs)).english     # "segment the image {it}"

In the text that a pattern sees, each file and quoted text is one sign: ⓘ image, ⓓ image of a document, ⓐ
audio, ⓥ video, ⓣ table, ⓕ text file, ⓞ other file, ⓠ quoted text. `<NAME>` in a pattern stands for the entry
of that name under "words".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from jarvis_agent.planning.offline.delexicalise import is_document
from jarvis_agent.planning.offline.masking import MaskedText

RULES = Path(__file__).parent / "data" / "chinese.json"
_SIGNS = {"image": "ⓘ", "audio": "ⓐ", "video": "ⓥ", "table": "ⓣ", "text": "ⓕ"}
_QUOTE, _DOCUMENT, _OTHER = "ⓠ", "ⓓ", "ⓞ"
KINDS = {"ⓘ": "image", "ⓓ": "image", "ⓐ": "audio", "ⓥ": "video", "ⓣ": "table", "ⓕ": "text", "ⓠ": "text"}
"""The kind that each sign stands for."""
_MAPS, CONTEXT = "@maps", "@context"


@dataclass(frozen=True, slots=True)
class Rule:
    """A clause in which `pattern` is found means `english`.

    Attributes:
        pattern: of the clause, its marks as signs. A digit at the end of a group's name does not count.
        english: English words with slots, which `chinese_slots` fills.
        task: the task, by its name in the phrase bank; "" where the English words decide; CONTEXT for a
            clause that is only the context of another one.
        kinds: if any, the clause must name something of one of these kinds.
        noun: the value of `{it}` where the clause names nothing.
        is_open: whether the clauses after it may continue it ("…, the background is red").
    """

    pattern: re.Pattern[str]
    english: str
    task: str = ""
    kinds: frozenset[str] = frozenset()
    noun: str = "it"
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules, and the words for things.

    Attributes:
        all: the rules, in order of precedence.
        languages: English names of languages, by Chinese ones without 语 or 文.
        language: pattern of a language's Chinese name.
        nouns: by kind, a pattern of words for things of that kind.
        documents: pattern of words for documents.
        references: English words for results of earlier steps, by a pattern of Chinese ones.
        clues: by name, patterns that apply to clauses of any task: a plural, a question, the end of a list.
    """

    all: tuple[Rule, ...]
    languages: Mapping[str, str]
    language: str
    nouns: Mapping[str, re.Pattern[str]]
    documents: re.Pattern[str]
    references: Mapping[str, str]
    clues: Mapping[str, re.Pattern[str]]


@lru_cache(maxsize=1)
def load_rules() -> Rules:
    """The rules of the data file."""
    data = json.loads(RULES.read_text(encoding="utf-8"))
    maps = "|".join(map_["nouns"] for map_ in data["maps"])
    words = {**data["words"], **_language_words(data["languages"]), "MAPS": maps}
    return Rules(
        all=tuple(_rules(data, words)),
        languages=data["languages"],
        language=words["LANG"],
        nouns={kind: re.compile(pattern) for kind, pattern in data["nouns"].items()},
        documents=re.compile(data["documents"]),
        references=data["references"],
        clues={name: re.compile(pattern) for name, pattern in data["clues"].items()},
    )


def clue(name: str) -> re.Pattern[str]:
    """The pattern of that name under "clues"."""
    return load_rules().clues[name]


def as_signs(text: str, masked: MaskedText) -> str:
    """A text with a sign for the kind of each mark in its place."""
    return "".join(_sign(masked, character) if character in masked.marks else character for character in text)


def _sign(masked: MaskedText, character: str) -> str:
    mark = masked.marks[character]
    if not mark.is_file:
        return _QUOTE
    return _DOCUMENT if is_document(mark) else _SIGNS.get(mark.kind, _OTHER)


def _language_words(names: Mapping[str, str]) -> dict[str, str]:
    known = "|".join(sorted(names, key=len, reverse=True))
    one = rf"(?:普通话|国语|(?:{known})(?:文|语))"
    return {"LANG": one, "LANGS": rf"(?P<language>{one}(?:(?:、|和|与|及|以及|还有|跟|，|,)*{one})*)"}


def _rules(data: Mapping[str, Any], words: Mapping[str, str]) -> Iterator[Rule]:
    for entry in data["rules"]:
        if entry["task"] == _MAPS:
            yield from _map_rules(data, words)
        else:
            yield _rule(entry, words)


def _map_rules(data: Mapping[str, Any], words: Mapping[str, str]) -> Iterator[Rule]:
    """Rules for each control map: images guided by it, and the map by itself."""
    for map_ in data["maps"]:
        own = {**words, "MAP": map_["nouns"]}
        for entry in data["guided"]:
            say = entry["say"].replace("{drawn}", map_["drawn"])
            yield _rule({"task": f"{map_['task']}-text-to-image", **entry, "say": say}, own)
    for map_ in data["maps"]:
        own = {**words, "MAP": map_["nouns"]}
        yield _rule({"task": map_["alone"], "find": data["alone"], "say": map_["say"]}, own)


def _rule(entry: Mapping[str, Any], words: Mapping[str, str]) -> Rule:
    return Rule(
        pattern=re.compile(_expanded(entry["find"], words), re.IGNORECASE),
        english=entry["say"],
        task=entry["task"],
        kinds=frozenset(entry.get("kind", "").split()),
        noun=entry.get("noun", "it"),
        is_open=entry.get("open", False),
    )


def _expanded(pattern: str, words: Mapping[str, str]) -> str:
    while (expanded := re.sub(r"<([A-Z]+)>", lambda name: words[name[1]], pattern)) != pattern:
        pattern = expanded
    return pattern
