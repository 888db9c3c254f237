"""Models that the user describes, in Python or in a YAML file.

RegisteredSource({"id": "my-org/my-detr", "task": "object-detection", "path": "/models/detr"})
RegisteredSource({"id": "qwen3:8b", "tasks": ["text-generation", "translation"],
                  "base_url": "http://localhost:11434/v1"})
RegisteredSource({"id": "org/space", "task": "text-to-image", "space": "org/space"})
RegisteredSource.from_yaml("models.yaml")
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, ValidationError

from jarvis_agent.backends.hub import model_card
from jarvis_agent.core.environment import is_loopback
from jarvis_agent.core.errors import ConfigError, words_of
from jarvis_agent.core.tasks.registry import known_task
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate

_ADDRESS_FIELDS = ("url", "base_url", "api_key_env", "space", "api_name")
_BACKEND_OF_ADDRESS = {"url": "hf-inference", "base_url": "chat-model", "space": "spaces"}
_PART_FIELDS = ("detector", "base_model")
"""Keys of `metadata` that may name another model: a path or, for some, an id of the Hub."""


class Registration(Candidate):
    """A model in the user's description.

    Attributes:
        task, tasks: what the model does, by name or alias; at least one.
        path: local file or directory.
        url: a dedicated inference endpoint.
        base_url, api_key_env: an OpenAI-compatible server, and the environment variable with its key.
        space, api_name: a Gradio Space by id or address, and the name of its endpoint.
        local: whether the backend has the model on this machine. None: True for a path or a loopback address.
    """

    id: str = Field(min_length=1)
    task: str | None = None  # type: ignore[assignment]
    tasks: tuple[str, ...] = ()
    url: str | None = Field(None, pattern="^https?://")
    base_url: str | None = Field(None, pattern="^https?://")
    api_key_env: str | None = Field(None, pattern="^[A-Za-z_][A-Za-z0-9_]*$")
    space: str | None = None
    api_name: str | None = None
    local: bool | None = None  # type: ignore[assignment]
    size: int | None = Field(None, ge=0)
    downloads: int = Field(0, ge=0)

    def candidate(self, task: str) -> Candidate:
        """Return this model as a Candidate of a task. Its id and files fill in what is not given."""
        names = self.model_fields_set & Candidate.model_fields.keys() - {"source"}
        fields = {name: value for name in names if (value := getattr(self, name)) is not None}
        address = {name: value for name in _ADDRESS_FIELDS if (value := getattr(self, name)) is not None}
        server = next((name for name in _BACKEND_OF_ADDRESS if name in address), None)
        if server and self.path is None:
            fields = {"backend": _BACKEND_OF_ADDRESS[server], "local": is_loopback(address[server]), **fields}
        fields |= {"task": task, "traits": self.traits or model_card.capabilities(task, self.id, ())}
        fields["metadata"] = {**self.metadata, **address}
        return Candidate(**{**(model_card.model_at(self.path) if self.path else {}), **fields})


class RegisteredSource:
    """Lists models that the user describes.

    Args:
        models: descriptions or lists of descriptions. The fields are those of `Registration`.

    Raises:
        ConfigError: a description is invalid; the message names the model, the field and the correction.
    """

    name: ClassVar[str] = "registered"

    def __init__(self, *models: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> None:
        described = [row for entry in models for row in ([entry] if isinstance(entry, Mapping) else entry)]
        self._models = [
            candidate for number, row in enumerate(described, start=1) for candidate in _parse(row, number)
        ]

    @classmethod
    def from_yaml(cls, path: str | Path) -> RegisteredSource:
        """Read the models of a YAML file: a list at the top level or under `models:`.

        Paths, also those of parts in `metadata` (`detector`, `base_model`), are relative to the file.

        Raises:
            ConfigError: the file cannot be read, or a description is invalid.
        """
        import yaml

        file = Path(path)
        try:
            content = yaml.safe_load(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigError(f"the list of models {file} cannot be read: {error}") from error
        models = content.get("models") if isinstance(content, dict) else content
        if not isinstance(models, list):
            raise ConfigError(f"{file} lists no models; write a list of descriptions with `id` and `task`")
        try:
            return cls([_resolve_paths(file.parent, model) for model in models])
        except ConfigError as error:
            raise ConfigError(f"{file}: {error}") from error

    async def candidates(self, spec: TaskSpec, limit: int) -> list[Candidate]:
        """Return the models registered for the task, in the given order."""
        return [model for model in self._models if model.task == spec.name][:limit]


def _resolve_paths(folder: Path, model: Any) -> Any:
    if not isinstance(model, dict):
        return model
    resolved = dict(model)
    if isinstance(path := model.get("path"), str):
        resolved["path"] = folder / Path(path).expanduser()
    if isinstance(metadata := model.get("metadata"), dict):
        resolved["metadata"] = dict(metadata)
        for name in _PART_FIELDS:
            part = metadata.get(name)
            if isinstance(part, str) and (file := folder / Path(part).expanduser()).exists():
                resolved["metadata"][name] = str(file)
    return resolved


def _parse(model: Any, number: int) -> list[Candidate]:
    """Return one candidate for each task of a description."""
    label = f"model {number}"
    if not isinstance(model, Mapping):
        raise ConfigError(f'{label} is not a description; write {{"id": …, "task": …}}')
    label += f" ({model['id']})" if model.get("id") else ""
    try:
        described = Registration.model_validate(dict(model))
        names = [*([described.task] if described.task else []), *described.tasks]
        tasks = dict.fromkeys(known_task(name).name for name in names)
    except ValidationError as error:
        is_unknown = any(fault["type"] == "extra_forbidden" for fault in error.errors())
        fields = f"; the fields are {', '.join(Registration.model_fields)}" if is_unknown else ""
        raise ConfigError(f"{label}: {words_of(error)}{fields}") from error
    except ConfigError as error:
        raise ConfigError(f"{label}: {error}") from error
    if not tasks:
        raise ConfigError(f"{label}: task: Field required")
    path = described.path.expanduser() if described.path else None
    if path is not None and not path.exists():
        raise ConfigError(f"{label}: path {path} does not exist; give the model's file or directory")
    described = described.model_copy(update={"path": path})
    return [described.candidate(task) for task in tasks]
