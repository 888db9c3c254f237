"""What a chat model and its server support: a JSON schema, a token limit, event loops, long prompts.

is_small(model)     # True for "llama3.2:1b"
schema_options(model, settings, "plan", {…})    # {"response_format": {"type": "json_schema", …}}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jarvis_agent.core.settings import Settings
from jarvis_agent.llm.budget import context_window

SCHEMA = "response_format"
MAX_TOKENS = "max_tokens"
_LIMITS = {MAX_TOKENS, "max_completion_tokens"}

_SMALL = 2_000_000_000
_SIZES = {"m": 1_000_000, "b": 1_000_000_000}
_SIZE = re.compile(r"(?<![a-z\d.])(\d+(?:\.\d+)?b|\d{2,}m)(?![a-z\d])", re.IGNORECASE)
"""A number of parameters in a name: "0.5b", "135M". A single digit with "m" is a context window."""
_TINY = re.compile(r"(?<![a-z])tiny", re.IGNORECASE)


def model_name(model: Any) -> str:
    """The name of a chat model, or its class if it has none."""
    model = getattr(model, "bound", model)
    names = (getattr(model, field, None) for field in ("model_name", "model", "model_id", "repo_id"))
    return next((name for name in names if isinstance(name, str) and name), type(model).__name__)


def is_small(model: Any) -> bool:
    """Whether a model's name states less than 2 billion parameters ("-0.5b", ":1b", "135m", "tiny")."""
    name = model_name(model)
    if sizes := [float(size[:-1]) * _SIZES[size[-1].lower()] for size in _SIZE.findall(name)]:
        return max(sizes) < _SMALL
    return _TINY.search(name) is not None


def schema_options(
    model: Any, settings: Settings, name: str, schema: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Keyword arguments for the model's `astream` that ask for a reply of this schema; {} if unsupported.

    `"additionalProperties": false` at the root of the schema makes it strict.
    """
    if not schema or not supports_schema(model, settings):
        return {}
    form = {"name": name, "schema": dict(schema), "strict": schema.get("additionalProperties") is False}
    return {SCHEMA: {"type": "json_schema", "json_schema": form}}


def length_options(model: Any, settings: Settings) -> dict[str, Any]:
    """The limit of a reply: half of the context window. {} if the model has its own, or takes none."""
    own = getattr(model, "bound", model)
    set_by_user = {**getattr(own, "model_kwargs", {}), **getattr(model, "kwargs", {})}
    if getattr(own, MAX_TOKENS, 0) is not None or _LIMITS & set_by_user.keys():
        return {}
    profile = getattr(own, "profile", None) or {}
    limit = context_window(own, settings) // 2
    return {MAX_TOKENS: min(limit, profile.get("max_output_tokens") or limit)}


def transport_options(model: Any) -> dict[str, Any]:
    """Keyword arguments that make ChatOpenAI usable from several event loops.

    Its connection pool is shared, and a kept connection fails in another loop with "Event loop is closed".
    So connections are not kept, which costs one handshake per call.
    """
    if not is_openai_like(model):
        return {}
    own = getattr(model, "model_kwargs", {}).get("extra_headers") or {}
    return {"extra_headers": {**own, "Connection": "close"}}


def is_openai_like(model: Any) -> bool:
    """Whether the model is from langchain-openai (checked without importing it)."""
    return any(cls.__module__.startswith("langchain_openai.") for cls in type(model).__mro__)


def supports_schema(model: Any, settings: Settings) -> bool:
    """Whether to send a JSON schema.

    "auto" uses the model's profile. Without one, an OpenAI-compatible server (llama.cpp, vLLM, Ollama, …) is
    assumed to support schemas; if it rejects one, the client retries without.
    """
    if settings.structured_output != "auto":
        return settings.structured_output == "always"
    profile = getattr(model, "profile", None) or {}
    return is_openai_like(model) and bool(profile.get("structured_output", not profile))
