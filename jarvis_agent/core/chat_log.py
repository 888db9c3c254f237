"""The chat so far, as prompts show it: the newest turns in words, of older ones what they made.

chat_log(turns, words=10)                 # the last ten turns whole, one line a resource of those before
chat_log(turns, words=10, budget=500)     # the newest of it, in at most about 500 tokens
"""

from __future__ import annotations

from collections.abc import Sequence

from jarvis_agent.response.results import as_data
from jarvis_agent.core.request import ChatTurn
from jarvis_agent.core.types import Resource
from jarvis_agent.llm.token_budget import tokens

_LONGEST_TURN = 600


def chat_log(turns: Sequence[ChatTurn], words: int | None = None, budget: int | None = None) -> str:
    """Earlier turns, oldest first; each resource is one line with its kind, its path or text, and its origin.

    Args:
        turns: oldest first.
        words: the last so many turns are told in words; None: all. With 0 there is no log.
        budget: tokens that it may have. The words of old turns go first, then their resources.
    """
    if words == 0:
        return ""
    newest = len(turns) if words is None else words
    kept: list[list[str]] = []
    left = budget
    for age, turn in enumerate(reversed(turns)):
        made = [f"- {_resource(resource)}" for resource in turn.resources]
        said = [f"User: {_cut(turn.request)}", f"Assistant: {_cut(turn.answer)}"]
        whole = [f"Turn {len(turns) - age}", *(said if age < newest else []), *made]
        if left is not None and tokens("\n".join(whole)) > left:
            newest = min(newest, age)
            whole = _within([f"Turn {len(turns) - age}", *made], left)
        if len(whole) < 2:
            continue
        kept.append(whole)
        left = None if left is None else left - tokens("\n".join(whole))
    return "\n".join(line for entry in reversed(kept) for line in entry)


def _within(lines: Sequence[str], budget: int) -> list[str]:
    """As many of the first lines as fit."""
    fitting: list[str] = []
    for line in lines:
        budget -= tokens(line)
        if budget < 0:
            break
        fitting.append(line)
    return fitting


def _resource(resource: Resource) -> str:
    what = as_data(str(resource.path)) if resource.path else _cut(resource.as_text())
    return f"{resource.kind} {what}" + (f" ({as_data(resource.name)})" if resource.name else "")


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return as_data(flat if len(flat) <= _LONGEST_TURN else flat[:_LONGEST_TURN] + " …")
