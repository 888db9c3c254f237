"""How much a language model can read: tokens are estimated, texts cut to them, slots of a prompt fitted.

    window_of(model, settings)                  # 272000, from the model's profile
    head("a long text …", 100)                  # its first 100 tokens, and how much was cut
    fitted({"Chat Logs": log, "Files": files}, 4000)

A tokenizer would have to be downloaded, so tokens are counted by a rule that counts too many rather than too
few: four letters of a word count as one, and so does every other sign.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from jarvis_agent.core.settings import Settings

DEFAULT_WINDOW = 8192
"""Tokens that any model of today can read."""

_PROMPT_SHARE = 0.75
"""The part of it that a prompt may fill; the rest is for the reply and for what the estimate misses."""

_TOKEN = re.compile(r"[a-zA-Z\u00c0-\u024f]{1,4}|[0-9]{1,3}|[^\s]")

Fit = Callable[[int], str]
"""Gives a slot's text in at most about so many tokens."""


def window_of(model: Any, settings: Settings) -> int:
    """Tokens that a chat model takes: `settings.context_window`, what its profile says, or 8192."""
    profile = getattr(model, "profile", None) or {}
    return settings.context_window or profile.get("max_input_tokens") or DEFAULT_WINDOW


def room(window: int) -> int:
    """Tokens of a window that a prompt may fill."""
    return int(window * _PROMPT_SHARE)


def tokens(text: str) -> int:
    """About how many tokens a text has."""
    return len(_TOKEN.findall(text))


def head(text: str, most: int) -> str:
    """The first `most` tokens of a text, with a word on what was cut; the text itself if it has no more."""
    if len(text) <= most:
        return text
    for place, token in enumerate(_TOKEN.finditer(text)):
        if place == most:
            return f"{text[: token.start()].rstrip()} … ({len(text) - token.start()} more characters)"
    return text


def fitted(slots: Mapping[str, Fit], budget: int) -> dict[str, str]:
    """The slots' texts within a budget of tokens.

    Earlier slots matter more: each may take half of what is left, and the last one all of it.
    """
    texts: dict[str, str] = {}
    left = max(0, budget)
    for place, (name, fit) in enumerate(slots.items(), 1):
        texts[name] = fit(left if place == len(slots) else left // 2)
        left = max(0, left - tokens(texts[name]))
    return texts
