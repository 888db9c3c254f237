"""Errors of providers as `ExpertError`s, and how long to wait for them.

429, 5xx and dropped connections are TransientErrors (RateLimitedError with the provider's time to wait); a
refused token and other 4xx are UnsupportedErrors: another provider may accept the call.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from jarvis_agent.core.errors import ExpertError, RateLimitedError, TransientError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.text import brief_text

_REFUSALS = {
    401: "it refuses the token (401); check HF_TOKEN",
    402: "the token's account has no credits for inference (402), as free ones have none: buy some at "
    "https://huggingface.co/settings/billing, or use a Space or a model on this machine",
    403: 'it refuses the token (403); the token needs the permission "Make calls to Inference Providers"',
    404: "it does not have the model (404)",
}


def reply_timeout(settings: Settings) -> float:
    """Seconds to wait for a reply: less than an attempt, so that silence is the provider's failure."""
    return 0.9 * settings.attempt_timeout


def expert_error(error: Exception, provider: str) -> ExpertError:
    """The error for an exception of huggingface_hub's client."""
    from huggingface_hub.utils import httpx  # type: ignore[attr-defined]

    response = getattr(error, "response", None) or getattr(error.__cause__, "response", None)
    if response is None:
        words = brief_text(str(error)) or type(error).__name__
        if isinstance(error, httpx.HTTPError | OSError):
            return TransientError(f"{provider} cannot be reached", detail=words)
        return UnsupportedError(f"{provider} failed", detail=words)
    status, message = int(response.status_code), None
    if status in _REFUSALS:
        return UnsupportedError(f"{provider}: {_REFUSALS[status]}")
    with suppress(ValueError, AttributeError):  # it is no JSON, or no object
        message = response.json()
        while isinstance(message, Mapping):
            message = message.get("error") or message.get("message") or message.get("detail")
    message = str(message or error)
    text = f"{provider} answered {status}: {brief_text(message, 200)}"
    if status not in (408, 429) and status < 500:
        return UnsupportedError(text)
    wait = retry_after(response.headers)
    return TransientError(text) if status != 429 and wait is None else RateLimitedError(text, wait)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from the header Retry-After: a number of seconds, or a date."""
    value = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d+(\.\d+)?", value):
        return float(value)
    try:
        when = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, (when - datetime.now(UTC)).total_seconds()) if when.tzinfo else None


def combine_errors(model: str, failed: Sequence[ExpertError]) -> ExpertError:
    """One error for all providers of a model: transient if any of them is."""
    parts: dict[str, Any] = {"model": model, "reasons": [error.note for error in failed]}
    transient = [error for error in failed if isinstance(error, TransientError)]
    if not transient:
        return UnsupportedError("{model}: {reasons}", **parts)
    waits = [error.retry_after for error in transient if isinstance(error, RateLimitedError)]
    if len(waits) < len(transient):
        return TransientError("{model}: {reasons}", **parts)
    wait = min((wait for wait in waits if wait is not None), default=None)
    return RateLimitedError("{model}: {reasons}", wait, **parts)
