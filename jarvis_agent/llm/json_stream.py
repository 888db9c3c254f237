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

import re
from dataclasses import dataclass
from typing import Any

from jarvis_agent.core.text import replace_surrogates
from jarvis_agent.llm.json_tokens import QUOTES, Reading, Scanner
from jarvis_agent.llm.thinking import ThinkingFilter

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
