"""JsonReader: read the JSON of a language model's reply, while it is written.

    reader = JsonReader()
    reader.feed('Sure! ```json\\n[{"task": "VQA"}')  # [ParsedValue({"task": "VQA"})]
    reader.feed(", {'task': 'OCR'},]")  # []: this is not valid JSON
    reader.close()  # [ParsedValue({"task": "OCR"}), …]

As long as the JSON is valid, each object and list is returned as soon as it is closed, inner ones first.
What is not valid is read at the end, by json_repair. Around the JSON there may be prose, fences and
`<think>…</think>`. The reader never raises, chunking makes no difference, and time is linear.
"""

from __future__ import annotations

import io
import logging
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from json_repair import repair_json
from pydantic_core import from_json

from jarvis_agent.core.errors import describe_error
from jarvis_agent.core.text import replace_surrogates, replace_surrogates_in
from jarvis_agent.llm.thinking import ThinkingFilter, after_thinking

log = logging.getLogger(__name__)

MAX_DEPTH = 32
MAX_REPAIRED_CHARS = 50_000
"""JSON that is not valid, and longer or nested deeper, is read only as far as it is valid."""

_MAX_PROSE_CHARS = 400
"""A polite sentence before JSON is shorter; thinking without an opening tag is longer."""

_BRACKET = re.compile(r"[\[{\]}]")
_OPENING = re.compile(r"[\[{]")
_IN_JSON = re.compile(r"[^\s\w.+-]")
_IN_STRING = re.compile(r'[\\"]')


@dataclass(frozen=True, slots=True)
class ParsedValue:
    """An object or a list of the text.

    Attributes:
        path: the keys that lead to it, outermost first, without indices of lists.
        complete: False if the text ended inside it.
    """

    value: dict[str, Any] | list[Any]
    path: tuple[str, ...] = ()
    complete: bool = True


class _Open(NamedTuple):
    bracket: str
    start: int
    path: tuple[str, ...]


def read_json(text: str) -> list[ParsedValue]:
    """Every object and list in a text, inner ones first."""
    reader = JsonReader()
    return [*reader.feed(text), *reader.close()]


class JsonReader:
    """Reads pieces of text and returns the JSON in them.

    Args:
        max_prose_chars: what follows longer prose is read at the end, since the prose may be thinking.

    Attributes:
        note: how JSON was read that is not valid; "" if all of it is.
    """

    def __init__(self, max_prose_chars: float = _MAX_PROSE_CHARS) -> None:
        self.note = ""
        self._max_prose_chars = max_prose_chars
        self._thinking = ThinkingFilter()
        self._text = io.StringIO()
        self._length = self._next = 0
        self._end_of_last = 0
        self._open: list[_Open] = []
        self._closed: list[ParsedValue] = []  # inside of the outermost one that is open
        self._quote: int | None = None
        self._string = (0, 0)
        self._key: tuple[int, int] | None = None
        self._is_valid = True
        self._is_late = False

    def feed(self, piece: str) -> list[ParsedValue]:
        """Read a piece. Returns the values that it closed."""
        return list(self._scan(self._thinking.feed(piece)))

    def close(self) -> list[ParsedValue]:
        """End the text. Returns the values that were still open or held back."""
        values = list(self._scan(self._thinking.finish()))
        rest = self._slice(self._end_of_last, self._length)
        if self._is_late:
            reader = JsonReader(math.inf)
            values += [*reader.feed(after_thinking(rest)), *reader.close()]
            self.note = reader.note
        elif self._open or not self._is_valid or ("[" in rest and not self._end_of_last):
            values += self._repair(replace_surrogates(rest))
        return values

    @property
    def excerpt(self) -> str:
        """The first 200 characters of the text."""
        return replace_surrogates(self._slice(0, 200)).strip()

    def _slice(self, start: int, end: int) -> str:
        self._text.seek(start)
        return self._text.read(end - start)

    def _scan(self, piece: str) -> Iterator[ParsedValue]:
        """Find brackets, the strings before colons, and characters that JSON does not have."""
        begin = self._length
        self._text.seek(begin)
        self._text.write(piece)
        self._length += len(piece)
        while self._is_valid and (mark := self._marks.search(piece, self._next - begin)):
            char, place = mark[0], begin + mark.start()
            self._next = place + (2 if char == "\\" else 1)
            if self._quote is not None:
                if char == '"':
                    self._string, self._quote = (self._quote + 1, place), None
            elif char == '"':
                self._quote = place
            elif char in ":,":
                self._key = self._string if char == ":" else None
            elif char in "[{":
                self._begin(char, place)
            elif char in "]}":
                yield from self._finish(place + 1)
            else:
                self._is_valid = False
        self._next = max(self._next, self._length)

    @property
    def _marks(self) -> re.Pattern[str]:
        return _IN_STRING if self._quote is not None else _IN_JSON if self._open else _OPENING

    def _begin(self, bracket: str, start: int) -> None:
        outer = self._open[-1] if self._open else _Open("", 0, ())
        path = outer.path if self._key is None else (*outer.path, self._slice(*self._key))
        lacks_key = outer.bracket == "{" and self._key is None
        self._is_late = not self._open and start - self._end_of_last > self._max_prose_chars
        self._is_valid = not (self._is_late or lacks_key or len(self._open) == MAX_DEPTH)
        self._open.append(_Open(bracket, start, path))
        self._key = None

    def _finish(self, end: int) -> Iterator[ParsedValue]:
        bracket, start, path = self._open.pop()
        self._key = None
        try:
            value = from_json(replace_surrogates(self._slice(start, end)))
        except ValueError:
            # "[here]" may be prose.
            self._is_valid = bracket == "[" and not self._open and not self._closed
            return
        yield (parsed := ParsedValue(value, path))
        self._closed.append(parsed)
        if not self._open:
            self._end_of_last, self._closed = end, []

    def _repair(self, text: str) -> Iterator[ParsedValue]:
        """The values that were not returned yet of a text that is not valid JSON."""
        self.note = "a part was not read: it is not valid JSON, or nested too deeply"
        depths = accumulate(1 if bracket in "[{" else -1 for bracket in _BRACKET.findall(text))
        if len(text) > MAX_REPAIRED_CHARS or max(depths, default=0) > MAX_DEPTH:
            return
        try:
            value = repair_json(text, return_objects=True, skip_json_loads=True)
        except Exception as error:  # Its heuristics meet any text.
            log.info("the JSON was not repaired: %s", describe_error(error))
            return
        if not value:  # of brackets alone
            return
        self.note = "it was not valid JSON and was repaired"
        unclosed = {dict: text.count("{") - text.count("}"), list: text.count("[") - text.count("]")}
        last = text.rstrip("` \n")[-1:]
        if last == "}" or (last == "]" and not self._is_valid and unclosed[list] <= 0):
            unclosed[dict] = 0  # It lacks only brackets.
        closed = Counter(map(repr, self._closed))
        for parsed in _containers(replace_surrogates_in(value), (), Counter(unclosed)):
            closed[repr(parsed)] -= 1
            if closed[repr(parsed)] < 0:
                yield parsed


def _containers(value: Any, path: tuple[str, ...], unclosed: Counter[type]) -> Iterator[ParsedValue]:
    """Every object and list in a value; so many of the last ones, outermost first, are unclosed."""
    if not isinstance(value, dict | list):
        return
    parts = list(value.items()) if isinstance(value, dict) else [(None, part) for part in value]
    inner = unclosed - Counter([type(value)])
    for number, (key, part) in enumerate(parts, 1):
        part_path = path if key is None else (*path, key)
        yield from _containers(part, part_path, inner if number == len(parts) else Counter())
    yield ParsedValue(value, path, unclosed[type(value)] <= 0)
