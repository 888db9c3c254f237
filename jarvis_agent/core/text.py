"""Clean, shorten, split and count text."""

import ast
import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

_ESCAPE_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movements
    r"|\x1b[\]PX^_][^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # OSC and similar: titles, links, clipboard
    r"|\x1b[ -/]*[0-~]?"
)
_DIRECTION = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Characters that change the direction of the text after them, and so can disguise it."""

_EAST_ASIAN = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
"""Characters of scripts without spaces between words."""

_MARKS = {"ja": r"[\u3040-\u30ff]", "ko": r"[\uac00-\ud7af]", "zh": r"[\u4e00-\u9fff]", "": r"[^\W\d_]"}
"""Letters by the ISO 639-1 code of the language that they give away; "" is any language."""

_CONTROL = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_DIRECTION}]")
_FENCE = re.compile(r"^`{3,}(?:\w*\n)?|`{3,}$")
_BULLET, _NUMBER = re.compile(r"^[-*•]\s+"), re.compile(r"^\d{1,3}[.)]\s+")
_SURROGATE = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """The text without escape sequences and control characters other than tab and newline."""
    return _CONTROL.sub("", _ESCAPE_SEQUENCE.sub("", text))


def clean_json(text: str) -> str:
    """The same JSON; control characters that are valid in JSON but obeyed by terminals are escaped."""
    return re.sub(rf"[\x7f-\x9f{_DIRECTION}]", lambda match: f"\\u{ord(match[0]):04x}", text)


def replace_surrogates(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates replaced, so that it can be encoded."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def map_texts(data: Any, change: Callable[[str], Any], *, keys: bool = False) -> Any:
    """Plain data with `change` applied to every text, with `keys` also to keys; others are unchanged."""
    if isinstance(data, str):
        return change(data)
    if isinstance(data, Mapping):
        return {
            change(name) if keys and isinstance(name, str) else name: map_texts(part, change, keys=keys)
            for name, part in data.items()
        }
    if type(data) in (list, tuple):
        return type(data)(map_texts(part, change, keys=keys) for part in data)
    return data


def replace_surrogates_in(data: Any) -> Any:
    """Plain data with `replace_surrogates` applied to every text."""
    return map_texts(data, replace_surrogates, keys=True)


def excerpt(text: str) -> str:
    """The first and the last 5000 characters: enough to guess what a long text is and asks for."""
    return text if len(text) <= 10_000 else f"{text[:5000]}\n{text[-5000:]}"


def detect_script(text: str) -> str | None:
    """Return "ja", "ko" or "zh" if a text has any of their characters, "" for other letters, else None.

    Of a long text only the first and last characters are read.
    """
    text = excerpt(text)
    return next((code for code, marks in _MARKS.items() if re.search(marks, text)), None)


def brief_text(text: str, limit: int = 300) -> str:
    """A clean text on one line, cut after at most `limit` characters, at the end of a word if one is near."""
    line = " ".join(clean(text).split())
    if len(line) <= limit:
        return line
    space = line.rfind(" ", max(0, limit - 30), limit + 1)  # Chinese has none.
    return f"{line[: space if space > 0 else limit]} …"


SEPARATORS = ("\n", "\t;；؛、|", ",，،")
"""What stands between the items of a list, the strongest first."""

SENTENCE_SEPARATORS = ("\n", ";；؛")
"""What stands between sentences, which have commas of their own."""


def split_list(text: str, separators: Iterable[str] = SEPARATORS) -> list[str]:
    """The items of a list in one text: of JSON, else the parts between its strongest separators.

    An item in quotes may hold separators, as in CSV. A text without separators is one item. Code fences are
    left out.
    """
    text = _FENCE.sub("", text.strip()).strip()
    items = read_literal(text) if text[:1] in "[({" else None
    if isinstance(items, set):  # in its order
        items = read_literal(f"[{text[1:-1]}]")
    if isinstance(items, list | tuple | dict):
        return [*filter(None, texts_of_list(items))]
    # Also JSON whose end is missing.
    is_listed = re.fullmatch(r"\[.*\]|\[\s*[\"'][^]]*|[(（][^()（）]*[)）]", text, re.DOTALL)
    if is_listed and (text[0] == "[" or re.search("[,，、]", text)):
        text = re.sub(r"^.|[])）]$", "", text)
    items = [text]
    for marks in separators:
        # A closing quote ends an item only before a separator: the apostrophe of "don't" does not.
        quoted = rf"""(?:"([^"]*)"|'([^']*)'|“([^”]*)”|`([^`]*)`)\s*(?=[{marks}]|\Z)"""
        pattern = re.compile(rf"\s*(?:{quoted}|([^{marks}]*))(?:[{marks}]|\Z)")
        parts = (next(filter(None, match.groups()), "").strip() for match in pattern.finditer(text))
        if len(items := [part for part in parts if part]) > 1:
            if marks == "\n":
                bullet = _NUMBER if all(map(_NUMBER.match, items)) else _BULLET
                items = [bullet.sub("", item) for item in items]
            break
    return items


def texts_of_list(value: Any) -> list[str]:
    """The texts of a list and of lists in it. Objects stand for their texts and lists, or for their names."""
    texts, left = list[str](), [value]
    while left:
        value = left.pop()
        if isinstance(value, Mapping):
            value = [part for part in value.values() if isinstance(part, str | list)] or [*value]
        if isinstance(value, list | tuple):
            left += reversed(value)
        else:
            texts.append("" if value is None else str(value).strip())
    return texts


def read_literal(text: str) -> Any:
    """The value of a text in JSON, or as Python writes it; None if it is neither."""
    for read in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return read(text)
    return None


def count_words(text: str) -> int:
    """The number of words, as word processors count them: an East Asian character counts as one.

    Punctuation alone is no word.
    """
    rest, characters = _EAST_ASIAN.subn(" ", text)
    return characters + sum(any(map(str.isalnum, word)) for word in rest.split())
