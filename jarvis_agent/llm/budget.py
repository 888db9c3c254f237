"""Slots of a prompt that can be made shorter: each is a function from a number of tokens to the text.

whole_or_digest(totals(results))(400)                 # one line of JSON, lists cut if it must be
rows(lambda share: predictions(results, share))(2000)  # a line for each, all cut alike before any is lost
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jarvis_agent.response.results import as_data, digest
from jarvis_agent.llm.token_budget import Fit, head, tokens

_SHARES = (4800, 1200, 600, 300, 100, 40, 10)
"""Tokens for each row, tried in this order."""


def cut(value: str) -> Fit:
    """A text, whose end is cut."""
    return lambda most: head(value, most)


def whole_or_digest(value: Any) -> Fit:
    """Plain data as a line of JSON."""

    def fit(most: int) -> str:
        whole = as_data(value)
        return whole if tokens(whole) <= most else as_data(digest(value, most))

    return fit


def rows(make: Callable[[int], Sequence[Any]], nothing: str = "(none)") -> Fit:
    """Plain data, a line of JSON each.

    Args:
        make: gives the rows, each in about so many tokens where it can be cut.
        nothing: stands for no rows.
    """

    def fit(most: int) -> str:
        lines: list[str] = []
        for share in _SHARES:
            lines = [as_data(row) for row in make(share)]
            if tokens("\n".join(lines)) <= most:
                return "\n".join(lines) or nothing
        return lines_within(lines, most)

    return fit


def lines_within(lines: Sequence[str], most: int) -> str:
    """The first lines that there is room for, without too long ones, and how many more there are."""
    kept: list[str] = []
    for line in lines:
        length = tokens(line)
        if length <= most:
            kept.append(line)
            most -= length
    return "\n".join(kept if len(kept) == len(lines) else [*kept, f"… {len(lines) - len(kept)} more"])
