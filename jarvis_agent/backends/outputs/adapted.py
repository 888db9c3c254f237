"""What an adapter is, and what it returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jarvis_agent.core.types import Resource

if TYPE_CHECKING:
    from jarvis_agent.backends.base import Call


@dataclass(frozen=True, slots=True)
class Adapted:
    """`output`: plain JSON. `summary`: what a text argument gets for it. `files`: what was written."""

    output: Any
    summary: str
    files: tuple[Resource, ...] = ()


Adapter = Callable[[Any, "Call"], Adapted]
"""From an expert's raw output. It raises UnexpectedError for a raw output that has another form."""
