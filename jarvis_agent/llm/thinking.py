"""ThinkingFilter: remove blanks and thinking at the start of a streamed reply.

Servers without a reasoning parser leave it in the text as `<think>…</think>`.

    feed("<thi"), feed("nk>hm</think>\\n["), finish()  →  "", "[", ""
"""

from __future__ import annotations

import re

_TAG = r"(?:think|thinking|thought|reasoning)>"
_LONGEST_TAG = len("</reasoning>")
_OPENING = re.compile(rf"<{_TAG}", re.IGNORECASE)
_CLOSING = re.compile(rf"</{_TAG}\s*", re.IGNORECASE)
_UNDECIDED = re.compile(r"(?:<[a-z]{0,9})?\Z", re.IGNORECASE)


class ThinkingFilter:
    """Filters one reply. Feed it every piece of text, then call `finish`."""

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


def after_thinking(text: str) -> str:
    """The text after the last closing tag. Some chat templates swallow the opening one."""
    return text[max((end.end() for end in _CLOSING.finditer(text)), default=0) :]
