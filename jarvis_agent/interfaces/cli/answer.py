"""Answers on standard output: wrapped and rendered in a terminal, line by line as they are in a pipe.

printer = AnswerPrinter(console, is_markdown=True)
for piece in answer:
    printer.feed(piece)
printer.close()
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.markdown import Markdown

from jarvis_agent.core.text import clean

_ITEM = re.compile(r"\s*(?:(?:[-*•]|\d+[.)])\s+)?")
_CJK = "\u2e80-\u9fff\uac00-\ud7af\uff00-\uffef"
_WORD = re.compile(rf"\s+|[{_CJK}]|[^\s{_CJK}]+")
_LINE_END = re.compile(r"\n")
_BLOCK_END = re.compile(r"\n\s*\n(?=[^\s*+\-\d>|])")
"""Between blocks of Markdown that can be rendered one by one; a list with blank lines is one block."""


class AnswerPrinter:
    """Prints an answer while its pieces come, with the paths below the working directory relative.

    Args:
        console: of standard output.
        is_markdown: the answer is a language model's; a terminal shows it block by block.
    """

    def __init__(self, console: Console, *, is_markdown: bool) -> None:
        self._console = console
        self._is_markdown = is_markdown and console.is_terminal
        self._pending = ""
        self._has_blocks = False

    def feed(self, piece: str) -> None:
        """Print what the piece completes."""
        self._pending += piece
        ends = (_BLOCK_END if self._is_markdown else _LINE_END).finditer(self._pending)
        complete = [end for end in ends if self._pending.count("```", 0, end.start()) % 2 == 0]
        if complete:
            self._print(self._pending[: complete[-1].start()])
            self._pending = self._pending[complete[-1].end() :]

    def close(self) -> None:
        """Print the rest."""
        if self._pending:
            self._print(self._pending)
        self._pending = ""

    def _print(self, text: str) -> None:
        text = relative_paths(clean(text))
        if self._is_markdown:
            blank = "\n" if self._has_blocks else ""
            # As a link, an image keeps its path.
            self._console.print(blank, Markdown(text.replace("![", "["), hyperlinks=False), sep="", end="")
            self._has_blocks = True
            return
        for line in text.split("\n"):
            rows = _wrapped(line, self._console.width) if self._console.is_terminal else [line]
            for row in rows:
                self._console.print(row, soft_wrap=True)


def relative_paths(text: str) -> str:
    """The text with the paths below the working directory relative to it."""
    return re.sub(rf"(?<![\w/.:~-]){re.escape(str(Path.cwd()) + os.sep)}", "", text)


def _wrapped(line: str, width: int) -> Iterator[str]:
    """Rows of at most `width` columns, indented like the text of a list's item; long words stay whole."""
    match = _ITEM.match(line)
    indent = cell_len(match[0]) if match else 0
    row, used = "", 0
    for word in _WORD.findall(line):
        size = cell_len(word)
        if used + size > width and used > indent:
            yield row.rstrip()
            row, used = " " * indent, indent
            if word.isspace():
                continue
        row, used = row + word, used + size
    yield row
