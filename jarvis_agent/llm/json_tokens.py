"""Scanner: strings, words and comments of loosely written JSON, from text that arrives in pieces.

    scanner = Scanner()
    scanner.add("'what's up', # a question")
    string = scanner.string("'", is_key=False, in_list=True)
    next(string)                                                 # StopIteration("what's up")

Reading methods are generators. They yield while they need more text, and return what they read. So the code
reads as if the text were complete, and chunking makes no difference.
"""

from __future__ import annotations

import math
import re
from collections.abc import Generator
from typing import Any, TypeVar

from jarvis_agent.core.text import replace_surrogates

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
