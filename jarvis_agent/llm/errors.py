"""Errors of language models, as LLMErrors that say what to do and contain no keys.

LangChain's providers report the same conditions with different classes or HTTP statuses. `ADVICE` is the
table of those conditions; the first matching row is used.
"""

import re
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from pydantic import SecretStr

from jarvis_agent.core.errors import LLMError
from jarvis_agent.core.redaction import redact, register_secret
from jarvis_agent.core.settings import Settings
from jarvis_agent.llm.chat_model import model_name

_KEY_LIKE = re.compile(r"\b(?:sk|hf|gsk|xai|pk|rk)[-_][\w*.-]{4,}")


class RejectedRequestError(LLMError):
    """The server rejects the request as it is (400 or 422). One without options may be accepted."""


class Advice(NamedTuple):
    """What happened, what to do, and the exception classes and HTTP statuses of the condition.

    `{seconds}` stands for `llm_timeout`.
    """

    what: str
    do: str
    when: tuple[str | int, ...]


ADVICE = (
    Advice("{llm} refused the key", "set {key} to a key that it accepts",
           ("ModelAuthenticationError", 401)),
    Advice("{llm} does not allow this", "check the permissions of {key}, and your plan with the provider",
           ("ModelPermissionDeniedError", 402, 403)),
    Advice("{llm} was not found there", "set JARVIS_MODEL to a model that the server lists under /models; "
           'JARVIS_BASE_URL includes the path, such as "http://localhost:8000/v1"',
           ("ModelNotFoundError", 404)),
    Advice("the request is too long for {llm}", "shorten the request, or use a model with a longer context",
           ("ContextOverflowError", "exceed_context_size_error", 413)),
    Advice("{llm} has had too many requests", "wait a while, or check your quota with the provider",
           ("ModelRateLimitError", 429)),
    Advice("{llm} was silent for too long ({seconds:g} s)", "try again, or raise JARVIS_LLM_TIMEOUT",
           ("ModelTimeoutError", "APITimeoutError", "TimeoutError", "TimeoutException", 408, 504)),
    Advice("{llm} does not take this request", "use another model",
           ("ModelInvalidRequestError", 400, 422)),
    Advice("{llm} refused", "ask in another way, or use another model",
           ("ContentFilterFinishReasonError",)),
    Advice("{llm} sent a reply that cannot be read",
           "check that JARVIS_BASE_URL leads to an OpenAI-compatible server",
           ("UnicodeDecodeError", "JSONDecodeError", "APIResponseValidationError")),
    Advice("{llm} could not be reached, or dropped the connection",
           "check the network; if you set JARVIS_BASE_URL, check that address and that the server runs",
           ("ModelConnectionError", "APIConnectionError", "ConnectionError", "TransportError")),
    Advice("{llm} failed on its side", "try again later, or use another model",
           ("ModelAPIError", *range(500, 600))),
)  # fmt: skip

_KEY_NAMES = {"api.openai.com": "OPENAI_API_KEY", "router.huggingface.co": "HF_TOKEN"}


def explain(error: BaseException, model: Any, settings: Settings) -> LLMError:
    """The LLMError for a failure of `model`: what happened, and what to do."""
    conditions = {*(cls.__name__ for cls in type(error).__mro__), getattr(error, "status_code", None)}
    conditions.add(getattr(error, "type", None))  # of the body of an answer
    unknown = Advice("{llm} failed", "try again, or use another model", ())
    advice = next((row for row in ADVICE if conditions.intersection(row.when)), unknown)
    words = {"llm": describe_model(model), "key": _key_name(model, settings), "seconds": settings.llm_timeout}
    for field in vars(getattr(model, "bound", model)).values():
        if isinstance(field, SecretStr):
            register_secret(field.get_secret_value())
    detail = _KEY_LIKE.sub("(key)", redact(" ".join(str(error).split())))[:300]
    kind = RejectedRequestError if 400 in advice.when else LLMError
    return kind(advice.what, detail=detail.rstrip("."), advice=advice.do.format_map(words), **words)


def describe_model(model: Any) -> str:
    """The name of a language model and its address if known, such as "gpt-5-mini at https://…"."""
    if model is None:
        return "no language model"
    name = model_name(model)
    url = base_url_of(model)
    return f"{name} at {url}" if url else name


def base_url_of(model: Any) -> str | None:
    """The address of a model's server without user, password and query; None if it has none."""
    model = getattr(model, "bound", model)
    if getattr(model, "is_local", False):
        return None
    client = getattr(model, "root_async_client", None)
    url = getattr(client, "base_url", None) or getattr(model, "base_url", None)
    if not url:
        return None
    parts = urlsplit(str(url))
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=host, query="", fragment="")).rstrip("/")


def _key_name(model: Any, settings: Settings) -> str:
    host = urlsplit(base_url_of(model) or "").hostname
    if settings.base_url and urlsplit(settings.base_url).hostname == host:
        return "JARVIS_API_KEY"
    return _KEY_NAMES.get(host or "", "the model's API key")
