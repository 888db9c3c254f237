"""Token budgets: estimate tokens, and clip texts and data to them.

A tokenizer would have to be downloaded. The estimate counts four letters of a word, three digits, or any
other character as one token, which is rather too many than too few. LangChain's `count_tokens_approximately`
counts four characters as one token, a quarter of a Chinese text; its `trim_messages` drops whole messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

DEFAULT_WINDOW = 32_768
"""Context window in tokens of a model that neither the settings, its profile nor its server describe."""
LOCAL_WINDOW = 8192
"""Context window in tokens for which a GGUF file is loaded; a larger one takes more memory."""

_TOKEN = re.compile(r"[a-zA-Z\u00c0-\u024f]{1,4}|[0-9]{1,3}|[^\s]")


def prompt_budget(window: int) -> int:
    """Tokens of a context window for a prompt. The rest is for the reply and errors of the estimate."""
    return int(0.75 * window)


def count_tokens(text: str) -> int:
    """Estimated number of tokens of a text."""
    return len(_TOKEN.findall(text))


def clip(text: str, limit: int) -> str:
    """The first `limit` tokens of a text and a note on what was cut; short texts are unchanged."""
    if len(text) <= limit:
        return text
    for place, token in enumerate(_TOKEN.finditer(text)):
        if place == limit:
            return f"{text[: token.start()].rstrip()} … ({len(text) - token.start()} more characters)"
    return text


def clip_rows(make: Callable[[int], Sequence[Any]], limit: int) -> str:
    """Rows of plain data in `limit` tokens, one line of JSON each. All rows are cut before one is dropped.

    `make` returns the rows, each of about the given number of tokens where it can be cut.
    """
    text = ""
    for budget in (4800, 1200, 600, 300, 100, 40, 10):
        text = "\n".join(map(to_json_line, make(budget)))
        if count_tokens(text) <= limit:
            return text
    return clip(text, limit)


def clip_data(value: Any, limit: int) -> str:
    """Plain data as one line of JSON."""
    whole = to_json_line(value)
    return whole if count_tokens(whole) <= limit else to_json_line(truncate_json(value, limit))


def to_json_line(value: Any) -> str:
    """Plain data as one line of JSON that cannot close the tag around it."""
    return json.dumps(value, ensure_ascii=False, default=str).replace("</", "<\\/")


def truncate_json(value: Any, budget: int = 1200) -> Any:
    """Plain data cut to about `budget` tokens of JSON: the first entries of lists, the beginning of texts."""
    for entries, share, items in product((50, 10, 3), (2, 4, 8, 32), (20, 8, 3, 1)):
        short = _cut(value, items, max(10, budget // share), entries)
        if count_tokens(json.dumps(short, ensure_ascii=False, default=str)) <= budget:
            return short
    return _cut(value, 1, 10, 3, depth=3)


def _cut(value: Any, items: int, text: int, entries: int, depth: int = 8) -> Any:
    """Lists cut to `items`, texts to `text` tokens, mappings to `entries`."""
    if isinstance(value, str):
        return clip(value, text)
    if isinstance(value, Mapping):
        if not depth:
            return f"… ({len(value)} entries)"
        pairs = list(value.items())
        kept = {str(key): _cut(entry, items, text, entries, depth - 1) for key, entry in pairs[:entries]}
        return kept if len(pairs) <= entries else kept | {"…": f"{len(pairs) - entries} more"}
    if isinstance(value, list | tuple):
        if not depth:
            return f"… ({len(value)} items)"
        rest = len(value) - items
        shown = [_cut(entry, items, text, entries, depth - 1) for entry in value[:items]]
        return shown if rest <= 0 else [*shown, f"… {rest} more"]
    return round(value, 4) if isinstance(value, float) else value
