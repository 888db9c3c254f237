"""Read a language model's replies: remove thinking, find JSON, also while it is written.

    reader = JsonReader()
    reader.feed('Sure! ```json\\n{"tasks": [{"task": "VQA"}')  # [{"task": "VQA"}]
    reader.feed(", {'task': 'OCR'},]")  # []: this is not valid JSON
    reader.close()  # [[{"task": "OCR"}]]

Valid JSON is read while it is written, other JSON at the end, by json_repair. Around it there may be prose,
fences, and thinking, which servers without a reasoning parser leave in the text.
"""

import json
import logging
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import accumulate
from typing import Any, NamedTuple

from json_repair import repair_json

from jarvis_agent.core.errors import describe_error
from jarvis_agent.core.text import replace_surrogates, replace_surrogates_in

log = logging.getLogger(__name__)

MAX_DEPTH = 32
MAX_REPAIRED_CHARS = 50_000
"""JSON that is nested deeper is not read, nor is longer JSON that is not valid."""

_BEGIN = re.compile(r'[^\[{}<]{0,400}(?:(?P<fields>\{[^\[\]{}]{0,200}"tasks"\s*:\s*)?(?P<list>\[)\s*)?(?=\{)')
"""What precedes the first object of JSON that is read while it is written, perhaps the start of its list.

Longer prose may be thinking whose opening tag was swallowed by the chat template.
"""
_NEXT = re.compile(r"[\s,]*(?=\{)")
_BRACKET = re.compile(r"\{|\[(?!\s*[^\W\d])")
"""Where JSON begins. "[here]" is prose."""
_DECODER = json.JSONDecoder()

_TAG = r"(?:think|thinking|thought|reasoning)>"
_LONGEST_TAG = len("</reasoning>")
_OPENING = re.compile(rf"\s*<{_TAG}", re.IGNORECASE)
_CLOSING = re.compile(rf"</{_TAG}\s*", re.IGNORECASE)
_UNDECIDED = re.compile(r"(?:<[a-z]{0,9})?\Z", re.IGNORECASE)


class ThinkingFilter:
    """Removes blanks and thinking at the start of a streamed reply.

    feed("<thi"), feed("nk>hm</think>\\n["), finish()  # "", "[", ""
    """

    def __init__(self) -> None:
        self._held = ""
        self._is_answer = False

    def feed(self, text: str) -> str:
        """Return the text that is known not to be thinking and was not returned before."""
        if self._is_answer:
            return text
        self._held = (self._held + text).lstrip()
        while (opening := _OPENING.match(self._held)) and (end := _CLOSING.search(self._held)):
            self._held = self._held[end.end() :]
        if opening:
            # Only the end of thinking is kept, so that the time is linear.
            self._held = opening[0] + self._held[opening.end() :][-_LONGEST_TAG:]
            return ""
        self._is_answer = not _UNDECIDED.match(self._held)
        return self.finish() if self._is_answer else ""

    def finish(self) -> str:
        """Return the text that is still held at the end of the reply and is not thinking."""
        text, self._held = self._held, ""
        return "" if _OPENING.match(text) else text


class JsonPart(NamedTuple):
    """An object or a list in a text; an incomplete one was cut off.

    `path`: the keys that lead to it, outermost first, without the indices of lists.
    """

    value: dict[str, Any] | list[Any]
    path: tuple[str, ...] = ()
    is_complete: bool = True


def read_json(text: str) -> list[JsonPart]:
    """Every object and list in a text, inner ones first."""
    reader = JsonReader()
    return [*reader.feed(text), *reader.close()]


class JsonReader:
    """Reads the JSON in a text that comes in pieces. Never raises; how the text is divided does not matter.

    Attributes:
        fields: those of the object around the list of tasks that `feed` reads.
        note: how JSON was read that is not valid; "" if all of it is. Set by `close`.
        excerpt: the beginning of what `close` has read.
    """

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.note = self.excerpt = ""
        self._pieces: list[str] = []
        """The text that was not read yet."""
        self._opening: str | None = None
        """The bracket around that text, or ""; None if no JSON has begun."""
        self._wrapper = ""
        self._is_late = False

    def feed(self, piece: str) -> list[JsonPart]:
        """Read a piece. Returns what is in the objects that it closed: those of a list, or outermost ones."""
        self._pieces.append(piece)
        if self._is_late or "}" not in piece:
            return []
        text, place = "".join(self._pieces), 0
        if self._opening is None:
            if not (begin := _BEGIN.match(text)):
                self._is_late = True
                return []
            self._opening, place = begin["list"] or "", begin.end()
            self._wrapper = begin["fields"] or ""
            self._read_fields("[]}")
        parts: list[JsonPart] = []
        with suppress(ValueError, RecursionError):  # The last object may be incomplete.
            while start := _NEXT.match(text, place):
                value, place = _DECODER.raw_decode(text, start.end())
                parts += [*_parts(value)]
        self._pieces = [text[place:]]
        self._is_late = len(text) - place > MAX_REPAIRED_CHARS
        return parts

    def close(self) -> list[JsonPart]:
        """End the text. Returns what was not returned before."""
        text = "".join(self._pieces)
        if self._opening is None:
            text = _CLOSING.split(text)[-1]
            text = "" if _OPENING.match(text) else text
        elif self._opening:
            text = self._opening + text.lstrip(", \n\r\t")
            self._read_fields(text)
        self.excerpt = replace_surrogates(text[:200]).strip()
        parts: list[JsonPart] = []
        place = 0
        while begin := _BRACKET.search(text, place):
            try:
                value, place = _DECODER.raw_decode(text, begin.start())
                parts += [*_parts(value)]
            except (ValueError, RecursionError):
                return [*parts, *self._repair(text[begin.start() :])]
        return parts

    def _read_fields(self, tasks: str) -> None:
        with suppress(ValueError, RecursionError):
            self.fields = _DECODER.raw_decode(self._wrapper + tasks)[0] if self._wrapper else {}

    def _repair(self, text: str) -> list[JsonPart]:
        self.note = "a part was not read: it is not valid JSON, or nested too deeply"
        depths = accumulate(1 if bracket in "[{" else -1 for bracket in re.findall(r"[\[{\]}]", text))
        if len(text) > MAX_REPAIRED_CHARS or max(depths, default=0) > MAX_DEPTH:
            return []
        last, lacks_brace = text.rstrip("`, \n")[-1:], text.count("{") > text.count("}")
        is_cut = lacks_brace and last != "}" and (last != "]" or text.count("[") > text.count("]"))
        try:
            value = repair_json(replace_surrogates(text), return_objects=True, skip_json_loads=True)
            parts = [*_parts(value, not is_cut)]
        except Exception as error:  # Its heuristics meet any text.
            log.info("the JSON was not repaired: %s", describe_error(error))
            return []
        self.note = "it was not valid JSON and was repaired"
        return parts


def _parts(
    value: Any, is_complete: bool = True, path: tuple[str, ...] = (), depth: int = 0
) -> Iterator[JsonPart]:
    """Every object and list of a value, inner ones first; of an incomplete one, the last ones are too.

    Raises ValueError if it is nested too deeply.
    """
    if not isinstance(value, dict | list):
        return
    if depth == MAX_DEPTH:
        raise ValueError("nested too deeply")
    inner = list(value.items()) if isinstance(value, dict) else [(None, part) for part in value]
    for place, (key, part) in enumerate(inner, 1):
        part_path = path if key is None else (*path, key)
        yield from _parts(part, is_complete or place < len(inner), part_path, depth + 1)
    yield JsonPart(replace_surrogates_in(value), path, is_complete)
