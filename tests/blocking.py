"""Detect calls that block an event loop, as `langgraph dev` does.

with no_blocking() as blocked:
    await graph.ainvoke(…)          # BlockingCallError: os.mkdir blocks the event loop
assert blocked == []                # also if the error was caught
"""

import asyncio
import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PACKAGE = str(Path(__file__).parent.parent / "jarvis_agent")

_CALLS: list[tuple[Any, str]] = [
    *((os, name) for name in ("getcwd", "stat", "mkdir", "rmdir", "remove", "unlink", "rename", "replace")),
    *((os, name) for name in ("listdir", "scandir", "readlink", "access", "open")),
    *((io, name) for name in ("open",)),
    (time, "sleep"),
]


class BlockingCallError(Exception):
    """A blocking function was called in an event loop."""


@contextmanager
def no_blocking() -> Iterator[list[str]]:
    """Refuse blocking calls of this package in threads that run an event loop; imports may block.

    Yields:
        The refused calls.
    """
    refused: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        for module, name in _CALLS:
            patch.setattr(module, name, guarded(getattr(module, name), f"{module.__name__}.{name}", refused))
        yield refused


def guarded(call: Callable[..., Any], name: str, refused: list[str]) -> Callable[..., Any]:
    """A call that this package is refused in threads that run an event loop."""

    def guard(*args: Any, **options: Any) -> Any:
        if asyncio._get_running_loop() is not None and (place := _caller()):
            refused.append(f"{name} blocks the event loop, in {place}")
            raise BlockingCallError(refused[-1])
        return call(*args, **options)

    return guard


def _caller() -> str | None:
    """The calling line of this package; None for calls from elsewhere and during imports."""
    frame = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith("<frozen importlib"):
            return None
        if file.startswith(PACKAGE):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return None
