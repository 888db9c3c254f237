"""Which calls of one model may be computed as one batch.

    batch = batch_of(expert)                    # None: it takes one call at a time
    if batch and fits_a_batch(call): …

Only small inputs are: a batch needs the memory of all of them at once, and takes as long as its longest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.core.types import Resource

LONGEST_TEXT = 2_000
"""Characters."""

LARGEST_FILE = 5_000_000
"""Bytes."""

_SMALL_KINDS = {"text", "image"}

Batch = Callable[[Sequence[Call]], list[Any]]
"""Gives one raw output for each call, in their order."""


def batch_of(expert: Any) -> Batch | None:
    """What computes several calls of an expert at once; None if nothing does."""
    batch = getattr(expert, "batch", None)
    if batch is None:
        return None

    def checked(calls: Sequence[Call]) -> list[Any]:
        results = list(batch(calls))
        if len(results) != len(calls):
            raise ValueError(f"a batch of {len(calls)} calls gave {len(results)} results")
        return results

    return checked


def fits_a_batch(call: Call) -> bool:
    """Whether every input of a call is small. A file that can not be looked at is not."""
    try:
        return all(_is_small(value) for value in call.inputs.values())
    except OSError:
        return False


def _is_small(value: Any) -> bool:
    match value:
        case str():
            return len(value) <= LONGEST_TEXT
        case Resource(path=None):
            return value.kind in _SMALL_KINDS and len(value.text or "") <= LONGEST_TEXT
        case Resource(path=Path() as file):
            return value.kind in _SMALL_KINDS and file.is_file() and file.stat().st_size <= LARGEST_FILE
        case list() | tuple():
            return len(value) <= LONGEST_TEXT // 100 and all(map(_is_small, value))
        case dict():
            return len(str(value)) <= LONGEST_TEXT
        case _:
            return True
