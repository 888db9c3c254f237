"""ThinkingFilter: remove blanks and thinking at the start of a streamed reply.

Servers without a reasoning parser leave it in the text as `<think>…</think>`.

    feed("<thi"), feed("nk>hm</think>\\n[")  →  "", "["
"""

from __future__ import annotations

import re

_TAG = r"(?:think|thinking|thought|reasoning)>"
_OPENING = re.compile(rf"<{_TAG}", re.IGNORECASE)
_UNDECIDED = re.compile(r"(?:<[a-z]{0,9})?\Z", re.IGNORECASE)
_CLOSING = re.compile(rf"</{_TAG}", re.IGNORECASE)
_LONGEST_TAG = len("</reasoning>")

_JSON = re.compile(r"\{|\[\s*[\[{\]]")
_MAX_PROSE = 400
"""A polite sentence before JSON is shorter; thinking without an opening tag is longer."""


class ThinkingFilter:
    """Filters one reply. Feed it every piece of text, then call `finish`.

    Args:
        before_json: whether the reply should be JSON. Some chat templates swallow the opening tag. So if the
            reply starts with more than 400 characters of prose, it is held back until a closing tag or the
            end.
    """

    def __init__(self, *, before_json: bool = False) -> None:
        self._before_json = before_json
        self._state = "start"
        self._start = self._tail = ""
        self._held: list[str] = []

    def feed(self, text: str) -> str:
        """Return the text that is known not to be thinking and was not returned before."""
        if self._state == "start":
            text = self._decide((self._start + text).lstrip())
        if self._state == "thinking":
            text = self._skip_thinking(text)
        if self._state == "between":
            text = text.lstrip()
            self._state = "answer" if text else "between"
        return text

    def finish(self) -> str:
        """Return the text that is still held at the end of the reply and is not thinking."""
        return self._start + "".join(self._held)

    def _decide(self, text: str) -> str:
        self._start = ""
        is_prose = self._before_json and not _JSON.search(text, 0, _MAX_PROSE)
        if _OPENING.match(text):
            self._state, self._before_json = "thinking", False
        elif _UNDECIDED.match(text) or (is_prose and len(text) <= _MAX_PROSE):
            self._start, text = text, ""
        else:
            self._state = "thinking" if is_prose else "answer"
        return text

    def _skip_thinking(self, text: str) -> str:
        """Return what follows the closing tag."""
        if self._before_json:
            self._held.append(text)
        self._tail += text
        closing = _CLOSING.search(self._tail)
        if closing is None:
            self._tail = self._tail[-_LONGEST_TAG:]
            return ""
        self._state, self._held = "between", []
        return self._tail[closing.end() :]
