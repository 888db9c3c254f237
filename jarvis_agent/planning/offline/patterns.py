"""The patterns of data/patterns.toml.

    pattern("extraction.QUESTION")     # a compiled pattern
    word("intents.ACTIONS")             # a part of patterns, as a string

`<NAME>` in an entry stands for the entry NAME of its own table, of [words], or of [intents].
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

_SHARED = ("words", "intents")


@lru_cache(maxsize=1)
def _tables() -> Mapping[str, Mapping[str, Any]]:
    tables = tomllib.loads((Path(__file__).parent / "data" / "patterns.toml").read_text(encoding="utf-8"))
    tables["words"]["ACTIONS"] = "|".join(tables["words"]["VERBS"].split())
    return tables


def word(name: str) -> str:
    """The entry of that name, e.g. "intents.ACTIONS", with all its parts."""
    table, _, key = name.partition(".")
    return _expanded(_tables()[table][key], table)


def pattern(name: str) -> re.Pattern[str]:
    """The entry of that name, compiled."""
    return re.compile(word(name))


@lru_cache
def patterns(name: str) -> tuple[re.Pattern[str], ...]:
    """The list of that name, compiled; empty if there is none."""
    table, _, key = name.partition(".")
    return tuple(re.compile(_expanded(text, table)) for text in _tables()[table].get(key, ()))


def _expanded(text: str, table: str) -> str:
    def part(match: re.Match[str]) -> str:
        home = next(one for one in (table, *_SHARED) if match[1] in _tables()[one])
        return _expanded(_tables()[home][match[1]], home)

    return re.sub(r"<([A-Z_]+)>", part, text)
