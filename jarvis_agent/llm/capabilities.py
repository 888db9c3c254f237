"""Optional request parameters: a JSON schema for the reply, and the paper's logit bias.

    model_options(model, settings, "plan", schema={…}, bias=["object-detection"])
    # {"response_format": {"type": "json_schema", …}, "logit_bias": {4690: 0.2, …}}

They are left out where the model does not support them.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jarvis_agent.core.settings import Settings

log = logging.getLogger(__name__)

_ENCODINGS_URL = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"


def model_options(
    model: Any,
    settings: Settings,
    stage: str,
    schema: Mapping[str, Any] | None = None,
    bias: Sequence[str] = (),
) -> dict[str, Any]:
    """Keyword arguments for the model's `astream` or `ainvoke`.

    Args:
        model: the chat model.
        settings: `structured_output` and `logit_bias` are used.
        stage: name of the schema.
        schema: JSON schema of the reply. `"additionalProperties": false` at its root makes it strict.
        bias: words whose tokens are made more likely.
    """
    options: dict[str, Any] = {}
    if schema and supports_schema(model, settings):
        form = {"name": stage, "schema": dict(schema), "strict": schema.get("additionalProperties") is False}
        options["response_format"] = {"type": "json_schema", "json_schema": form}
    if bias and settings.logit_bias and (tokens := _tokens(model, bias)):
        options["logit_bias"] = dict.fromkeys(tokens, settings.logit_bias)
    return options


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


def _tokens(model: Any, words: Sequence[str]) -> list[int]:
    """Ids of the words' tokens; empty if the encoding would have to be downloaded."""
    name = getattr(model, "model_name", None)
    if not is_openai_like(model) or not isinstance(name, str):
        return []
    import tiktoken
    from tiktoken.registry import ENCODINGS

    try:
        encoding = tiktoken.encoding_name_for_model(name)
    except KeyError:
        log.debug("no logit bias: unknown encoding of %s", name)
        return []
    if encoding not in ENCODINGS and not _cached_encoding(encoding).is_file():
        log.debug("no logit bias: tiktoken's file for %s is not on this machine", encoding)
        return []
    encode = tiktoken.get_encoding(encoding).encode
    return sorted({token for word in words for token in encode(word, disallowed_special=())})


def _cached_encoding(name: str) -> Path:
    """The file where tiktoken caches an encoding (see tiktoken.load.read_file_cached)."""
    folder = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    key = hashlib.sha1(_ENCODINGS_URL.format(name).encode(), usedforsecurity=False).hexdigest()
    return Path(folder or Path(tempfile.gettempdir(), "data-gym-cache")) / key
