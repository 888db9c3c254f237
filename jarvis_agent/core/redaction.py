"""Secrets taken out of what people, logs and traces are shown.

    redact("GET https://me:pw@host/a.png?sig=abc failed: Bearer hf_abcdefghij0123456789")
    # "GET https://host/a.png?(hidden) failed: (key)"

Masked are the values given to `register_secret` (the keys of the settings, those that models
are registered with), those of environment variables that are named like one, what looks like a key, and the
login, the query and the named values of an address, which is where links carry signatures and tokens.
"""

from __future__ import annotations

import os
import re
import threading

_NAMED_SECRET = re.compile(
    r"(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS|(?:API|ACCESS|SECRET|PRIVATE)KEY"
    r"|(?:^|_)KEY|_PWD|_PASS)S?(?:_?\d+)?$",
    re.IGNORECASE,
)
_SHORTEST = 8
"""Letters; a shorter value would be found in ordinary words."""

_SHORT = re.compile(r"(?=.*[A-Za-z])(?=.*[^A-Za-z]).{4,}", re.DOTALL)
"""Shorter keys; not ordinary words, numbers, or the placeholder of servers without keys ("ollama")."""

# Whatever is looked for has a longest length, so that a long text takes no longer than its length.
_KEY_LIKE = re.compile(
    r"\b(?:"
    r"(?:sk|hf|gsk|xai|pk|rk|r8|nvapi)[-_](?=[\w*-]{0,200}\d)[\w*-]{12,}"
    r"|hf_[A-Za-z]{30,}"
    r"|gh[oprsu]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{10,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}\b|AIza[\w-]{30,}"
    r"|eyJ[\w-]{8,400}\.eyJ[\w-]{8,}\.[\w-]+"
    r")"
)
_BEARER = re.compile(r"\bBearer\s+[\w.~+/=-]{6,}", re.IGNORECASE)
_AUTHORIZATION = re.compile(
    r"(\bauthorization[\"']?\s*[:=,]\s*[\"']?)(?:Basic|Digest|Token)\s+[\w.~+/=-]{6,}", re.IGNORECASE
)
_KEY_NAMED = re.compile(
    r"(\b(?:x-)?api[-_]?key[\"']?\s*[:=]\s*[\"']?)(?=[\w.~+/=-]{0,200}\d)[\w.~+/=-]{6,}", re.IGNORECASE
)
_LOGIN = re.compile(r"(?<=://)[^\s/?#\"'<>]*@")
_ADDRESS = re.compile(r"(?<=://)([^\s\"'<>?#]*)([?#]?)([^\s\"'<>]*)")

_MOST_KEPT = 10_000
"""How many secrets are masked; where every user brings a key, those that were told last."""

_kept: tuple[str, ...] = ()
_lock = threading.Lock()


def register_secret(value: str) -> None:
    """Mask this value from now on, wherever it stands; one of less than eight letters only as a word."""
    global _kept
    if len(value) >= _SHORTEST or _SHORT.fullmatch(value):
        with _lock:
            # Replaced as a whole, so that no other thread sees it without one that is moved.
            _kept = (*(kept for kept in _kept if kept != value), value)[-_MOST_KEPT:]


def redact(text: str) -> str:
    """The text without secrets."""
    for secret in sorted(_of_environment().union(_kept), key=len, reverse=True):
        if secret in text:
            text = _found_as(secret).sub("(key)", text)
    text = _AUTHORIZATION.sub(r"\1(key)", _BEARER.sub("(key)", text))
    text = _KEY_NAMED.sub(r"\1(key)", _KEY_LIKE.sub("(key)", text))
    return _ADDRESS.sub(_without_values, _LOGIN.sub("", text)) if "://" in text else text


def _without_values(address: re.Match[str]) -> str:
    place, mark, rest = address.groups()
    is_told = not rest or (mark == "#" and "=" not in rest)
    return address[0] if is_told else f"{place}{mark}(hidden)"


def _found_as(secret: str) -> re.Pattern[str]:
    word = re.escape(secret)
    return re.compile(word if len(secret) >= _SHORTEST else rf"(?<!\w){word}(?!\w)")


def _of_environment() -> set[str]:
    """Variables that are named like a secret also hold where one is kept, which may be told."""
    return {
        value
        for name, value in os.environ.items()
        if len(value) >= _SHORTEST
        and _NAMED_SECRET.search(name)
        and not (value.startswith("/") and os.path.exists(value))  # noqa: PTH110, since it never raises
    }
