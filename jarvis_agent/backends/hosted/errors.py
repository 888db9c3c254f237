"""What goes wrong with those who run models for others, as errors that the ladder understands.

429, 5xx, a dropped connection    TransientError (RateLimitedError, if they say when to come back)
a refused token, 4xx              UnsupportedError: this provider will not do it, another one may
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from jarvis_agent.backends.hub.model_card import brief_text
from jarvis_agent.core.errors import ExpertError, RateLimitedError, TransientError, UnsupportedError
from jarvis_agent.core.settings import Settings

_REFUSALS = {
    401: "it refuses the token (401); check HF_TOKEN",
    402: "the token's credits for inference are used up (402); see https://huggingface.co/settings/billing",
    403: 'it refuses the token (403); the token needs the permission "Make calls to Inference Providers"',
    404: "it does not have the model (404)",
}


def reply_timeout(settings: Settings) -> float:
    """Seconds to wait for a reply: less than an attempt, so that another provider can still be tried."""
    return 0.9 * settings.attempt_timeout


def expert_error(error: Exception, provider: str) -> ExpertError:
    """The error for what huggingface_hub's client raised."""
    response = getattr(error, "response", None) or getattr(error.__cause__, "response", None)
    if response is not None:
        return _by_status(response, error, provider)
    from huggingface_hub.utils import httpx  # type: ignore[attr-defined]

    said = brief_text(str(error)) or type(error).__name__
    if isinstance(error, httpx.HTTPError | OSError):
        return TransientError(f"{provider} can not be reached: {said}")
    return UnsupportedError(f"{provider}: {said}")


def _by_status(response: Any, error: Exception, provider: str) -> ExpertError:
    status = int(response.status_code)
    if status in _REFUSALS:
        return UnsupportedError(f"{provider}: {_REFUSALS[status]}")
    said = f"{provider} answered {status}: {_message(response, error)}"
    if status not in (408, 429) and status < 500:
        return UnsupportedError(said)
    wait = retry_after(response.headers)
    if status == 429 or wait is not None:
        return RateLimitedError(said, wait)
    return TransientError(said)


def _message(response: Any, error: Exception) -> str:
    """What the server said, else what the client made of it."""
    try:
        said = response.json()["error"]
    except (ValueError, LookupError, TypeError):
        said = None
    return brief_text(said if isinstance(said, str) else str(error), 200)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from the header Retry-After (a number of seconds, or a date), or Retry-After-Ms."""
    value, milliseconds = headers.get("retry-after", "").strip(), headers.get("retry-after-ms", "")
    for said, unit in ((milliseconds, 0.001), (value, 1.0)):
        if re.fullmatch(r"\d+(\.\d+)?", said):
            return float(said) * unit
    try:
        when = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, (when - datetime.now(UTC)).total_seconds()) if when.tzinfo else None


def failures(model: str, failed: Sequence[ExpertError]) -> ExpertError:
    """One error for all providers of a model: worth another try if any of them is."""
    said = f"{model}: " + "; ".join(str(error) for error in failed)
    passing = [error for error in failed if isinstance(error, TransientError)]
    if not passing:
        return UnsupportedError(said)
    waits = [error.retry_after for error in passing if isinstance(error, RateLimitedError)]
    if len(waits) < len(passing):
        return TransientError(said)
    return RateLimitedError(said, min((wait for wait in waits if wait is not None), default=None))
