"""Models that the user fixed for a task: `models={"object-detection": "facebook/detr-resnet-50@revision"}`.

A pin is an id of the Hub with an optional revision, a local path, or a Gradio Space ("space:org/name",
"space:http://127.0.0.1:7860").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jarvis_agent.backends.hub import model_card
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.tasks.registry import known_task
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate
from jarvis_agent.selection.sources.registered import is_loopback

_SPACE = "space:"


@dataclass(frozen=True, slots=True)
class Pin:
    """A pinned model."""

    id: str
    revision: str | None = None
    path: Path | None = None
    space: bool = False

    def candidate(self, spec: TaskSpec) -> Candidate:
        """Return the pinned model with what its id or files tell."""
        fields: dict[str, Any] = {"revision": self.revision}
        if self.path:
            fields = model_card.model_at(self.path)
        elif self.space:
            fields = {"backend": "spaces", "local": is_loopback(self.id), "metadata": {"space": self.id}}
        return Candidate(id=self.id, task=spec.name, source="pinned", **fields)

    def at_revision(self, candidate: Candidate) -> Candidate:
        """Return the candidate at the pinned revision; it is local only if that revision is downloaded."""
        if self.revision in (None, candidate.revision):
            return candidate
        path = candidate.metadata.get("revisions", {}).get(self.revision)
        location = {"local": path is not None, "path": Path(path) if path else None}
        return candidate.model_copy(update={"revision": self.revision, **location})


def read_pins(pins: Mapping[str, str]) -> dict[str, Pin]:
    """Return the pins by the canonical name of their task.

    Raises:
        ConfigError: a task is unknown, or a path does not exist.
    """
    return {known_task(name).name: _read(text) for name, text in pins.items()}


def _read(text: str) -> Pin:
    if text.startswith(_SPACE) and text != _SPACE:
        return Pin(text.removeprefix(_SPACE), space=True)
    path = Path(text).expanduser()
    if text.strip() and path.exists():
        return Pin(text, path=path)
    if not text.strip() or text.startswith(("/", ".", "~")):
        raise ConfigError(f"the pinned model {text!r} is neither an id of the Hub nor an existing path")
    name, _, revision = text.partition("@")
    return Pin(name, revision or None)
