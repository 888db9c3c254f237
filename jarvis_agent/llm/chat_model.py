"""Which chat model to use, and what it and its server support: a JSON schema, a token limit, event loops, ….

`resolve_model` takes a string of LangChain's init_chat_model, "none", or for None the first of these:

1. JARVIS_BASE_URL: any OpenAI-compatible server (vLLM, Ollama, llama.cpp) with the model JARVIS_MODEL, by
   default "default", which servers of a single model accept.
2. JARVIS_MODEL: an `init_chat_model` string. "gguf:path/file.gguf" and "gguf:org/repo:file.gguf" run in this
   process, and precede JARVIS_BASE_URL.
3. OPENAI_API_KEY: OpenAI.
4. HF_TOKEN: the OpenAI-compatible router of Hugging Face's Inference Providers, unless `offline` is set.
5. The model that `jarvis setup` installed.
"""

from __future__ import annotations

import json
import math
import os
import re
import struct
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlsplit, urlunsplit

from langchain_core.runnables import Runnable
from pydantic import SecretStr

from jarvis_agent.core.environment import check_proxies, direct_clients, is_loopback, key_of
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.notes import limit_of
from jarvis_agent.core.settings import Settings
from jarvis_agent.llm.tokens import LOCAL_WINDOW

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from jarvis_agent.llm.llama_cpp import ChatGGUF


_WINDOW_FIELDS = ("max_model_len", "context_length", "max_context_length", "context_window", "n_ctx")
"""What vLLM, OpenRouter, LM Studio, Groq and llama.cpp call the window in their lists of models."""

SCHEMA = "response_format"
MAX_TOKENS = "max_tokens"

_SMALL, _LARGE = 2e9, 10e9
_SIZES = {"m": 1e6, "b": 1e9}
_SIZE = re.compile(r"(?<![a-z\d.])(\d+(?:\.\d+)?b|\d{2,}m)(?![a-z\d])", re.IGNORECASE)
"""A number of parameters in a name: "0.5b", "135M". A single digit with "m" is a context window."""
HUB_FILE = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+):(?P<file>[^:\\]+)")


def model_name(model: Any) -> str:
    """The name of a chat model, or its class if it has none; a name and a file have their own."""
    if isinstance(model, str | Path):
        return model.name if isinstance(model, Path) else model
    model = getattr(model, "bound", model)
    names = (getattr(model, field, None) for field in ("model_name", "model", "model_id", "repo_id"))
    return next((name for name in names if isinstance(name, str) and name), type(model).__name__)


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


def is_small(model: Any) -> bool:
    """Whether a model, or one of this name or in this GGUF file, has less than 2 billion parameters."""
    size = _parameters(model)
    return size < _SMALL if size else re.search(r"(?<![a-z])tiny", model_name(model).lower()) is not None


def needs_examples(model: Any) -> bool:
    """Whether a model has less than 10 billion parameters: it plans better with worked examples."""
    return _parameters(model) < _LARGE if _parameters(model) else is_small(model)


def _parameters(model: Any) -> float:
    """The parameters in a GGUF file, else the most that a model's name states ("-0.5b"); 0: unknown."""
    model = getattr(model, "bound", model)
    path = model if isinstance(model, Path) else getattr(model, "path", None)
    if isinstance(path, Path) and (count := parameters_of(path)):
        return count
    sizes = (float(size[:-1]) * _SIZES[size[-1].lower()] for size in _SIZE.findall(model_name(model)))
    return max(sizes, default=0.0)


def schema_options(model: Any, name: str, schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """Keyword arguments for the model's `astream` that ask for a reply of this schema; {} if unsupported.

    The model's profile says that; without one, any OpenAI-like server gets a schema, which it may reject.
    """
    profile = getattr(getattr(model, "bound", model), "profile", None) or {}
    is_able = is_openai_like(model) and profile.get("structured_output", not profile)
    if not schema or not is_able or SCHEMA in getattr(model, "kwargs", {}):
        return {}
    form = {"name": name, "schema": dict(schema), "strict": schema.get("additionalProperties") is False}
    return {SCHEMA: {"type": "json_schema", "json_schema": form}}


async def served_window(model: Any) -> int | None:
    """Tokens that an OpenAI-compatible server says its model reads; None if it says nothing."""
    import httpx

    model = getattr(model, "bound", model)
    url = str(getattr(model, "openai_api_base", None) or "").rstrip("/")
    if not url or not is_openai_like(model):
        return None
    key = getattr(model, "openai_api_key", None)
    headers = {"Authorization": f"Bearer {key.get_secret_value()}"} if isinstance(key, SecretStr) else {}
    options: dict[str, Any] = {"timeout": 3.0, "trust_env": not is_loopback(url)}
    async with httpx.AsyncClient(headers=headers, **options) as client:
        # llama.cpp's /props has the window in use, and the list of models that of other servers.
        for address in (f"{url.removesuffix('/v1')}/props", f"{url}/models"):
            with suppress(httpx.HTTPError, httpx.InvalidURL, ValueError):
                if window := _window_in((await client.get(address)).json(), model_name(model)):
                    return window
    return None


def _window_in(described: Any, name: str) -> int | None:
    """The window in llama.cpp's properties, or in the entry of a list of models that has this name."""
    if not isinstance(described, dict):
        return None
    data = described.get("data")
    listed = [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []
    named = [entry for entry in listed if entry.get("id") == name] or (listed if len(listed) == 1 else [])
    fields = [described.get("default_generation_settings"), *named, *(entry.get("meta") for entry in named)]
    values = (part.get(field) for part in fields if isinstance(part, dict) for field in _WINDOW_FIELDS)
    return next((value for value in values if isinstance(value, int) and value > 0), None)


def length_options(model: Any, window: int) -> dict[str, Any]:
    """The limit of a reply: half of the context window. {} if the model has its own, or takes none."""
    own = getattr(model, "bound", model)
    set_by_user = {**getattr(own, "model_kwargs", {}), **getattr(model, "kwargs", {})}
    if getattr(own, MAX_TOKENS, 0) is not None or {MAX_TOKENS, "max_completion_tokens"} & set_by_user.keys():
        return {}
    profile = getattr(own, "profile", None) or {}
    limit = window // 2
    return {MAX_TOKENS: min(limit, profile.get("max_output_tokens") or limit)}


def transport_options(model: Any) -> dict[str, Any]:
    """Keyword arguments that make ChatOpenAI usable from several event loops."""
    if not is_openai_like(model):
        return {}
    # A kept connection of its shared pool fails in another loop. A new one costs a handshake.
    own = {**getattr(getattr(model, "bound", model), "model_kwargs", {}), **getattr(model, "kwargs", {})}
    return {"extra_headers": {**(own.get("extra_headers") or {}), "Connection": "close"}}


def is_openai_like(model: Any) -> bool:
    """Whether the model is from langchain-openai (checked without importing it)."""
    classes = type(getattr(model, "bound", model)).__mro__
    return any(cls.__module__.startswith("langchain_openai.") for cls in classes)


NO_MODEL = "none"
"""The model name that stands for no LLM."""

GGUF = "gguf:"
"""Begins the name of a GGUF file, "gguf:path/file.gguf", or "gguf:org/repo:file.gguf" of the Hub."""

OPENAI_MODEL = "gpt-5-mini"

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
    if name and name.startswith(GGUF):
        return local_model(gguf_path(name.removeprefix(GGUF), settings), settings)
    if model and ":" in model and model.partition(":")[0] in PROVIDERS:
        return _named(model, settings)
    if settings.base_url:
        key = settings.api_key.get_secret_value() if settings.api_key else "none"
        return openai_model((name or "default").removeprefix("openai:"), settings, settings.base_url, key)
    if name:
        return _named(name, settings)
    if os.environ.get("OPENAI_API_KEY", "").strip():
        return openai_model(OPENAI_MODEL, settings)
    if settings.hf_token and not settings.offline:
        router, key = "https://router.huggingface.co/v1", settings.hf_token.get_secret_value()
        return openai_model("openai/gpt-oss-120b", settings, router, key)
    installed = installed_model()
    return resolve_model(installed, settings) if installed else None


def _named(name: str, settings: Settings) -> BaseChatModel:
    if name.startswith("openai:") or re.match(r"(?:chat)?gpt-|o\d\b", name):
        key = settings.api_key.get_secret_value() if settings.api_key else None
        return openai_model(name.removeprefix("openai:"), settings, key=key)
    from langchain.chat_models import init_chat_model

    check_proxies()
    try:
        model = init_chat_model(name)
        read = {field: value.get_secret_value() for field, value in model if isinstance(value, SecretStr)}
        clean = {field: key_of(field.upper()) for field in read if field.upper() in os.environ}
        changed: dict[str, Any] = {field: key for field, key in clean.items() if key != read[field]}
        return _at_zero(init_chat_model(name, **changed) if changed else model)
    except Exception as error:
        why = _NO_PROVIDER if "infer model provider" in str(error) else str(error)
        why = f"{why.rstrip('.')}. {_OTHERWISE}" if re.search("api.?key|credentials", why.lower()) else why
        raise ConfigError(f'the language model "{name}" cannot be created: {why}') from error


def config_file() -> Path:
    """The user's configuration, which `jarvis setup` writes."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "jarvis_agent" / "config.toml"


def installed_model() -> str | None:
    """The model that `jarvis setup` installed, or None. Raises ConfigError: the configuration is damaged."""
    try:
        name = tomllib.loads(config_file().read_text("utf-8")).get("model")
    except (OSError, RuntimeError):  # `Path.home` raises RuntimeError
        return None
    except ValueError as error:
        raise ConfigError(f"{config_file()} is damaged: {error}; run `jarvis setup` again") from error
    return name if isinstance(name, str) else None


def with_own_model(settings: Settings, model: Any) -> Settings:
    """The settings, which name a chat model that is a GGUF file, so that all its users share one copy."""
    own = getattr(model, "bound", model)
    path = getattr(own, "path", None)
    if not isinstance(path, Path):
        return settings
    window = getattr(own, "n_ctx", settings.context_window)
    return settings.model_copy(update={"model": f"{GGUF}{path}", "context_window": window})


def local_files(settings: Settings) -> list[Path]:
    """The GGUF files of this machine that the settings and `jarvis setup` name; [] without llama.cpp.

    Nothing is downloaded. Raises ConfigError: the configuration is damaged.
    """
    if settings.model == NO_MODEL or find_spec("xllamacpp") is None:
        return []
    here, paths = settings.model_copy(update={"offline": True}), []
    for name in (settings.model, installed_model()):
        if name and name.startswith(GGUF):
            with suppress(ConfigError, OSError):
                paths.append(gguf_path(name.removeprefix(GGUF), here))
    return paths


def store_installed_model(path: Path) -> Path:
    """Store a GGUF file as the model of this user; returns the configuration. Raises OSError."""
    file = config_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    name = json.dumps(f"{GGUF}{path.absolute()}", ensure_ascii=False)  # also a string of TOML
    file.write_text(f"model = {name}\n", "utf-8")
    return file


def local_model(path: Path, settings: Settings) -> ChatGGUF:
    """The chat model in a GGUF file, with the settings' context window and device, at temperature 0.

    Raises MissingExtraError: xllamacpp is not installed.
    """
    from jarvis_agent.llm.llama_cpp import ChatGGUF

    window, layers = settings.context_window or LOCAL_WINDOW, 0 if settings.device == "cpu" else -1
    return ChatGGUF(path=path, n_ctx=window, n_gpu_layers=layers, temperature=0.0)


def openai_model(
    name: str, settings: Settings, base_url: str | None = None, key: str | None = None
) -> BaseChatModel:
    """A ChatOpenAI at temperature 0. `key` must be given with `base_url`: OPENAI_API_KEY is for OpenAI alone.

    Raises ConfigError: there is no key, or the address is malformed.
    """
    if base_url and not base_url.startswith(("http://", "https://")):
        raise ConfigError(f'JARVIS_BASE_URL is "{base_url}"; it must begin with http:// or https://')
    check_proxies()
    if not (key := key or key_of("OPENAI_API_KEY")):
        raise ConfigError(f'the language model "openai:{name}" needs a key: set OPENAI_API_KEY. {_OTHERWISE}')
    from langchain_openai import ChatOpenAI

    clients = direct_clients() if is_loopback(base_url or "") else {}
    model = ChatOpenAI(
        **clients,
        model=name,
        base_url=base_url,
        api_key=SecretStr(key),
        timeout=settings.llm_timeout,
        stream_chunk_timeout=settings.llm_timeout,
        max_retries=_RETRIES,
        stream_usage=True,
    )
    for client in (model.root_client, model.root_async_client) if base_url else ():
        client.organization = client.project = None  # of the environment, which other servers must not see
    return _at_zero(model)


def _at_zero(model: BaseChatModel) -> BaseChatModel:
    """Set temperature 0 where the model accepts a temperature."""
    name = str(getattr(model, "model_name", ""))
    profile: Mapping[str, Any] = getattr(model, "profile", None) or {}
    fixed = is_openai_like(model) and re.match(r"(?:o\d|gpt-[5-9])(?!.*chat)", name)
    if "temperature" in type(model).model_fields and profile.get("temperature", not fixed):
        model.temperature = 0.0  # type: ignore[attr-defined]
    return model


def gguf_path(name: str, settings: Settings) -> Path:
    """The file that "path/file.gguf" or "org/repo:file.gguf" (of the Hub) names, downloaded if needed.

    Raises ConfigError: there is no such GGUF file, the settings forbid its download, or that failed.
    """
    match = HUB_FILE.fullmatch(name)
    if match is None:
        path = Path(name).expanduser()
        if not path.is_file():
            raise ConfigError(
                f'there is no file {path}; name one, or "org/repo:file.gguf", or run `jarvis setup`'
            )
        with path.open("rb") as weights:
            if weights.read(4) != b"GGUF":
                raise ConfigError(f"{path} is no GGUF file")
        return path
    import httpx
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url, try_to_load_from_cache

    repo, file = match["repo"], match["file"]
    if isinstance(cached := try_to_load_from_cache(repo, file), str):
        return Path(cached)
    if settings.offline:
        raise ConfigError(f"{name} is not on this machine", advice="JARVIS_OFFLINE forbids to download it")
    try:
        size = get_hf_file_metadata(hf_hub_url(repo, file), token=settings.token, timeout=10).size or 0
        if size <= settings.max_download:
            return Path(hf_hub_download(repo, file, token=settings.token))
    except (httpx.HTTPError, OSError, ValueError) as error:
        raise ConfigError(f"{name} cannot be downloaded from the Hub", detail=error) from error
    raise ConfigError(
        f"{name} has {size / 1e9:.1f} GB, more than may be downloaded",
        advice=(limit_of("JARVIS_MAX_DOWNLOAD"), f'"jarvis setup --model {name}" downloads it'),
    )


_TYPES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
_MAX_DIMENSIONS = 8  # twice ggml's


@lru_cache
def parameters_of(path: Path) -> int:
    """The number of weights in a GGUF file; 0 if it cannot be read, or is one of several.

    ggml's docs/gguf.md describes the header of versions 2 and 3.
    """
    if re.search(r"-\d{5}-of-\d{5}\.gguf\Z", path.name, re.IGNORECASE):
        return 0
    try:
        with path.open("rb") as file:
            magic, version, tensors, keys = _read(file, "4sIQQ")
            if magic != b"GGUF" or version not in (2, 3):
                return 0
            for _ in range(keys):
                _skip_text(file)
                _skip_value(file, *_read(file, "I"))
            return sum(_weights(file) for _ in range(tensors))
    except (OSError, struct.error, KeyError, ValueError, OverflowError, RecursionError):
        return 0


def _weights(file: BinaryIO) -> int:
    """The number of weights of the next tensor: the product of its sides."""
    _skip_text(file)
    (dimensions,) = _read(file, "I")
    if dimensions > _MAX_DIMENSIONS:
        raise ValueError(f"a tensor has {dimensions} dimensions")
    sides = _read(file, f"{dimensions}Q")
    _read(file, "IQ")  # its type and place
    return math.prod(sides)


def _read(file: BinaryIO, form: str) -> tuple[Any, ...]:
    return struct.unpack(f"<{form}", file.read(struct.calcsize(f"<{form}")))


def _skip_text(file: BinaryIO) -> None:
    length = file.read(8)
    if len(length) < 8:
        raise ValueError("the file ends here")
    file.seek(int.from_bytes(length, "little"), os.SEEK_CUR)  # faster than struct: a vocabulary has 150,000


def _skip_value(file: BinaryIO, kind: int) -> None:
    if kind == _TEXT:
        _skip_text(file)
    elif kind == _LIST:
        kind, length = _read(file, "IQ")
        if kind in _TYPES:
            file.seek(length * struct.calcsize(f"<{_TYPES[kind]}"), os.SEEK_CUR)
        else:
            for _ in range(length):
                _skip_value(file, kind)
    else:
        _read(file, _TYPES[kind])
