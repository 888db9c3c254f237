"""Where models are found. A ModelSource lists the candidates for a task; the selector asks all of them.

    RegisteredSource({"id": "my-org/my-detr", "task": "object-detection", "path": "/models/detr"})
    RegisteredSource({"id": "qwen3:8b", "tasks": ["text-generation", "translation"],
                      "base_url": "http://localhost:11434/v1"})
    RegisteredSource({"id": "org/space", "task": "text-to-image", "space": "org/space"})
    RegisteredSource.from_yaml("models.yaml")
    CacheSource(settings)      what has been downloaded already (jarvis_agent.selection.sources.cache)
    HubSource(settings)        the Hub itself (jarvis_agent.selection.sources.hub)
    StarterSource(settings)    models inside packages (jarvis_agent.backends.starter.models)

A new source is a class with a `name` and one method, found through the entry-point group
`jarvis_agent.model_sources`; it is called with the settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, field_validator

from jarvis_agent.backends.hub import model_card as cards
from jarvis_agent.core.concurrency import StageTimeoutError, run_with_timeout
from jarvis_agent.core.errors import ConfigError, DeadlineError
from jarvis_agent.core.plugins import brought
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import known_task
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate, Frozen, StrPath

ENTRY_POINTS = "jarvis_agent.model_sources"


@runtime_checkable
class ModelSource(Protocol):
    """Lists models."""

    name: ClassVar[str]

    async def candidates(self, spec: TaskSpec, limit: int) -> list[Candidate]:
        """At most `limit` models for the task, the most downloaded first; [] if it has none.

        It may be asked for several runs at once, and sees none of their context variables then.

        Raises:
            JarvisError: the source could not be asked. The selector notes it and asks the other sources.
        """
        ...


@runtime_checkable
class ModelLookup(Protocol):
    """A source that also knows models which its lists leave out."""

    async def find(self, spec: TaskSpec, model_id: str, revision: str | None) -> Candidate | None:
        """The model of that id; None if there is none. Raises what `candidates` raises."""
        ...


@runtime_checkable
class CardProvider(Protocol):
    """A source that can tell more of a model than its lists do, at the price of a request."""

    async def describe(self, candidate: Candidate) -> str:
        """What the model's card says first; "" if it says nothing, or can not be had in time."""
        ...


@runtime_checkable
class RemoteSource(Protocol):
    """A source that is too far away to be asked what it has for every task at once."""

    def likely(self, spec: TaskSpec) -> list[Candidate]:
        """Candidates that stand for those it would list, nobody being asked; [] if it would list none."""
        ...


async def candidates_of(
    source: ModelSource, spec: TaskSpec, limit: int, settings: Settings
) -> list[Candidate]:
    """What a source has for a task: models of its own, and those of the task type whose models do it too.

    Raises:
        DeadlineError: it does not answer within half of `settings.select_timeout`.
        TypeError: what it lists are no candidates.
        Exception: what `source.candidates` raises.
    """

    async def ask() -> list[Candidate]:
        found = list(await source.candidates(spec, limit))
        if spec.models_of:
            others = await source.candidates(known_task(spec.models_of), limit)
            found += [candidate.model_copy(update={"task": spec.name}) for candidate in others]
        if stranger := next((one for one in found if not isinstance(one, Candidate)), None):
            raise TypeError(f"it lists what is no Candidate: {stranger!r}")
        return found

    seconds = settings.select_timeout / 2
    try:
        return await run_with_timeout(seconds, ask(), f"the source {source.name}")
    except StageTimeoutError as error:
        raise DeadlineError(f"it did not answer within {seconds:g} s (half of JARVIS_LLM_TIMEOUT)") from error


def discover_sources(settings: Settings) -> list[ModelSource]:
    """The sources that installed packages bring, each made with the settings.

    Raises:
        ConfigError: one of them can not be loaded, or is no source.
    """
    entries = entry_points(group=ENTRY_POINTS)
    return [brought(entry, ModelSource, "model source", settings) for entry in entries]


class Registration(Frozen):
    """A model in the user's own words; the fields are those of a Candidate.

    Where it is: `path`, a local file or directory; `url`, a dedicated inference endpoint; `base_url`, a
    server that speaks OpenAI's API, whose key is in the environment variable `api_key_env`; `space`, a Gradio
    Space by its id or address, with the `api_name` of its endpoint. `local` says of a model without a `path`
    that its backend has it here and downloads nothing; servers of this machine are taken to be so.
    """

    id: str = Field(min_length=1)
    task: str | None = None
    tasks: tuple[str, ...] = ()
    description: str = ""
    path: StrPath | None = None
    url: str | None = Field(None, pattern="^https?://")
    base_url: str | None = Field(None, pattern="^https?://")
    api_key_env: str | None = Field(None, pattern="^[A-Za-z_][A-Za-z0-9_]*$")
    space: str | None = None
    api_name: str | None = None
    local: bool | None = None
    revision: str | None = None
    library: str | None = None
    backend: str | None = None
    license: str | None = None
    languages: tuple[str, ...] = ()
    traits: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    size: int | None = Field(None, ge=0)
    downloads: int = Field(0, ge=0)
    gated: bool = False
    metadata: dict[str, Any] = Field(default_factory=dict)

    @field_validator("metadata")
    @classmethod
    def _without_nulls(cls, metadata: dict[str, Any]) -> dict[str, Any]:
        """What YAML leaves empty (`options:`) is not said."""
        return {name: value for name, value in metadata.items() if value is not None}

    def candidate(self, task: str) -> Candidate:
        """This model as a Candidate of a task. What is not said is told by its id and its files."""
        said = {name: value for name, value in self if value is not None and name in Candidate.model_fields}
        at = {name: value for name in _ADDRESS if (value := getattr(self, name)) is not None}
        server = next((name for name in _BACKEND_AT if name in at), None)
        if server and self.path is None:
            said = {"backend": _BACKEND_AT[server], "local": is_loopback(at[server]), **said}
        said |= {"task": task, "traits": self.traits or cards.traits(task, self.id, ())}
        said["metadata"] = {**self.metadata, **at}
        return Candidate(**{**(cards.model_at(self.path) if self.path else {}), **said})


_ADDRESS = ("url", "base_url", "api_key_env", "space", "api_name")
_BACKEND_AT = {"url": "hf-inference", "base_url": "openai", "space": "spaces"}


def is_loopback(address: str) -> bool:
    """Whether an address is one of this machine."""
    host = urlsplit(address).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


class RegisteredSource:
    """The user's own models, by description.

    Args:
        models: one description a model, or lists of them. The fields are those of `Registration`.

    Raises:
        ConfigError: a description is wrong; the message names the model, the field and what to do.
    """

    name: ClassVar[str] = "registered"

    def __init__(self, *models: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> None:
        described = [one for given in models for one in ([given] if isinstance(given, Mapping) else given)]
        self._models = [
            model for place, one in enumerate(described, start=1) for model in _register(one, place)
        ]

    @classmethod
    def from_yaml(cls, path: str | Path) -> RegisteredSource:
        """The models that a YAML file lists, at its top or under `models:`.

        Paths are relative to the file, those of the parts in `metadata` too (`voice`, `base_model`, …).

        Raises:
            ConfigError: the file can not be read, or a description in it is wrong.
        """
        import yaml

        file = Path(path)
        try:
            content = yaml.safe_load(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigError(f"the list of models {file} can not be read: {error}") from error
        models = content.get("models") if isinstance(content, dict) else content
        if not isinstance(models, list):
            raise ConfigError(f"{file} lists no models; write a list of descriptions with `id` and `task`")
        try:
            return cls([_relative_to(file.parent, model) for model in models])
        except ConfigError as error:
            raise ConfigError(f"{file}: {error}") from error

    async def candidates(self, spec: TaskSpec, limit: int) -> list[Candidate]:
        """The models registered for the task, in the order in which they were given."""
        return [model for model in self._models if model.task == spec.name][:limit]


_PARTS = ("detector", "base_model", "voice", "vocoder")
"""What metadata may name that a model is loaded with: a path, or for some of them an id of the Hub."""


def _relative_to(folder: Path, model: Any) -> Any:
    if not isinstance(model, dict):
        return model
    found = dict(model)
    if isinstance(path := model.get("path"), str):
        found["path"] = folder / Path(path).expanduser()
    if isinstance(metadata := model.get("metadata"), dict):
        parts = {name: _place(folder, metadata[name]) for name in _PARTS if name in metadata}
        found["metadata"] = {**metadata, **parts}
    return found


def _place(folder: Path, named: Any) -> Any:
    """The path of a part if there is one at that place; else its name as it is."""
    path = folder / Path(named).expanduser() if isinstance(named, str) else None
    return str(path) if path is not None and path.exists() else named


def _register(model: Any, place: int) -> list[Candidate]:
    """A description as one candidate for each of its tasks."""
    label = f"model {place}"
    if not isinstance(model, Mapping):
        raise ConfigError(f'{label} is no description; write {{"id": …, "task": …}}')
    label += f" ({model['id']})" if model.get("id") else ""
    try:
        described = Registration.model_validate(dict(model))
    except ValidationError as error:
        raise ConfigError(f"{label}: {'; '.join(_what_is_wrong(e) for e in error.errors())}") from error
    names = [*([described.task] if described.task else []), *described.tasks]
    if not names:
        raise ConfigError(f'{label}: field "task" is missing; each model needs an id and a task')
    try:
        tasks = dict.fromkeys(known_task(name).name for name in names)
    except ConfigError as error:
        raise ConfigError(f"{label}: {error}") from error
    path = described.path.expanduser() if described.path else None
    if path is not None and not path.exists():
        raise ConfigError(f"{label}: path {path} does not exist; give the model's directory")
    described = described.model_copy(update={"path": path})
    return [described.candidate(task) for task in tasks]


def _what_is_wrong(error: Any) -> str:
    field = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        close = get_close_matches(field, Registration.model_fields, n=1)
        hint = (
            f'did you mean "{close[0]}"?'
            if close
            else f"the fields are {', '.join(Registration.model_fields)}"
        )
        return f'field "{field}" is not known; {hint}'
    if error["type"] == "missing":
        return f'field "{field}" is missing; each model needs an id and a task'
    if field == "api_key_env":
        return f'field "{field}" is the name of an environment variable that holds the key, not the key'
    return f'field "{field}": {error["msg"]} (it is {error["input"]!r})'
