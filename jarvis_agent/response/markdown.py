r"""An answer as Markdown for pages and chat clients; terminals show it as it is.

to_markdown("The text reads: #include <iostream>", results)     # "The text reads: \#include \<iostream\>"
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from jarvis_agent.core.types import TaskResult

CODE = r"""
    ^\ {0,3}(?P<fence>`{3,}(?=[^`\n]*$)|~{3,}).*?(?:^\ {0,3}(?P=fence)[`~]*[ \t]*$|\Z)  # fenced code
    | \\[\\`]                                                                       # no code begins here
    | (?<!`)(?P<ticks>`+)(?!`)[^\n]*?(?<!`)(?P=ticks)(?!`)                           # code in a line
"""
"""Code in Markdown, as a verbose pattern."""

_MARKUP = re.compile(r"[\\`*_~\[\]<>|$#&]|^[-+=](?=\s|[-=]|$)|^\d{1,9}(?=[.)](?:\s|$))", re.MULTILINE)
"""What Markdown and HTML give a meaning, in a line or at its beginning."""
_MIN_CHARS = 3
"""Shorter lines, such as "*", are not told from our own Markdown."""


def to_markdown(answer: str, results: Sequence[TaskResult], ours: Callable[[str], str] = str) -> str:
    """The answer, in which lines of the results' texts outside of code are escaped: no letter gets lost.

    A text that was read in a picture or heard may be anything. `ours` is applied to the rest of the answer.
    """
    lines = {line.strip() for result in results for text in _texts(result) for line in text.splitlines()}
    found = [
        re.escape(one) for one in lines if len(one) >= _MIN_CHARS and _MARKUP.search(one) and one in answer
    ]
    if not found:
        return ours(answer)
    # The ends of a line are no part of a word or a path. The longest line is tried first.
    texts = "|".join(sorted(found, key=len, reverse=True))
    pattern = re.compile(rf"(?<![\w/])(?P<text>{texts})(?![\w/])|(?x:{CODE})", re.DOTALL | re.MULTILINE)
    parts, end = list[str](), 0
    for match in pattern.finditer(answer):
        if match["text"]:
            parts += [ours(answer[end : match.start()]), _MARKUP.sub(_escape, match[0])]
            end = match.end()
    return "".join([*parts, ours(answer[end:])])


def _escape(match: re.Match[str]) -> str:
    return match[0] + "\\" if match[0].isdigit() else "\\" + match[0]


def _texts(result: TaskResult) -> Iterator[str]:
    """The texts that a task made or read."""
    yield from (resource.text for resource in result.resources if resource.text)
    yield from _strings(result.output)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(part)
