"""ThinkingFilter: remove a leading `<think>…</think>` from a streamed reply.

Servers without a reasoning parser leave it in the text.

    feed("<thi"), feed("nk>hm</think>\\n[")  →  "", "["
"""

from __future__ import annotations

_TAGS = ("<think>", "<thinking>")


class ThinkingFilter:
    """Filters one reply. Feed it every piece of text, then call `finish`."""

    def __init__(self) -> None:
        self._held = ""
        self._closing = ""
        self._removed = False
        self._passing = False

    def feed(self, text: str) -> str:
        """Return the text that is known not to be thinking and was not returned before."""
        if self._passing:
            return text
        self._held += text
        if not self._closing and not self._removed:
            start = self._held.lstrip()
            tag = next((tag for tag in _TAGS if start.startswith(tag)), "")
            self._closing = tag.replace("<", "</")
            if not tag and any(tag.startswith(start) for tag in _TAGS):
                return ""
        if self._closing:
            _, closed, after = self._held.partition(self._closing)
            if not closed:
                # Keep only what may be the beginning of the closing tag.
                self._held = self._held[-len(self._closing) :]
                return ""
            self._held, self._closing, self._removed = after, "", True
        if self._removed:
            self._held = self._held.lstrip()
        self._passing = bool(self._held)
        return self._held

    def finish(self) -> str:
        """Return the text that is still held at the end of the reply and is not thinking."""
        return "" if self._passing or self._removed or self._closing else self._held
