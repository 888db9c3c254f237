"""JSON as language models write it, read while they write it.

    reader = JsonReader()
    reader.feed("Sure! ```json\n[{'task': 'VQA', id: 0},")      # [Found({"task": "VQA", "id": 0})]
    reader.close()                                              # [Found([{…}], whole=False)]

Each object and each list is found in the moment in which it is closed, inner ones before outer ones. Around
them there may be prose, fences and `<think>…</think>`. Inside them there may be single, smart or missing
quotes, quotes that should have been escaped, comments, literals of Python and JavaScript, trailing and
missing commas, missing and surplus brackets. Well-formed JSON is read as `json.loads` reads it.

The reader never raises, and the pieces in which the text comes make no difference. Time and memory are
linear in the text: it is read once, no decision needs more than a bounded look ahead, and nesting is a list
with a limit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from jarvis_agent.core.text import replace_surrogates
from jarvis_agent.llm.json_tokens import QUOTES, Reading, Scanner

MAX_DEPTH = 32
"""Deeper containers are passed over: no plan needs them, and Python's own JSON writer has a limit."""

_MUCH_PROSE = 400
"""A model that thinks aloud writes more characters than this; a polite sentence before the JSON has fewer."""

_EXCERPT = 200
_OPENING = re.compile(r"[\[{<]")
_TAG = re.compile(r"<(/?)(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_TAG_BEGUN = re.compile(r"</?[a-z]{0,9}\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Found:
    """An object or a list of the text.

    Attributes:
        value: what was read, as plain Python.
        path: the keys under which it stands, outermost first; places in lists are left out.
        whole: False if it was cut off.
    """

    value: dict[str, Any] | list[Any]
    path: tuple[str, ...] = ()
    whole: bool = True


@dataclass(slots=True)
class _Frame:
    """A container that is open.

    Attributes:
        value: what is in it so far.
        bracket: the one that opened it.
        name: the key under which it stands.
        key: the key in it that waits for its value.
    """

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
    """Reads pieces of text and finds the JSON in them."""

    def __init__(self) -> None:
        self._scanner = Scanner()
        self._stack: list[_Frame] = []
        self._passed_over = 0
        self._last = ""
        self._found: list[Found] = []
        self._held: list[Found] = []
        self._prose = ""
        self._prose_length = 0
        self._thinking = False
        self._perhaps_thinking = False
        self._reading = self._read()

    def feed(self, piece: str) -> list[Found]:
        """Read on. Returns what was closed in this piece."""
        self._scanner.add(piece)
        next(self._reading, None)
        found, self._found = self._found, []
        return found

    def close(self) -> list[Found]:
        """The text has ended. Returns what was still open, and what was held back."""
        self._scanner.ended = True
        found = [*self.feed(""), *self._held]
        self._held = []
        return found

    @property
    def prose(self) -> str:
        """The beginning of what stands outside of the JSON."""
        return replace_surrogates(self._prose).strip()

    @property
    def slips(self) -> list[str]:
        """What was not as JSON has it, in words, each once."""
        return list(self._scanner.slips)

    def _read(self) -> Reading[None]:
        while (yield from self._skip_prose()):
            self._perhaps_thinking = self._perhaps_thinking or self._prose_length > _MUCH_PROSE
            self._open()
            while self._stack:
                if not (yield from self._scanner.blanks_and_comments()):
                    self._end_of_text()
                    return
                if not self._punctuation():
                    yield from self._string_or_word()

    def _skip_prose(self) -> Reading[bool]:
        """Go on to the next bracket. False if the text ends before."""
        scanner = self._scanner
        while True:
            opening = _OPENING.search(scanner.text, scanner.at)
            self._add_prose(scanner.upto(opening))
            if opening is None:
                if scanner.ended:
                    return False
                yield
            elif opening.group() == "<":
                while _TAG_BEGUN.match(scanner.text, scanner.at) and not scanner.ended:
                    yield
                self._tag()
            elif self._thinking:
                scanner.at += 1
            else:
                return True

    def _add_prose(self, text: str) -> None:
        if not self._thinking:
            self._prose_length += len(text)
            self._prose = (self._prose + text[:_EXCERPT])[:_EXCERPT]

    def _tag(self) -> None:
        tag = _TAG.match(self._scanner.text, self._scanner.at)
        self._scanner.at = tag.end() if tag else self._scanner.at + 1
        if tag is None:
            self._add_prose("<")
        elif tag[1]:
            self._end_thinking()
        else:
            self._thinking = True

    def _end_thinking(self) -> None:
        """Some chat templates swallow the opening tag: what looked like thinking was, and is forgotten."""
        self._held = []
        self._thinking = self._perhaps_thinking = False
        self._prose, self._prose_length = "", 0

    def _punctuation(self) -> bool:
        """Read the bracket, comma or colon at hand. False if there is something else."""
        char, frame = self._scanner.text[self._scanner.at], self._stack[-1]
        if char in "[{" or (char == "(" and not frame.key_is_due):
            self._open()
        elif char in "]}" or (char == ")" and frame.bracket == "("):
            self._close(char)
        elif char in ",，":
            self._comma(frame)
        elif char in ":：":
            self._colon(frame)
        else:
            return False
        return True

    def _string_or_word(self) -> Reading[None]:
        scanner, frame = self._scanner, self._stack[-1]
        char, is_key = scanner.text[scanner.at], frame.key_is_due
        if char in QUOTES:
            in_list = isinstance(frame.value, list)
            self._scalar(frame, (yield from scanner.string(char, is_key=is_key, in_list=in_list)))
            return
        word = yield from scanner.word(is_key=is_key, in_tuple=frame.bracket == "(")
        tag = _TAG.search(word)
        if tag and tag[1] and self._perhaps_thinking:
            self._stack = []
            self._passed_over = 0
            self._end_thinking()
        elif is_key:
            scanner.slip("keys without quotes")
            self._scalar(frame, word)
        else:
            self._scalar(frame, scanner.literal(word))

    def _scalar(self, frame: _Frame, value: Any) -> None:
        self._last = "scalar"
        if self._passed_over:
            return
        if frame.key_is_due:
            frame.key = value
        else:
            frame.put(value)

    def _comma(self, frame: _Frame) -> None:
        self._scanner.at += 1
        self._last = "comma"
        if frame.key is not None and not self._passed_over:
            frame.put(None)

    def _colon(self, frame: _Frame) -> None:
        """A colon in a list: the list was not closed, and its last text is the next key around it."""
        self._scanner.at += 1
        if self._last != "scalar" or self._passed_over or not isinstance(frame.value, list):
            return
        in_object = len(self._stack) > 1 and isinstance(self._stack[-2].value, dict)
        if in_object and isinstance(frame.value[-1], str):
            self._scanner.slip("a missing bracket")
            key = frame.value.pop()
            self._pop(whole=True)
            self._stack[-1].key = key

    def _open(self) -> None:
        bracket = self._scanner.text[self._scanner.at]
        self._scanner.at += 1
        self._last = "opening"
        if self._stack and self._stack[-1].key_is_due and not self._passed_over:
            self._close_objects()
        if self._passed_over or len(self._stack) == MAX_DEPTH:
            self._scanner.slip(f"more than {MAX_DEPTH} levels of nesting, which were left out")
            self._passed_over += 1
            return
        value: dict[str, Any] | list[Any] = {} if bracket == "{" else []
        name = self._stack[-1].key if self._stack else None
        if self._stack:
            self._stack[-1].put(value)
        self._stack.append(_Frame(value, bracket, name))

    def _close_objects(self) -> None:
        """A bracket where a key is due: the objects around it, up to the next list, were not closed."""
        self._scanner.slip("a missing bracket")
        while self._stack and isinstance(self._stack[-1].value, dict):
            self._pop(whole=bool(self._stack[-1].value))

    def _close(self, char: str) -> None:
        self._scanner.at += 1
        if self._last == "comma":
            self._scanner.slip("a trailing comma")
        self._last = "surplus"
        if self._passed_over:
            self._passed_over -= 1
            return
        kind = dict if char == "}" else list
        if not any(isinstance(frame.value, kind) for frame in self._stack):
            self._scanner.slip("a surplus bracket")
            return
        while not isinstance(self._stack[-1].value, kind):
            self._scanner.slip("a missing bracket")
            self._pop(whole=bool(self._stack[-1].value))
        self._pop(whole=True)
        self._last = "closed object" if kind is dict else "closed list"

    def _end_of_text(self) -> None:
        """What is open is cut off, but for the innermost if an object ends it: it lacks its bracket alone."""
        self._scanner.slip("a missing bracket")
        self._pop(whole=self._last == "closed object" and not self._passed_over)
        while self._stack:
            self._pop(whole=False)

    def _pop(self, whole: bool) -> None:
        if self._stack[-1].key is not None:
            self._stack[-1].put(None)
        path = tuple(frame.name for frame in self._stack if frame.name is not None)
        found = self._held if self._perhaps_thinking else self._found
        found.append(Found(self._stack.pop().value, path, whole))
