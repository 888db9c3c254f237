"""Resolve which chat model to use.

    resolve_model("anthropic:claude-haiku-4-5", settings)   # a string for LangChain's init_chat_model
    resolve_model(None, settings)                           # the first that is configured, or None
    resolve_model("none", settings)                         # None: run without an LLM

`None` takes the first of these:

1. JARVIS_BASE_URL: any OpenAI-compatible server (vLLM, Ollama, llama.cpp) with the model JARVIS_MODEL, by
   default "default", which servers of a single model accept.
2. JARVIS_MODEL: an `init_chat_model` string.
3. OPENAI_API_KEY: OpenAI.
4. HF_TOKEN: the OpenAI-compatible router of Hugging Face's Inference Providers, unless `offline` is set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from langchain_core.runnables import Runnable

from jarvis_agent.core.errors import ConfigError
from jarvis_agent.llm.capabilities import is_openai_like

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from jarvis_agent.core.settings import Settings

NO_MODEL = "none"
"""The model name that stands for no LLM."""

OPENAI_MODEL = "gpt-5-mini"
ROUTER_URL = "https://router.huggingface.co/v1"
ROUTER_MODEL = "openai/gpt-oss-120b"

# fmt: off
PROVIDERS = frozenset(
    {
        "anthropic", "anthropic_bedrock", "azure_ai", "azure_openai", "baseten", "bedrock",
        "bedrock_converse", "cohere", "deepseek", "fireworks", "google_anthropic_vertex", "google_genai",
        "google_vertexai", "groq", "huggingface", "ibm", "litellm", "mistralai", "nvidia", "ollama",
        "openrouter", "perplexity", "together", "upstage", "xai"
    }
)
# fmt: on
"""Provider prefixes of `init_chat_model` other than OpenAI. The "llama3" of "llama3:8b" is not one."""

_RETRIES = 2
_NO_PROVIDER = (  # LangChain's message lists all providers
    f'name it as "provider:model", such as "openai:{OPENAI_MODEL}"; for an OpenAI-compatible server set '
    "JARVIS_BASE_URL too"
)
_OTHERWISE = (
    "Or use another model: HF_TOKEN, or JARVIS_BASE_URL and JARVIS_MODEL, configure one, and with the model "
    f'"{NO_MODEL}" requests are planned without one'
)
_ABOUT_KEY = re.compile(r"api.?key|credentials", re.IGNORECASE)
_FIXED_TEMPERATURE = re.compile(r"(?:o\d|gpt-[5-9])(?!.*chat)")
_OPENAI_NAME = re.compile(r"(?:chat)?gpt-|o\d\b")


def resolve_model(model: BaseChatModel | str | None, settings: Settings) -> BaseChatModel | None:
    """Return the chat model to use, or None to run without one.

    Args:
        model: a chat model, which is returned unchanged; a string; "none"; or None for the configured one.
            With JARVIS_BASE_URL set, a string is a model of that server unless it starts with the prefix of
            another provider ("anthropic:…").
        settings: `model`, `base_url`, `api_key`, `hf_token`, `offline` and `llm_timeout` are used.

    Raises:
        ConfigError: unknown provider, missing package or key, or a malformed address.
    """
    if isinstance(model, Runnable):
        return model
    if NO_MODEL in (model, None if model else settings.model):
        return None
    if model is not None and not isinstance(model, str):
        raise ConfigError(
            f"the language model is of type {type(model).__name__}; pass a LangChain chat model "
            f'or a name such as "openai:{OPENAI_MODEL}"'
        )
    name = model or settings.model
    if model and ":" in model and model.partition(":")[0] in PROVIDERS:
        return _named(model, settings)
    if settings.base_url:
        key = settings.api_key.get_secret_value() if settings.api_key else "none"
        return _openai((name or "default").removeprefix("openai:"), settings, settings.base_url, key)
    if name:
        return _named(name, settings)
    if os.environ.get("OPENAI_API_KEY"):
        return _openai(OPENAI_MODEL, settings)
    if settings.hf_token and not settings.offline:
        return _openai(ROUTER_MODEL, settings, ROUTER_URL, settings.hf_token.get_secret_value())
    return None


def _named(name: str, settings: Settings) -> BaseChatModel:
    if name.startswith("openai:") or _OPENAI_NAME.match(name):
        key = settings.api_key.get_secret_value() if settings.api_key else None
        return _openai(name.removeprefix("openai:"), settings, key=key)
    from langchain.chat_models import init_chat_model

    try:
        return _at_zero(init_chat_model(name))
    except Exception as error:
        why = _NO_PROVIDER if "infer model provider" in str(error) else str(error)
        why = f"{why.rstrip('.')}. {_OTHERWISE}" if _ABOUT_KEY.search(why) else why
        raise ConfigError(f'the language model "{name}" cannot be created: {why}') from error


def _openai(
    name: str, settings: Settings, base_url: str | None = None, key: str | None = None
) -> BaseChatModel:
    """A ChatOpenAI. `key` must be given with `base_url`: OPENAI_API_KEY is never sent to another server."""
    if base_url and not base_url.startswith(("http://", "https://")):
        raise ConfigError(f'JARVIS_BASE_URL is "{base_url}"; it must begin with http:// or https://')
    if not (key or os.environ.get("OPENAI_API_KEY")):
        raise ConfigError(f'the language model "openai:{name}" needs a key: set OPENAI_API_KEY. {_OTHERWISE}')
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    return _at_zero(
        ChatOpenAI(
            model=name,
            base_url=base_url,
            api_key=SecretStr(key) if key else None,
            timeout=settings.llm_timeout,
            stream_chunk_timeout=settings.llm_timeout,
            max_retries=_RETRIES,
            stream_usage=True,
        )
    )


def _at_zero(model: BaseChatModel) -> BaseChatModel:
    """Set temperature 0 where the model accepts a temperature."""
    name = str(getattr(model, "model_name", ""))
    profile: Mapping[str, Any] = getattr(model, "profile", None) or {}
    fixed = is_openai_like(model) and _FIXED_TEMPERATURE.match(name)
    if "temperature" in type(model).model_fields and profile.get("temperature", not fixed):
        model.temperature = 0.0  # type: ignore[attr-defined]
    return model
