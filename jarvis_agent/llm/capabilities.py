"""What a chat model and its server support: a JSON schema for the reply, a limit on its tokens, event loops.

schema_options(model, settings, "plan", {…})    # {"response_format": {"type": "json_schema", …}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jarvis_agent.core.settings import Settings
from jarvis_agent.llm.budget import context_window

SCHEMA = "response_format"
MAX_TOKENS = "max_tokens"
_LIMITS = {MAX_TOKENS, "max_completion_tokens"}


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
    """Keyword arguments that limit a reply, thinking included, to half of the context window.

    {} if the model has no field `max_tokens`, or already has a limit.
    """
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
