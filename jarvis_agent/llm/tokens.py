"""Token budgets: estimate tokens, and clip texts and data to them.

A tokenizer would have to be downloaded. The estimate counts four letters of a word, three digits, or any
other character as one token, which is rather too many than too few. LangChain's `count_tokens_approximately`
counts four characters as one token, a quarter of a Chinese text; its `trim_messages` drops whole messages.
"""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import islice
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


def clip_rows(rows: Sequence[Any], limit: int) -> str:
    """Rows of plain data in `limit` tokens, one line of JSON each. All rows are cut before one is dropped.

    The first entries of lists and the beginning of texts are kept, with a note on what was cut. Texts of 40
    tokens, such as most names of files and ids of models, are not cut.
    """
    text = ""
    for tokens, items in ((4800, 50), (1200, 20), (300, 8), (100, 3), (40, 1)):
        text = "\n".join(to_json_line(_cut(row, tokens, items)) for row in rows)
        if count_tokens(text) <= limit:
            return text
    return clip(text, limit)


def to_json_line(value: Any) -> str:
    """Plain data as one line of JSON that cannot close the tag around it."""
    return json.dumps(value, ensure_ascii=False, default=str).replace("</", "<\\/")


def _cut(value: Any, tokens: int, items: int) -> Any:
    """Texts cut to so many tokens, lists to so many items, and mappings to more, as their keys say more."""
    if isinstance(value, str):
        return clip(value, tokens)
    if isinstance(value, Mapping):
        rest = len(value) - 20 * items
        kept = {str(key): _cut(entry, tokens, items) for key, entry in islice(value.items(), 20 * items)}
        return kept if rest <= 0 else kept | {"…": f"{rest} more"}
    if isinstance(value, list | tuple):
        rest = len(value) - items
        shown = [_cut(entry, tokens, items) for entry in value[:items]]
        return shown if rest <= 0 else [*shown, f"… {rest} more"]
    return round(value, 4) if isinstance(value, float) else value
