"""JSON as language models write it, read while they write it.

    reader = JsonReader()
    reader.feed("Sure! ```json\n[{'task': 'image-to-text', id: 0},")   # [Found({"task": "image-to-text", "id": 0}, …)]
    reader.close()                                                     # [Found([{…}], whole=False)]

Each object and each list is found in the moment in which it is closed, inner ones before outer ones. Around them there
may be prose, fences and `<think>…</think>`; inside them single, smart or missing quotes, quotes that should have been
escaped, comments, Python's and JavaScript's literals, trailing and missing commas, missing and surplus brackets. Well-formed
JSON is read as `json.loads` reads it.

The reader never raises, and the pieces in which the text comes make no difference. Time and memory are linear in the
text: a character is consumed once, no decision looks further than a bounded number of characters ahead, and nesting
is a list with a limit, not recursion.
"""

from __future__ import annotations

import math
import re
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")
Reading = Generator[None, None, T]
"""A step of reading: it is suspended where the text so far does not suffice, and returns what it read."""

MAX_DEPTH = 32
"""Deeper containers are passed over: nothing in a plan needs them, and Python's own JSON writer has a limit."""

_MUCH_PROSE = 400
"""A model thinks aloud in more characters than this; a polite sentence before the JSON has fewer."""

_EXCERPT = 200

_QUOTES = {'"': '"', "'": "'", "`": "`"} | dict.fromkeys("“”„‟″", '“”"') | dict.fromkeys("‘’‚‛", "‘’'")
"""Each opening quote with the ones that may close it."""

_STRING_STOP = {quote: re.compile(rf"[\\{closers}]") for quote, closers in _QUOTES.items()}
_KEY_STOP = re.compile(r"[,:，：\[\]{}\s]")
_WORD_STOP = re.compile(r"[,，\[\]{}\s]")
_TUPLE_STOP = re.compile(r"[,，\[\]{}()\s]")
_OPENING = re.compile(r"[\[{<]")
_BLANK = re.compile(r"\s+")
_LINE_END = re.compile(r"\n")
_COMMENT_END = re.compile(r"\*/")
_TAG = re.compile(r"<(/?)(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_TAG_BEGUN = re.compile(r"</?[a-z]{0,9}\Z", re.IGNORECASE)

# What may follow the quote that ends a value, by whether the value stands in a list. `_UNDECIDED` is every
# beginning of those; the bounds keep the look ahead short.
_GAP = r"\s{0,64}+"
_NEXT_LINE = r"|[^\S\n]{0,64}\n\s{0,64}+[\"'“‘]|\s{1,64}+(?://|/\*|\#)|\s{65}"
_CLOSES_IN_LIST = re.compile(rf"{_GAP}[\]}}),，]{_NEXT_LINE}")
_CLOSES_IN_OBJECT = re.compile(
    rf"{_GAP}(?:[\]}}]|[,，]{_GAP}(?:[\"'`“”‘’{{}}\[\]/\#]|[\w-]{{1,40}}{_GAP}[:：]|\s)){_NEXT_LINE}"
)
_UNDECIDED = re.compile(rf"{_GAP}(?:/|[,，]{_GAP}(?:[\w-]{{0,40}}{_GAP})?)?\Z")

_NUMBER = re.compile(r"[-+]?(?:\d{1,60}(?:\.\d{0,60})?|\.\d{1,60})(?:[eE][-+]?\d{1,3})?", re.ASCII)
_LITERALS: dict[str, Any] = {"true": True, "false": False} | dict.fromkeys(
    ("null", "none", "undefined", "nan")
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\n": ""} | {c: c for c in "\"'`/\\"}
_CODE = re.compile(r"u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Found:
    """An object or a list of the text.

    Attributes:
        value: what was read; its parts are str, int, float, bool, None, dict and list.
        path: the keys under which it stands, outermost first; places in lists are left out.
        whole: False if the text ended inside it.
    """

    value: dict[str, Any] | list[Any]
    path: tuple[str, ...] = ()
    whole: bool = True


@dataclass(slots=True)
class _Frame:
    """A container that is open: its value, the bracket that opened it, its own key, and the key that waits for a value."""

    value: dict[str, Any] | list[Any]
    bracket: str
    name: str | None
    key: str | None = None

    @property
    def key_is_due(self) -> bool:
        return self.key is None and isinstance(self.value, dict)

    def put(self, value: Any) -> None:
        if isinstance(self.value, list):
            self.value.append(value)
        elif self.key is not None:
            self.value[self.key] = value
            self.key = None


class JsonReader:
    """Reads pieces of text and finds the JSON in them.

    Attributes:
        prose: the beginning of what stands outside of the JSON.
        slips: what was not as JSON has it, in words, each once.
    """

    def __init__(self) -> None:
        self.prose = ""
        self.slips: dict[str, None] = {}
        self._text = ""
        self._at = 0
        self._ended = False
        self._stack: list[_Frame] = []
        self._passed_over = 0
        self._found: list[Found] = []
        self._held: list[Found] = []
        self._prose_length = 0
        self._thinking = False
        self._perhaps_thinking = False
        self._last = ""
        self._reading = self._read()

    def feed(self, piece: str) -> list[Found]:
        """Read on. Returns what was closed in this piece."""
        self._text = self._text[self._at :] + piece
        self._at = 0
        next(self._reading, None)
        return self._take()

    def close(self) -> list[Found]:
        """The text has ended. Returns what was still open, and what was held back."""
        self._ended = True
        next(self._reading, None)
        return [*self._take(), *self._held]

    def _take(self) -> list[Found]:
        found, self._found = self._found, []
        return found

    def _slip(self, what: str) -> None:
        self.slips[what] = None

    def _read(self) -> Reading[None]:
        while (yield from self._skip_prose()):
            self._perhaps_thinking = self._perhaps_thinking or self._prose_length > _MUCH_PROSE
            self._open()
            while self._stack:
                yield from self._skip_blanks_and_comments()
                if self._at == len(self._text):
                    self._end_of_text()
                    return
                if not self._punctuation():
                    yield from self._string_or_word()

    def _punctuation(self) -> bool:
        """Read the bracket, comma or colon at hand. False if there is something else."""
        char, frame = self._text[self._at], self._stack[-1]
        if char in "[{" or (char == "(" and not frame.key_is_due):
            self._open()
        elif char in "]}" or (char == ")" and frame.bracket == "("):
            self._close(char)
        elif char in ",，":
            self._comma(frame)
        elif char in ":：":
            self._at += 1
        else:
            return False
        return True

    def _string_or_word(self) -> Reading[None]:
        char, frame = self._text[self._at], self._stack[-1]
        if char in _QUOTES:
            self._scalar(frame, (yield from self._string(char, frame)))
            return
        word = yield from self._word(frame)
        if not self._ends_thinking(word):
            self._scalar(frame, word if frame.key_is_due else self._literal(word))

    def _skip_prose(self) -> Reading[bool]:
        """Go on to the next bracket. False at the end of the text."""
        while True:
            bracket = _OPENING.search(self._text, self._at)
            end = bracket.start() if bracket else len(self._text)
            self._pass_prose(end)
            if bracket is None:
                if self._ended:
                    return False
                yield
            elif bracket.group() == "<":
                while _TAG_BEGUN.match(self._text, self._at) and not self._ended:
                    yield
                self._tag()
            elif self._thinking:
                self._at += 1
            else:
                return True

    def _pass_prose(self, end: int) -> None:
        if not self._thinking:
            self._prose_length += end - self._at
            self.prose = (self.prose + self._text[self._at : min(end, self._at + _EXCERPT)])[:_EXCERPT]
        self._at = end

    def _tag(self) -> None:
        tag = _TAG.match(self._text, self._at)
        if tag is None:
            self._pass_prose(self._at + 1)
            return
        self._at = tag.end()
        if tag.group(1):
            self._end_of_thinking()
        else:
            self._thinking = True

    def _ends_thinking(self, word: str) -> bool:
        """Whether a word inside brackets is the tag that ends the thinking in which they were opened."""
        tag = _TAG.match(word)
        if tag is None or not tag.group(1) or not self._perhaps_thinking:
            return False
        self._stack.clear()
        self._passed_over = 0
        self._end_of_thinking()
        return True

    def _end_of_thinking(self) -> None:
        """Some chat templates swallow the opening tag: what looked like thinking then was, and is forgotten."""
        self._held.clear()
        self._thinking = self._perhaps_thinking = False
        self.prose, self._prose_length = "", 0

    def _skip_blanks_and_comments(self) -> Reading[None]:
        while True:
            if blank := _BLANK.match(self._text, self._at):
                self._at = blank.end()
            if self._at == len(self._text):
                if self._ended:
                    return
                yield
                continue
            if self._text[self._at] not in "#/":
                return
            yield from self._need(2)
            if self._text.startswith(("#", "//"), self._at):
                yield from self._skip_to(_LINE_END)
            elif self._text.startswith("/*", self._at):
                yield from self._skip_to(_COMMENT_END)
            else:
                return

    def _skip_to(self, end: re.Pattern[str]) -> Reading[None]:
        self._slip("comments")
        while not (match := end.search(self._text, self._at)):
            # The last character may be the first half of what ends the comment.
            self._at = max(self._at, len(self._text) - (not self._ended))
            if self._ended:
                return
            yield
        self._at = match.end()

    def _need(self, count: int) -> Reading[None]:
        while len(self._text) - self._at < count and not self._ended:
            yield

    def _open(self) -> None:
        bracket = self._text[self._at]
        self._at += 1
        self._last = "opening"
        if self._stack and self._stack[-1].key_is_due and not self._passed_over:
            self._slip("a missing bracket")
            while self._stack and isinstance(self._stack[-1].value, dict):
                self._pop()
        if self._passed_over or len(self._stack) == MAX_DEPTH:
            self._slip(f"nesting deeper than {MAX_DEPTH} levels, which was left out")
            self._passed_over += 1
            return
        value: dict[str, Any] | list[Any] = {} if bracket == "{" else []
        name = self._stack[-1].key if self._stack else None
        if self._stack:
            self._stack[-1].put(value)
        self._stack.append(_Frame(value, bracket, name))

    def _close(self, char: str) -> None:
        self._at += 1
        if self._last == "comma":
            self._slip("a trailing comma")
        self._last = "passed over"
        if self._passed_over:
            self._passed_over -= 1
            return
        kind = dict if char == "}" else list
        if not any(isinstance(frame.value, kind) for frame in self._stack):
            self._slip("a surplus bracket")
            return
        while not isinstance(self._stack[-1].value, kind):
            self._slip("a missing bracket")
            self._pop()
        self._pop()
        self._last = "closing"

    def _pop(self, whole: bool = True) -> None:
        if self._stack[-1].key is not None:
            self._stack[-1].put(None)
        path = tuple(frame.name for frame in self._stack if frame.name is not None)
        found = self._held if self._perhaps_thinking else self._found
        found.append(Found(self._stack.pop().value, path, whole))

    def _end_of_text(self) -> None:
        """The outer containers are cut off; the innermost is whole if it lacks its bracket alone."""
        self._slip("a missing bracket")
        self._pop(whole=self._last == "closing" and not self._passed_over)
        while self._stack:
            self._pop(whole=False)

    def _comma(self, frame: _Frame) -> None:
        self._at += 1
        self._last = "comma"
        if frame.key is not None and not self._passed_over:
            frame.put(None)

    def _scalar(self, frame: _Frame, value: Any) -> None:
        self._last = "scalar"
        if self._passed_over:
            return
        if frame.key_is_due:
            frame.key = str(value)
        else:
            frame.put(value)

    def _string(self, quote: str, frame: _Frame) -> Reading[str]:
        if quote != '"':
            self._slip("other quotes than JSON's")
        self._at += 1
        parts: list[str] = []
        while True:
            stop = _STRING_STOP[quote].search(self._text, self._at)
            end = stop.start() if stop else len(self._text)
            parts.append(self._text[self._at : end])
            self._at = end
            if stop is None:
                if self._ended:
                    break
                yield
            elif stop.group() == "\\":
                parts.append((yield from self._escape()))
            elif frame.key_is_due or (yield from self._closes(frame)):
                self._at += 1
                break
            else:
                self._slip("quotes inside a text")
                parts.append(stop.group())
                self._at += 1
        return sound("".join(parts))

    def _closes(self, frame: _Frame) -> Reading[bool]:
        """Whether the quote at hand ends its string or belongs to the text: what follows it tells."""
        closes = _CLOSES_IN_LIST if isinstance(frame.value, list) else _CLOSES_IN_OBJECT
        while not closes.match(self._text, self._at + 1):
            if not _UNDECIDED.match(self._text, self._at + 1):
                return False
            if self._ended:
                return True
            yield
        return True

    def _escape(self) -> Reading[str]:
        yield from self._need(6)
        code = _CODE.match(self._text, self._at + 1)
        if code:
            self._at = code.end()
            return chr(int(code[1] or code[2], 16))
        char = self._text[self._at + 1 : self._at + 2]
        self._at += 1 + len(char)
        # An unknown escape is a backslash that was meant: C:\data\cat.jpg
        return _ESCAPES.get(char, "\\" + char) if char else ""

    def _word(self, frame: _Frame) -> Reading[str]:
        """Text without quotes: a key up to its colon, a value up to a comma, a bracket or the end of the line."""
        if frame.key_is_due:
            self._slip("keys without quotes")
        stops = _KEY_STOP if frame.key_is_due else _TUPLE_STOP if frame.bracket == "(" else _WORD_STOP
        parts: list[str] = []
        while True:
            stop = stops.search(self._text, self._at)
            end = stop.start() if stop else len(self._text)
            parts.append(self._text[self._at : end])
            self._at = end
            if stop is None and not self._ended:
                yield
                continue
            if stop is None or not stop.group().isspace() or stop.group() == "\n" or frame.key_is_due:
                break
            yield from self._need(3)
            if self._text.startswith(("#", "//", "/*"), self._at + 1):
                break
            parts.append(" ")
            self._at += 1
        return sound("".join(parts).strip(" \t\r\"'"))

    def _literal(self, word: str) -> Any:
        if word in ("true", "false", "null"):
            return _LITERALS[word]
        if _NUMBER.fullmatch(word):
            try:
                return int(word)
            except ValueError:
                number = float(word)
                return number if math.isfinite(number) else word
        self._slip("values without quotes")
        return _LITERALS.get(word.lower(), word)


def sound(text: str) -> str:
    """The text with surrogate pairs joined and lone ones replaced: what can be encoded."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
