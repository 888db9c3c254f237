"""Settings of agents and of servers, from arguments and JARVIS_ environment variables."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    TypeAdapter,
    ValidationError,
    field_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from typing_extensions import TypedDict

from jarvis_agent.core.environment import clean_key, respell_proxies
from jarvis_agent.core.errors import ConfigError, InputError, describe_error
from jarvis_agent.core.redaction import redact, register_secret

logger = logging.getLogger(__name__)

Policy = Literal["local-first", "hosted-first", "local-only", "hosted-only"]
Key = Annotated[SecretStr, AfterValidator(lambda key: SecretStr(clean_key(key.get_secret_value())))]


def _listed(value: Any, separator: str = ",") -> Any:
    """The parts of a variable: JSON, or "mit,bsd"."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith(("[", "{")):
        return json.loads(value)
    return [part.strip() for part in value.split(separator) if part.strip()]


Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed)]
Paths = Annotated[tuple[Path, ...], NoDecode, BeforeValidator(partial(_listed, separator=os.pathsep))]


def _paired(value: Any) -> Any:
    """The pairs of a variable: JSON, or "tokens=20000,seconds=60"."""
    parts = _listed(value)
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        return parts
    return {name.strip(): each.strip() for name, _, each in (part.partition("=") for part in parts)}


class EnvironmentSettings(BaseSettings):
    """Settings that are read from JARVIS_ variables unless they are given."""

    model_config = SettingsConfigDict(
        env_prefix="JARVIS_", env_ignore_empty=True, frozen=True, extra="forbid", populate_by_name=True
    )

    if not TYPE_CHECKING:  # Type checkers take the parameters from the fields.

        def __init__(self, **values: Any) -> None:
            """Read the given fields, and the others from the environment.

            Raises:
                ConfigError: a field is unknown or its value invalid; the message names it, or its variable.
            """
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise ConfigError(_fault(error, values, type(self).model_fields)) from None

    def model_post_init(self, context: Any) -> None:
        """Register the keys as secrets."""
        for _, value in self:
            for key in value if isinstance(value, tuple) else (value,):
                if isinstance(key, SecretStr):
                    register_secret(key.get_secret_value())

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Fields for `repr`, without secrets in URLs."""
        for name, value in super().__repr_args__():
            yield name, redact(value) if isinstance(value, str) else value


class Budget(BaseModel):
    """What one run may spend: None is no limit.

    Attributes:
        money: in the currency of the agent's `price`, and of the provider if it reports costs.
        tokens: of the language model, read and written.
        hosted_calls: calls of experts at a provider, retries included.
        seconds: of the whole run; None: 900.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    money: float | None = Field(None, ge=0)
    tokens: int | None = Field(None, ge=0)
    hosted_calls: int | None = Field(None, ge=0)
    seconds: float | None = Field(None, gt=0)

    @property
    def run_seconds(self) -> float:
        """Seconds that the whole run may take."""
        return self.seconds or 900.0

    def lowered(self, other: Budget) -> Budget:
        """This budget with the limits of another one that are lower."""
        own = self.model_dump(exclude_none=True) | {"seconds": self.run_seconds}
        limits = other.model_dump(exclude_none=True).items()
        return self.model_copy(update={name: min(limit, own.get(name, limit)) for name, limit in limits})


class RunOptions(TypedDict, total=False):
    """What an assistant of a server, or a caller of the graph, may choose for its runs.

    Attributes:
        policy: where models run. An agent that is confined to one side stays there.
        budget: limits that are lower than the agent's.
        models: pinned models by task. Behind a server, these are ids of the Hub.
        language: language of the answer, such as "French"; else that of the request.
        content: form of the answer's message (see `Run.to_message`).
    """

    policy: Policy
    budget: Budget
    models: dict[str, str]
    language: str
    content: Literal["text", "blocks", "auto"]


_OPTIONS = TypeAdapter(RunOptions)


def read_options(context: Any) -> RunOptions:
    """The options in the context of a graph; what else is in it belongs to a larger graph.

    Raises InputError: the value of an option is invalid.
    """
    fields = context if isinstance(context, Mapping) else {}
    try:
        return _OPTIONS.validate_python({name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        raise InputError(f"the context of the run cannot be used: {describe_error(error)}") from error


class Settings(EnvironmentSettings):
    """All settings of an agent. Times are in seconds, sizes in bytes.

    Settings(policy="local-only", task_timeout=60)
    JARVIS_POLICY=local-only jarvis "…"         # the same policy, from the environment
    """

    # The language model.
    model: str | None = None
    """String of `init_chat_model`, gguf:FILE, or a name for base_url."""
    base_url: str | None = None
    """An OpenAI-compatible server."""
    api_key: Key | None = None
    """Key for base_url, if it requires one."""
    llm_timeout: float = Field(60.0, gt=0)
    """Longest wait for the LLM's next token."""

    # Prompts and planning.
    prompts: Literal["default", "paper"] | Path | None = None
    """Prompt set, or a directory of one; None: default."""
    context_window: int | None = Field(None, ge=1024)
    """Tokens that the LLM reads; None: by its profile or server, else 32768 (GGUF file: 8192)."""

    # Selection.
    selection: Literal["llm", "rank"] = "llm"
    """Who picks models: "llm", unless it is small, or "rank", the ranking."""
    policy: Policy = "local-first"
    """Where models run: local-first, hosted-first, local-only or hosted-only."""
    models_file: Path | None = None
    """YAML file of your own models, beside all others."""
    spaces: Literal["registered", "search"] = "registered"
    """Gradio Spaces that may be called: yours; "search": also public ones that the Hub finds."""
    licenses: Words = ()
    """Allowed licences, as the Hub spells them; empty: all."""
    offline: bool = Field(False, validation_alias=AliasChoices("JARVIS_OFFLINE", "HF_HUB_OFFLINE"))
    """Never ask the Hub."""
    hf_token: Key | None = Field(None, validation_alias=AliasChoices("JARVIS_HF_TOKEN", "HF_TOKEN"))
    """Token of the Hugging Face Hub."""
    max_download: int = Field(2_000_000_000, ge=0)
    """Largest model to download; 0: none."""
    allow_pickle: bool = False
    """Load weights that are not safetensors from the Hub."""
    trust_remote_code: bool = False
    """Run code that comes with models of the Hub."""

    # Execution.
    task_timeout: float = Field(300.0, gt=0)
    """Time limit for one task."""
    budget: Annotated[Budget, NoDecode, BeforeValidator(_paired)] = Budget()
    """What one run may spend: `money=0.5,tokens=20000,hosted_calls=10,seconds=60`; without seconds, 900."""
    memory_budget: int | None = Field(None, ge=0)
    """Bytes of weights kept loaded in RAM and on each GPU, and of the largest model; 0: none stays in RAM;
    None: half of RAM, four fifths of a GPU."""
    experts: str | None = None
    """URL of an expert server that runs local models; None: this process."""
    experts_key: Key | None = None
    """API key of the expert server."""
    device: str = "auto"
    """Where local models run: "auto", "cpu", "cuda", "cuda:1", "mps"."""
    seed: int = Field(0, ge=-(2**62), lt=2**62)
    """Seed of random numbers; each task and turn of a chat has one after it."""

    # Files.
    output_dir: Path = Path("outputs")
    """Directory that holds one for each run."""
    allowed_dirs: Paths = ()
    """Directories that requests and tools may read; not over HTTP."""
    allow_request_paths: bool = True
    """Read local files that a request names, in its text or as `files`; False on a server."""
    allow_private_urls: bool = False
    """Fetch URLs of private addresses too."""
    max_file_bytes: int = Field(500_000_000, gt=0)
    """Largest file to read or fetch."""

    @field_validator("experts")
    @classmethod
    def _is_url(cls, experts: str | None) -> str | None:
        if experts is None or experts.lower() == "none":
            return None
        if re.fullmatch(r"https?://[^/\s@]+(/\S*)?", experts):
            return experts.rstrip("/")
        raise ValueError('it is a URL such as "http://127.0.0.1:8765"')

    @property
    def attempt_timeout(self) -> float:
        """Seconds for one attempt with one candidate."""
        return 0.8 * self.task_timeout

    @property
    def token(self) -> str | None:
        """The Hugging Face token: HF_TOKEN, or that of `hf auth login`; None without any."""
        if self.hf_token:
            return self.hf_token.get_secret_value()
        from huggingface_hub import get_token

        try:
            return get_token()
        except OSError:  # the home directory cannot be read
            return None

    @property
    def memory_limit(self) -> int:
        """Bytes of model weights that may stay loaded."""
        if self.memory_budget is not None:
            return self.memory_budget
        if hasattr(os, "sysconf"):
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
        return 4_000_000_000


class ServerSettings(EnvironmentSettings):
    """Settings of the server, besides those of its agent. Lists are separated by commas in a variable."""

    api_keys: Annotated[tuple[Key, ...], NoDecode, BeforeValidator(_listed)] = ()
    """Keys of clients, each with its own files, threads and limits; empty: none is needed."""
    allowed_hosts: Words = ()
    """Host names that clients may use; empty: any, or on loopback only this machine's."""
    allowed_origins: Words = ()
    """Other web pages that may use the server (CORS), `https://chat.example`."""
    max_concurrent_runs: int = Field(16, ge=1)
    """Runs at once, for each key and server process."""
    runs_per_minute: int = Field(120, ge=1)
    """Runs started within a minute, for each key and server process."""
    max_upload_bytes: int = Field(10_000_000_000, gt=0)
    """Bytes of uploads that each key keeps at once."""
    checkpoints: str | None = None
    """Where threads and runs are stored: a path, or a URL of PostgreSQL; None: in `output_dir`."""
    retention: float = Field(86_400.0, gt=0)
    """Seconds for which uploads, outputs and threads are kept."""

    @field_validator("allowed_origins")
    @classmethod
    def _as_browsers_write_them(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(origin.lower().rstrip("/") for origin in origins)

    def run_retention(self, settings: Settings) -> float:
        """Seconds for which files of runs are kept: at least as long as a run of an agent may take."""
        return max(self.retention, settings.budget.run_seconds)


def _fault(error: ValidationError, values: Mapping[str, Any], fields: Iterable[str]) -> str:
    first = min(error.errors(include_url=False), key=lambda fault: fault["type"] != "extra_forbidden")
    field = str(first["loc"][0])
    if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
        close = get_close_matches(field, fields, n=1)
        return f"there is no setting {field!r}" + (f"; did you mean {close[0]}?" if close else "")
    name = field if field in values or field.isupper() else f"JARVIS_{field.upper()}"
    if name not in os.environ and (other := name.removeprefix("JARVIS_")) in os.environ:  # HF_TOKEN
        name = other
    name = ".".join([name, *map(str, first["loc"][1:])])
    value = "" if name.lower().endswith(("key", "keys", "token")) else f", not {first['input']!r}"
    return f"{name}: {first['msg'].removeprefix('Value error, ')}{value}"


def read_settings(settings: Settings | Mapping[str, Any] | None = None) -> Settings:
    """Settings from a dict of some of them; absent fields and None are read from the environment.

    Variables that look like a misspelt setting are logged. Raises ConfigError: a value is invalid, and the
    message names the field or the variable; or `settings` is something else.
    """
    respell_proxies()
    if isinstance(settings, Settings):
        return settings
    if settings is not None and not isinstance(settings, Mapping):
        raise ConfigError(
            f"the settings are of type {type(settings).__name__}; give Settings(…) or a dict of its fields"
        )
    for name, nearest in misspelt_variables(os.environ).items():
        logger.warning("%s is not a setting and is ignored; did you mean %s?", name, nearest)
    return Settings(**{field: value for field, value in (settings or {}).items() if value is not None})


def misspelt_variables(names: Iterable[str]) -> dict[str, str]:
    """Variables that look like a misspelt setting, each with the nearest setting."""
    ours = [f"JARVIS_{field.upper()}" for field in (*Settings.model_fields, *ServerSettings.model_fields)]
    unknown = (name for name in names if name.startswith("JARVIS_") and name not in ours)
    nearest = {name: get_close_matches(name, ours, n=1, cutoff=0.85) for name in unknown}
    return {name: close[0] for name, close in nearest.items() if close}
