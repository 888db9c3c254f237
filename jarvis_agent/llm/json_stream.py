"""JsonReader: read JSON as language models write it, while they write it.

    reader = JsonReader()
    reader.feed("Sure! ```json\n[{'task': 'VQA', id: 0},")  # [ParsedValue({"task": "VQA", "id": 0})]
    reader.close()                                          # [ParsedValue([{…}], complete=False)]

Each object and list is returned as soon as it is closed, inner ones first. Around the JSON there may be
prose, fences and `<think>…</think>`. The JSON may have single, smart, missing or unescaped quotes, comments,
literals of Python and JavaScript, trailing and missing commas, missing and surplus brackets. Valid JSON is
read as by `json.loads`. The reader never raises, chunking makes no difference, and time is linear.

The library json_repair is not used. It gives the same plan for 255 of the 268 texts in
`tests/data/planner_outputs.jsonl`, and it cannot read an unfinished text incrementally.
"""

from __future__ import annotations

import math
import re
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from jarvis_agent.core.text import replace_surrogates
from jarvis_agent.llm.thinking import ThinkingFilter

T = TypeVar("T")
Reading = Generator[None, None, T]

QUOTES = {'"': '"', "'": "'", "`": "`"} | dict.fromkeys("“”„‟″", '“”"') | dict.fromkeys("‘’‚‛", "‘’'")
"""The quotes that may close each opening quote."""

_STRING_STOP = {quote: re.compile(rf"[\\{closers}]") for quote, closers in QUOTES.items()}
_KEY_STOP = re.compile(r"[,:，：\[\]{}\s]")
_WORD_STOP = re.compile(r"[,，\[\]{}\s]")
_TUPLE_STOP = re.compile(r"[,，\[\]{}()\s]")
_BLANK = re.compile(r"\s+")
_LINE_END = re.compile(r"\n")
_COMMENT_END = re.compile(r"\*/")
_COMMENT = ("#", "//", "/*")

# What may follow the quote that ends a value, and, as `_UNDECIDED`, every beginning of that. Repetitions are
# bounded, so that lookahead is cheap, and possessive, so that a match stays one when text is added.
_GAP = r"\s{0,64}+"
_ANYWHERE = r"[^\S\n]{0,64}+\n\s{0,64}+[\"'“‘]|\s{1,64}+(?://|/\*|\#)|\s{65}"
_NEXT_MEMBER = rf"[\"'`“”‘’{{}}\[\]/\#\s]|[\w-]{{1,40}}+{_GAP}[:：]"
_ENDS_IN_LIST = re.compile(rf"{_GAP}[\]}}),，:：]|{_ANYWHERE}")
_ENDS_IN_OBJECT = re.compile(rf"{_GAP}(?:[\]}}]|[,，]{_GAP}(?:{_NEXT_MEMBER}))|{_ANYWHERE}")
_UNDECIDED = re.compile(rf"{_GAP}(?:/|[,，]{_GAP}(?:[\w-]{{0,40}}{_GAP})?)?\Z")

_NUMBER = re.compile(r"[-+]?(?:[0-9]{1,60}(?:\.[0-9]{0,60})?|\.[0-9]{1,60})(?:[eE][-+]?[0-9]{1,3})?")
_JSON_LITERALS = {"true": True, "false": False, "null": None}
_LITERALS = {**_JSON_LITERALS, "none": None, "undefined": None, "nan": None}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\n": ""} | {c: c for c in "\"'`/\\"}
_CODE = re.compile(r"u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})")


class Scanner:
    """Text with a position up to which it has been read.

    Attributes:
        text: the text that is not read yet; `add` drops the rest, so positions are valid until then.
        at: the position in it.
        ended: whether the text is complete.
        repairs: what is not valid JSON, each kind once.

        scanner = Scanner()
        scanner.add("'what's up', # a question")
        string = scanner.string("'", is_key=False, in_list=True)
        next(string)                                                 # StopIteration("what's up")

    Reading methods are generators. They yield while they need more text, and return what they read. So the
    code reads as if the text were complete, and chunking makes no difference.
    """

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.ended = False
        self.repairs: dict[str, None] = {}

    def add(self, piece: str) -> None:
        """Append text."""
        self.text = self.text[self.at :] + piece
        self.at = 0

    def repair(self, what: str) -> None:
        """Note something that is not valid JSON."""
        self.repairs[what] = None

    def upto(self, stop: re.Match[str] | None) -> str:
        """Read the text before a match, or all of it."""
        start, self.at = self.at, stop.start() if stop else len(self.text)
        return self.text[start : self.at]

    def blanks_and_comments(self) -> Reading[bool]:
        """Skip blanks and comments. False at the end of the text."""
        while True:
            if blank := _BLANK.match(self.text, self.at):
                self.at = blank.end()
            if self.at == len(self.text):
                if self.ended:
                    return False
                yield
                continue
            if self.text[self.at] not in "#/":
                return True
            yield from self._enough(2)
            if not self.text.startswith(_COMMENT, self.at):
                return True
            yield from self._comment(_COMMENT_END if self.text.startswith("/*", self.at) else _LINE_END)

    def string(self, quote: str, *, is_key: bool, in_list: bool) -> Reading[str]:
        """Read the string that starts here. Quotes in it need not be escaped."""
        if quote != '"':
            self.repair("other quotes than JSON's")
        self.at += 1
        parts: list[str] = []
        while True:
            stop = _STRING_STOP[quote].search(self.text, self.at)
            parts.append(self.upto(stop))
            if stop is None:
                if self.ended:
                    break
                yield
            elif stop.group() == "\\":
                parts.append((yield from self._escape()))
            elif is_key or (yield from self._quote_ends(_ENDS_IN_LIST if in_list else _ENDS_IN_OBJECT)):
                self.at += 1
                break
            else:
                self.repair("quotes inside a text")
                parts.append(stop.group())
                self.at += 1
        return replace_surrogates("".join(parts))

    def word(self, *, is_key: bool, in_tuple: bool) -> Reading[str]:
        """Read unquoted text: a key up to its colon, a value up to a comma, bracket or line end."""
        stops = _KEY_STOP if is_key else _TUPLE_STOP if in_tuple else _WORD_STOP
        parts: list[str] = []
        while True:
            stop = stops.search(self.text, self.at)
            parts.append(self.upto(stop))
            if stop is None and not self.ended:
                yield
                continue
            if stop is None or is_key or stop.group() == "\n" or not stop.group().isspace():
                break
            yield from self._enough(3)
            if self.text.startswith(_COMMENT, self.at + 1):
                break
            parts.append(" ")
            self.at += 1
        return replace_surrogates("".join(parts).strip(" \t\r\"'\\"))

    def literal(self, word: str) -> Any:
        """The value of an unquoted word: a number, true, false, null, or the word."""
        if word in _JSON_LITERALS:
            return _JSON_LITERALS[word]
        if _NUMBER.fullmatch(word):
            number = float(word) if re.search(r"[.eE]", word) else int(word)
            return number if math.isfinite(number) else word
        self.repair("values without quotes")
        return _LITERALS.get(word.lower(), word)

    def _quote_ends(self, ends: re.Pattern[str]) -> Reading[bool]:
        """Whether this quote ends its string, as far as the text after it tells."""
        while not ends.match(self.text, self.at + 1):
            if not _UNDECIDED.match(self.text, self.at + 1):
                return False
            if self.ended:
                return True
            yield
        return True

    def _escape(self) -> Reading[str]:
        yield from self._enough(6)
        code = _CODE.match(self.text, self.at + 1)
        if code:
            self.at = code.end()
            return chr(int(code[1] or code[2], 16))
        char = self.text[self.at + 1 : self.at + 2]
        self.at += 1 + len(char)
        # An unknown escape is a literal backslash: C:\data\cat.jpg
        return _ESCAPES.get(char, "\\" + char) if char else ""

    def _comment(self, end: re.Pattern[str]) -> Reading[None]:
        self.repair("comments")
        while not (match := end.search(self.text, self.at)):
            if self.ended:
                self.at = len(self.text)
                return
            # The last character may be the first half of "*/".
            self.at = max(self.at, len(self.text) - 1)
            yield
        self.at = match.end()

    def _enough(self, count: int) -> Reading[None]:
        """Wait for this many characters."""
        while len(self.text) - self.at < count and not self.ended:
            yield


MAX_DEPTH = 32
"""Values nested deeper are dropped."""

_EXCERPT_CHARS = 200
_OPENING = re.compile(r"[\[{]")


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


@dataclass(slots=True)
class _Container:
    """An open object or list. `key` waits for its value."""

    value: dict[str, Any] | list[Any]
    bracket: str
    path: tuple[str, ...]
    key: str | None = None

    @property
    def expects_key(self) -> bool:
        return self.key is None and isinstance(self.value, dict)

    def put(self, value: Any) -> None:
        if isinstance(self.value, list):
            self.value.append(value)
        elif self.key is not None:
            self.value[self.key] = value
            self.key = None


def read_json(text: str) -> list[ParsedValue]:
    """Every object and list in a text, inner ones first."""
    reader = JsonReader()
    return [*reader.feed(text), *reader.close()]


class JsonReader:
    """Reads pieces of text and returns the JSON in them."""

    def __init__(self) -> None:
        self._thinking = ThinkingFilter(before_json=True)
        self._scanner = Scanner()
        self._open: list[_Container] = []
        self._last = ""
        self._parsed: list[ParsedValue] = []
        self._prose = ""
        self._reading = self._read()

    def feed(self, piece: str) -> list[ParsedValue]:
        """Read a piece. Returns the values that it closed."""
        return self._scan(self._thinking.feed(piece))

    def close(self) -> list[ParsedValue]:
        """End the text. Returns the values that were still open or held back."""
        self._scanner.ended = True
        return self._scan(self._thinking.finish())

    @property
    def prose(self) -> str:
        """The beginning of the text outside of the JSON."""
        return replace_surrogates(self._prose).strip()

    @property
    def repairs(self) -> list[str]:
        """What is not valid JSON, each kind once."""
        return list(self._scanner.repairs)

    def _scan(self, text: str) -> list[ParsedValue]:
        self._scanner.add(text)
        next(self._reading, None)
        parsed, self._parsed = self._parsed, []
        return parsed

    def _read(self) -> Reading[None]:
        scanner = self._scanner
        while True:
            opening = _OPENING.search(scanner.text, scanner.at)
            self._prose = (self._prose + scanner.upto(opening))[:_EXCERPT_CHARS]
            if opening is None:
                if scanner.ended:
                    return
                yield
                continue
            self._open_container()
            while self._open:
                if not (yield from scanner.blanks_and_comments()):
                    self._end_of_text()
                    return
                if not self._punctuation():
                    yield from self._scalar()

    def _punctuation(self) -> bool:
        """Read a bracket, comma or colon. False if there is something else."""
        char, container = self._scanner.text[self._scanner.at], self._open[-1]
        if char in "[{" or (char == "(" and not container.expects_key):
            self._open_container()
        elif char in "]}" or (char == ")" and container.bracket == "("):
            self._close_container(char)
        elif char in ",，":
            self._comma(container)
        elif char in ":：":
            self._colon(container)
        else:
            return False
        return True

    def _scalar(self) -> Reading[None]:
        scanner, container = self._scanner, self._open[-1]
        char, is_key = scanner.text[scanner.at], container.expects_key
        if char in QUOTES:
            in_list = isinstance(container.value, list)
            value = yield from scanner.string(char, is_key=is_key, in_list=in_list)
        else:
            value = yield from scanner.word(is_key=is_key, in_tuple=container.bracket == "(")
            if is_key:
                scanner.repair("keys without quotes")
            else:
                value = scanner.literal(value)
        self._last = "scalar"
        if is_key:
            container.key = value
        else:
            container.put(value)

    def _comma(self, container: _Container) -> None:
        self._scanner.at += 1
        self._last = "comma"
        if container.key is not None:
            container.put(None)

    def _colon(self, container: _Container) -> None:
        """A colon in a list: the list was not closed, and its last text is the next key of the object."""
        self._scanner.at += 1
        if self._last != "scalar" or not isinstance(container.value, list) or len(self._open) < 2:
            return
        if isinstance(self._open[-2].value, dict) and isinstance(container.value[-1], str):
            self._scanner.repair("a missing bracket")
            key = container.value.pop()
            self._pop()
            self._open[-1].key = key

    def _open_container(self) -> None:
        bracket = self._scanner.text[self._scanner.at]
        self._scanner.at += 1
        self._last = "opening"
        if self._open and self._open[-1].expects_key:
            # A bracket instead of a key: the objects up to the next list were not closed.
            self._scanner.repair("a missing bracket")
            while self._open and isinstance(self._open[-1].value, dict):
                self._pop(complete=bool(self._open[-1].value))
        value: dict[str, Any] | list[Any] = {} if bracket == "{" else []
        path: tuple[str, ...] = ()
        if len(self._open) >= MAX_DEPTH:
            self._scanner.repair(f"more than {MAX_DEPTH} levels of nesting, which were left out")
        elif self._open:
            outer = self._open[-1]
            path = outer.path if outer.key is None else (*outer.path, outer.key)
            outer.put(value)
        self._open.append(_Container(value, bracket, path))

    def _close_container(self, bracket: str) -> None:
        self._scanner.at += 1
        if self._last == "comma":
            self._scanner.repair("a trailing comma")
        self._last = "surplus"
        kind = dict if bracket == "}" else list
        # Only the innermost levels are searched, so that time stays linear.
        if not any(isinstance(container.value, kind) for container in self._open[-MAX_DEPTH:]):
            self._scanner.repair("a surplus bracket")
            return
        while not isinstance(self._open[-1].value, kind):
            self._scanner.repair("a missing bracket")
            self._pop(complete=bool(self._open[-1].value))
        self._pop()
        self._last = "closed object" if kind is dict else "closed list"

    def _end_of_text(self) -> None:
        """Everything open is incomplete. An object that ends with a closed object lacks only its bracket."""
        self._scanner.repair("a missing bracket")
        self._pop(complete=self._last == "closed object")
        while self._open:
            self._pop(complete=False)

    def _pop(self, complete: bool = True) -> None:
        container = self._open.pop()
        if container.key is not None:
            container.put(None)
        if len(self._open) < MAX_DEPTH:
            self._parsed.append(ParsedValue(container.value, container.path, complete))
