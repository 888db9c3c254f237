r"""An answer as Markdown for pages and chat clients; terminals show it as it is.

to_markdown("The text reads: #include <iostream>", results)     # "The text reads: \#include \<iostream\>"
"""

import re
from collections.abc import Sequence

from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import MEDIA
from jarvis_agent.core.text import map_texts
from jarvis_agent.core.types import TaskResult

CODE = r"""
    ^\ {0,3}(?P<fence>`{3,}(?=[^`\n]*$)|~{3,}).*?(?:^\ {0,3}(?P=fence)[`~]*[ \t]*$|\Z)  # fenced code
    | \\[!-/:-@\[-`{-~]                                                             # no markup begins here
    | (?<!`)(?P<ticks>`+)(?!`)[^\n]*?(?<!`)(?P=ticks)(?!`)                           # code in a line
"""
"""Code in Markdown, and what is escaped, as a verbose pattern."""

_MARKUP = re.compile(
    r"^(\d{1,9})(?=[.)](?:\s|$))|(?=[\\`*_~\[\]<>|$#&])|^(?=[-+=](?:\s|[-=]|$))", re.MULTILINE
)
"""Where a backslash takes the meaning from what follows, in a line or at its beginning."""
_MIN_CHARS = 3
"""Shorter lines, such as "*", are not told from our own Markdown."""


def to_markdown(answer: str, results: Sequence[TaskResult]) -> str:
    """The answer, in which lines that were read in a picture, or heard, are escaped outside of code."""
    lines = [line for line in lines_with_markup(results) if line in answer]
    if not lines:
        return answer
    # The ends of a line are no part of a word or a path. The longest line is tried first.
    read = "|".join(map(re.escape, sorted(lines, key=len, reverse=True)))
    pattern = re.compile(rf"(?<![\w/])(?P<text>{read})(?![\w/])|(?x:{CODE})", re.DOTALL | re.MULTILINE)
    return pattern.sub(lambda match: _MARKUP.sub(r"\1\\", match[0]) if match["text"] else match[0], answer)


def lines_with_markup(results: Sequence[TaskResult]) -> set[str]:
    """The lines that tasks read or heard and that Markdown would change."""
    texts = list[str]()
    for result in results:
        spec = TASKS.get(result.task.task)  # a text that a model writes may be Markdown
        if spec is None or any(arg.kind in MEDIA for arg in spec.inputs):
            found = [[part.text for part in result.resources], result.output, result.error]
            map_texts(found, texts.append)
    lines = {line.strip() for text in texts for line in text.splitlines()}
    lines -= {str(path) for result in results for path in result.paths()}  # whose URLs take their places
    return {line for line in lines if len(line) >= _MIN_CHARS and _MARKUP.search(line)}
