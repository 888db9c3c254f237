"""Mask secrets in messages, logs and traces, and shorten data URLs, which hold whole files.

Masked are registered secrets, environment variables named like secrets, text that looks like a key, and the
login, query and named fragment values of URLs.
"""

import os
import re
import threading

from jarvis_agent.core.forks import fork_safe

_NAMED_SECRET = re.compile(
    r"(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS|(?:API|ACCESS|SECRET|PRIVATE)KEY"
    r"|(?:^|_)KEY|_PWD|_PASS)S?(?:_?\d+)?$",
    re.IGNORECASE,
)
_MIN_LENGTH = 8
"""Shorter values, found in ordinary words, are masked only as whole words."""

_SHORT = re.compile(r"(?=.*[A-Za-z])(?=.*[^A-Za-z]).{4,}", re.DOTALL)
"""Shorter keys; not words, numbers, or the placeholder of servers without keys ("ollama")."""

# Lookaheads are bounded, so that the time is linear.
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

_DATA_URL = re.compile(
    r"(\bdata:[\w.+/-]*(?:;[^\n]{0,100}?)??,\s?[^\s\"'<>]{24})[^\s\"'<>]+(?:\s+[\w+/=%-]{30,})*",
    re.IGNORECASE,
)

_MAX_REGISTERED = 10_000
_registered: tuple[str, ...] = ()
_lock = fork_safe(threading.Lock())


def register_secret(value: str) -> None:
    """Mask this value from now on. Only the last `_MAX_REGISTERED` values are kept."""
    global _registered
    if len(value) >= _MIN_LENGTH or _SHORT.fullmatch(value):
        with _lock:
            # Replaced as a whole, so that no other thread sees it incomplete.
            _registered = (*(secret for secret in _registered if secret != value), value)[-_MAX_REGISTERED:]


def redact(text: str) -> str:
    """The text with its secrets masked, and the data of its data URLs cut off."""
    text = _DATA_URL.sub(r"\1…", text)
    for secret in sorted(_environment_secrets().union(_registered), key=len, reverse=True):
        if secret in text:
            word = re.escape(secret)
            text = re.sub(word if len(secret) >= _MIN_LENGTH else rf"(?<!\w){word}(?!\w)", "(key)", text)
    text = _AUTHORIZATION.sub(r"\1(key)", _BEARER.sub("(key)", text))
    text = _KEY_NAMED.sub(r"\1(key)", _KEY_LIKE.sub("(key)", text))
    return _ADDRESS.sub(_hide_values, _LOGIN.sub("", text)) if "://" in text else text


def _hide_values(address: re.Match[str]) -> str:
    place, mark, rest = address.groups()
    is_harmless = not rest or (mark == "#" and "=" not in rest)
    return address[0] if is_harmless else f"{place}{mark}(hidden)"


def _environment_secrets() -> set[str]:
    """Values of variables named like secrets; an existing path is the location of one, and not masked."""
    return {
        value
        for name, value in os.environ.items()
        if len(value) >= _MIN_LENGTH
        and _NAMED_SECRET.search(name)
        and not (value.startswith("/") and os.path.exists(value))  # noqa: PTH110, since it never raises
    }
