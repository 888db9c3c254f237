"""Models that the user fixed for a task, `models={"object-detection": "facebook/detr-resnet-50@revision"}`.

pins = read_pins({"object-det": "facebook/detr-resnet-50@v1.0"})
pins["object-detection"]        # Pin(id="facebook/detr-resnet-50", revision="v1.0")

A Gradio Space is pinned as "space:org/name", or "space:http://127.0.0.1:7860".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jarvis_agent.selection.sources.base import is_loopback
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.backends.hub import model_card as cards
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.tasks.registry import known_task
from jarvis_agent.core.types import Candidate

_SPACE = "space:"


@dataclass(frozen=True, slots=True)
class Pin:
    """An id with or without a revision, a local path, or a Space."""

    id: str
    revision: str | None = None
    path: Path | None = None
    space: bool = False

    def candidate(self, spec: TaskSpec) -> Candidate:
        """The pinned model, of which nothing is known but its id or its files."""
        at: dict[str, Any] = {"revision": self.revision}
        if self.path:
            at = cards.model_at(self.path)
        elif self.space:
            at = {"backend": "spaces", "local": is_loopback(self.id), "metadata": {"space": self.id}}
        return Candidate(id=self.id, task=spec.name, source="pinned", **at)

    def at_revision(self, candidate: Candidate) -> Candidate:
        """The candidate at the pinned revision, which is on this machine only if it was downloaded."""
        if self.revision in (None, candidate.revision):
            return candidate
        path = candidate.metadata.get("revisions", {}).get(self.revision)
        here = {"local": path is not None, "path": Path(path) if path else None}
        return candidate.model_copy(update={"revision": self.revision, **here})


def read_pins(pins: Mapping[str, str]) -> dict[str, Pin]:
    """The pins by the proper name of their task.

    Raises:
        ConfigError: a task is unknown, or what looks like a path does not exist.
    """
    return {known_task(name).name: _read(text) for name, text in pins.items()}


def _read(text: str) -> Pin:
    if text.startswith(_SPACE) and text != _SPACE:
        return Pin(text.removeprefix(_SPACE), space=True)
    path = Path(text).expanduser()
    if text.strip() and path.exists():
        return Pin(text, path=path)
    if not text.strip() or text.startswith(("/", ".", "~")):
        raise ConfigError(
            f"the pinned model {text!r} is neither an id of the Hub nor a directory that exists"
        )
    name, _, revision = text.partition("@")
    return Pin(name, revision or None)
