"""The patterns of data/patterns.toml.

    Patterns("extraction").QUESTION     # the entry QUESTION of the table [extraction], compiled
    START.match("could you please describe it")     # how a clause begins that asks for something

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


class Patterns:
    """The patterns of one table as attributes. Each is compiled at first use."""

    def __init__(self, table: str) -> None:
        self._table = table

    def __getattr__(self, name: str) -> re.Pattern[str]:
        if name not in _tables()[self._table]:
            raise AttributeError(f"data/patterns.toml has no entry {name} in [{self._table}]")
        compiled = re.compile(word(f"{self._table}.{name}"))
        setattr(self, name, compiled)
        return compiled


def word(name: str) -> str:
    """The entry of that name, e.g. "words.ACTIONS", as a part of other patterns."""
    table, _, key = name.partition(".")
    return _expanded(_tables()[table][key], table)


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


ACTIONS = word("words.ACTIONS")
OPENERS = word("intents.OPENERS")
START = Patterns("intents").START
"""How a clause begins that asks for something: with a verb of action, a question word, or a wish."""
REFUSES = Patterns("intents").REFUSES
"""A clause that says what is not to be done."""
