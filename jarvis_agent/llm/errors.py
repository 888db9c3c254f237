"""What went wrong with a language model, told to the person who can do something about it, and without keys.

    raise explain(error, model, settings) from error
    # LLMError: gpt-5-mini at https://api.openai.com/v1 refused the key (401): … Set OPENAI_API_KEY to a key
    that it accepts.

Every provider of LangChain reports the same conditions with classes or HTTP statuses of its own. `ADVICE` is
the table of those conditions; the first row that fits wins.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pydantic import SecretStr

from jarvis_agent.core.errors import LLMError
from jarvis_agent.core.redaction import redact, register_secret
from jarvis_agent.core.settings import Settings

_KEY_LIKE = re.compile(r"\b(?:sk|hf|gsk|xai|pk|rk)[-_][\w*.-]{4,}")
_LONGEST = 300


class RejectedRequestError(LLMError):
    """The server does not take the request as it stands (400 or 422); a plainer one may pass."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A condition, by names of exception classes and HTTP statuses, and what to tell the user.

    `{llm}`, `{key}` and `{seconds}` in the texts stand for the model, the name of its key, and the longest
    silence.
    """

    what: str
    do: str
    classes: frozenset[str] = frozenset()
    statuses: frozenset[int] = frozenset()
    error: type[LLMError] = LLMError

    def fits(self, error: BaseException) -> bool:
        names = {cls.__name__ for cls in type(error).__mro__}
        return bool(self.classes & names) or getattr(error, "status_code", None) in self.statuses


ADVICE: tuple[Advice, ...] = (
    Advice(
        "{llm} refused the key",
        "Set {key} to a key that it accepts.",
        frozenset({"ModelAuthenticationError"}),
        frozenset({401}),
    ),
    Advice(
        "{llm} does not allow this",
        "Check what {key} may do, and your plan with the provider.",
        frozenset({"ModelPermissionDeniedError"}),
        frozenset({402, 403}),
    ),
    Advice(
        "{llm} was not found there",
        "Set JARVIS_MODEL to a model that the server lists under /models. An address of your own "
        '(JARVIS_BASE_URL) is given with its path, such as "http://localhost:8000/v1".',
        frozenset({"ModelNotFoundError"}),
        frozenset({404}),
    ),
    Advice(
        "the request is too long for {llm}",
        "Shorten the request, or use a model with a longer context.",
        frozenset({"ContextOverflowError"}),
        frozenset({413}),
    ),
    Advice(
        "{llm} has had too many requests",
        "Wait a while, or check your quota with the provider.",
        frozenset({"ModelRateLimitError"}),
        frozenset({429}),
    ),
    Advice(
        "{llm} was silent for too long ({seconds:g} s)",
        "Try again, or raise JARVIS_LLM_TIMEOUT.",
        frozenset({"ModelTimeoutError", "TimeoutError", "TimeoutException"}),
        frozenset({408, 504}),
    ),
    Advice(
        "{llm} does not take this request",
        "Set JARVIS_STRUCTURED_OUTPUT=never if it knows no JSON schema; otherwise use another model.",
        frozenset({"ModelInvalidRequestError"}),
        frozenset({400, 422}),
        RejectedRequestError,
    ),
    Advice(
        "{llm} refused",
        "Ask in another way, or use another model.",
        frozenset({"ContentFilterFinishReasonError"}),
    ),
    Advice(
        "{llm} sent a reply that cannot be read",
        "Check that JARVIS_BASE_URL leads to an OpenAI-compatible server.",
        frozenset({"UnicodeDecodeError", "JSONDecodeError", "APIResponseValidationError"}),
    ),
    Advice(
        "{llm} could not be reached, or dropped the connection",
        "Check the network; if you set JARVIS_BASE_URL, check that address and that the server runs.",
        frozenset({"ModelConnectionError", "ConnectionError", "TransportError"}),
    ),
    Advice(
        "{llm} failed on its side",
        "Try again later, or use another model.",
        frozenset({"ModelAPIError"}),
        frozenset(range(500, 600)),
    ),
)

_OTHERWISE = Advice("{llm} failed", "Try again, or use another model.")

_KEY_NAMES: tuple[tuple[str, str], ...] = (
    ("api.openai.com", "OPENAI_API_KEY"),
    ("router.huggingface.co", "HF_TOKEN"),
)


def explain(error: BaseException, model: Any, settings: Settings) -> LLMError:
    """The LLMError that tells a failure of `model` to people: what happened, and what to do."""
    advice = next((row for row in ADVICE if row.fits(error)), _OTHERWISE)
    words = {"llm": describe_model(model), "key": _key_name(model, settings), "seconds": settings.llm_timeout}
    detail = redact_keys(" ".join(str(error).split()), model, settings)[:_LONGEST]
    what = advice.what.format_map(words) + (f": {detail}" if detail else "")
    return advice.error(f"{what.rstrip('.')}. {advice.do.format_map(words)}")


def describe_model(model: Any) -> str:
    """A language model in words, without secrets: its name, and its address if that is known.

    Returns:
        Such as "gpt-5-mini at https://api.openai.com/v1", or "no language model" for None.
    """
    if model is None:
        return "no language model"
    model = getattr(model, "bound", model)
    names = (getattr(model, field, None) for field in ("model_name", "model", "model_id", "repo_id"))
    name = next((n for n in names if isinstance(n, str) and n), type(model).__name__)
    url = base_url_of(model)
    return f"{name} at {url}" if url else name


def base_url_of(model: Any) -> str | None:
    """The address that a model asks, without user, password and query; None if the model does not say."""
    model = getattr(model, "bound", model)
    client = getattr(model, "root_async_client", None)
    url = getattr(client, "base_url", None) or getattr(model, "base_url", None)
    if not url:
        return None
    parts = urlsplit(str(url))
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=host, query="", fragment="")).rstrip("/")


def redact_keys(text: str, model: Any, settings: Settings) -> str:
    """`text` without any key that we know of, or that looks like one."""
    for secret in _secrets(model, settings):
        register_secret(secret)
        text = text.replace(secret, "(key)")
    return redact(_KEY_LIKE.sub("(key)", text))


def _secrets(model: Any, settings: Settings) -> Iterator[str]:
    fields = [*vars(getattr(model, "bound", model)).values(), settings.api_key, settings.hf_token]
    known = [field.get_secret_value() for field in fields if isinstance(field, SecretStr)]
    return (secret for secret in [*known, os.environ.get("OPENAI_API_KEY", "")] if len(secret) > 5)


def _key_name(model: Any, settings: Settings) -> str:
    url = base_url_of(model) or ""
    if settings.base_url and urlsplit(settings.base_url).hostname == urlsplit(url).hostname:
        return "JARVIS_API_KEY"
    return next((name for host, name in _KEY_NAMES if host in url), "the model's API key")
