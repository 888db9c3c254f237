"""What may be asked of a language model beside the prompt: a JSON schema, and the paper's bias toward given
words.

    options(model, settings, "plan", schema={…}, bias=["object-detection"])
    # {"response_format": {"type": "json_schema", …}, "logit_bias": {4690: 0.2, …}}

Both are helps, not needs: where a model does not take them, they are left out.
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


def options(
    model: Any,
    settings: Settings,
    stage: str,
    schema: Mapping[str, Any] | None = None,
    bias: Sequence[str] = (),
) -> dict[str, Any]:
    """Keyword arguments for the model's `astream`; empty where nothing is to be asked.

    Args:
        model: the chat model.
        settings: `structured_output` and `logit_bias` decide.
        stage: names the schema.
        schema: JSON schema of the reply. `"additionalProperties": false` at its root makes it a strict one.
        bias: words toward which the reply is drawn.
    """
    asked: dict[str, Any] = {}
    if schema and takes_schema(model, settings):
        form = {"name": stage, "schema": dict(schema), "strict": schema.get("additionalProperties") is False}
        asked["response_format"] = {"type": "json_schema", "json_schema": form}
    if bias and settings.logit_bias and (tokens := _tokens(model, bias)):
        asked["logit_bias"] = dict.fromkeys(tokens, settings.logit_bias)
    return asked


def transport(model: Any) -> dict[str, Any]:
    """Keyword arguments with which a model can be used from several event loops, one after the other or at
    once.

    ChatOpenAI objects share one pool of connections, and a kept connection belongs to the loop that opened
    it: in another one it fails with "Event loop is closed". So none is kept; that costs a handshake a call.
    """
    if not is_openai_like(model):
        return {}
    own = getattr(model, "model_kwargs", {}).get("extra_headers") or {}
    return {"extra_headers": {**own, "Connection": "close"}}


def is_openai_like(model: Any) -> bool:
    """Whether a model speaks OpenAI's protocol through langchain-openai (asked without importing it)."""
    return any(cls.__module__.startswith("langchain_openai.") for cls in type(model).__mro__)


def takes_schema(model: Any, settings: Settings) -> bool:
    """Whether a JSON schema is asked of a model.

    "auto" goes by the model's profile. Where there is none, the model is behind a server of its own
    (llama.cpp, vLLM, Ollama, …); most of them take a schema, and one that does not says so and is asked again
    without.
    """
    if settings.structured_output != "auto":
        return settings.structured_output == "always"
    profile = getattr(model, "profile", None) or {}
    return is_openai_like(model) and bool(profile.get("structured_output", not profile))


def _tokens(model: Any, words: Sequence[str]) -> list[int]:
    """Ids of the words' tokens; empty if they can not be known without a download."""
    name = getattr(model, "model_name", None)
    if not is_openai_like(model) or not isinstance(name, str):
        return []
    import tiktoken
    from tiktoken.registry import ENCODINGS

    try:
        encoding = tiktoken.encoding_name_for_model(name)
    except KeyError:
        log.debug("no logit bias: the tokens of %s are not known", name)
        return []
    if encoding not in ENCODINGS and not _cached_encoding(encoding).is_file():
        log.debug("no logit bias: tiktoken's file for %s is not on this machine", encoding)
        return []
    encode = tiktoken.get_encoding(encoding).encode
    return sorted({token for word in words for token in encode(word, disallowed_special=())})


def _cached_encoding(name: str) -> Path:
    """Where tiktoken keeps an encoding that it has downloaded (as in tiktoken.load.read_file_cached)."""
    folder = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    key = hashlib.sha1(_ENCODINGS_URL.format(name).encode(), usedforsecurity=False).hexdigest()
    return Path(folder or Path(tempfile.gettempdir(), "data-gym-cache")) / key
