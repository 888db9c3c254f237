"""The chat history as text for a prompt: recent turns in words, older ones as the files they produced.

format_chat_history(turns)                # the last ten turns in full
format_chat_history(turns, budget=500)    # the most recent part, in about 500 tokens
"""

from __future__ import annotations

from collections.abc import Sequence

from jarvis_agent.core.context import ChatTurn
from jarvis_agent.core.text import brief_text
from jarvis_agent.core.types import Resource
from jarvis_agent.llm.budget import Truncator, count_tokens, to_json_line

HISTORY_TURNS = 10
"""Turns that a prompt shows in words."""

_MAX_TURN_CHARS = 600


def shorten_history(turns: Sequence[ChatTurn]) -> Truncator:
    """A truncator for the chat history (see `jarvis_agent.llm.budget`)."""
    return lambda limit: format_chat_history(turns, limit) or "(none)"


def format_chat_history(turns: Sequence[ChatTurn], budget: int = 1_000_000) -> str:
    """Earlier turns, oldest first; each resource is one line with its kind, path or text, and name.

    Args:
        turns: oldest first.
        budget: maximum number of tokens. The words of old turns are dropped first, then their resources.
    """
    in_words = HISTORY_TURNS
    kept: list[str] = []
    for age, turn in enumerate(reversed(turns)):
        title = f"Turn {len(turns) - age}"
        made = [f"- {_resource(resource)}" for resource in turn.resources]
        said = [f"User: {_cut(turn.request)}", f"Assistant: {_cut(turn.answer)}"]
        lines = [title, *(said if age < in_words else []), *made]
        if count_tokens("\n".join(lines)) > budget:
            in_words = min(in_words, age)
            lines = [title, *made]
            while lines and count_tokens("\n".join(lines)) > budget:
                lines.pop()
        if len(lines) > 1:
            kept.append("\n".join(lines))
            budget -= count_tokens(kept[-1])
    return "\n".join(reversed(kept))


def _resource(resource: Resource) -> str:
    what = to_json_line(str(resource.path)) if resource.path else _cut(resource.as_text())
    return f"{resource.kind} {what}" + (f" ({to_json_line(resource.name)})" if resource.name else "")


def _cut(text: str) -> str:
    return to_json_line(brief_text(text, _MAX_TURN_CHARS))
