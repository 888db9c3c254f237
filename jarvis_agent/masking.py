"""Secrets taken out of what people, logs and traces are told.

    masked("GET https://me:pw@host/a.png?sig=abc failed: Bearer hf_abcdefghij0123456789")
    # "GET https://host/a.png?(hidden) failed: (key)"

Masked are the values that were told to be secrets (`keep_secret`: the keys of the settings, those that models
are registered with), those of environment variables that are named like one, what looks like a key, and the
login and the query of an address, which is where signed links carry their signature.
"""

from __future__ import annotations

import os
import re

_NAMED_SECRET = re.compile(r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS)$", re.IGNORECASE)
_SHORTEST = 8
"""Letters; a shorter value would be found in ordinary words."""

_KEY_LIKE = re.compile(r"\b(?:sk|hf|gsk|xai|pk|rk)[-_](?=[\w*-]*\d)[\w*-]{12,}")
_BEARER = re.compile(r"\bBearer\s+[\w.~+/=-]{6,}", re.IGNORECASE)
_LOGIN = re.compile(r"(?<=://)[^\s/?#@]*@")
_QUERY = re.compile(r"(\bhttps?://[^\s?#\"'<>]*)\?[^\s\"'<>]+", re.IGNORECASE)

_kept: set[str] = set()


def keep_secret(value: str) -> None:
    """Mask this value from now on, wherever it stands."""
    if len(value) >= _SHORTEST:
        _kept.add(value)


def masked(text: str) -> str:
    """The text without secrets."""
    for secret in sorted(_kept | _of_environment(), key=len, reverse=True):
        text = text.replace(secret, "(key)")
    text = _KEY_LIKE.sub("(key)", _BEARER.sub("(key)", text))
    return _QUERY.sub(r"\1?(hidden)", _LOGIN.sub("", text)) if "://" in text else text


def _of_environment() -> set[str]:
    return {
        value
        for name, value in os.environ.items()
        if len(value) >= _SHORTEST and _NAMED_SECRET.search(name) and "/" not in value[:1]
    }
