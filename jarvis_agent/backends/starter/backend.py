"""Backend of the starter models: one reader a model format, each a small module that imports lazily.

load = READERS["whisper"]                             # (weights, settings) → expert
expert = load(Path("…/model.bin"), Settings())
expert(call)                                          # {"text": "…", "chunks": […]}
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from jarvis_agent.backends.base import Expert
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.backends.starter import (
    deepfilter,
    efficientnet,
    minilm,
    ocr,
    piper,
    silero,
    smollm,
    whisper,
)
from jarvis_agent.backends.starter.models import STARTERS, fetch_weights, find_weights
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate

Reader = Callable[[Path, Settings], Expert]
"""Loads weights (the main file, with the others beside it) and returns the expert."""

READERS: dict[str, Reader] = {
    "deepfilter": deepfilter.load,
    "efficientnet": efficientnet.load,
    "minilm": minilm.load,
    "ocr": ocr.load,
    "piper": piper.load,
    "silero": silero.load,
    "smollm": smollm.load,
    "whisper": whisper.load,
}


class StarterBackend(LocalBackend):
    """Runs the rows of STARTERS."""

    name = "starter"

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """Return None if the model does this task and its reader and weights are available."""
        model = STARTERS.get(candidate.id)
        if model is None or spec.name not in model.tasks:
            return f"{candidate.id} is not a starter model for {spec.name}"
        if any(find_spec(module) is None for module in model.needs):
            return str(model.missing)
        downloadable = bool(model.hub) and candidate.metadata.get("downloadable", True)
        if not downloadable and find_weights(model) is None:
            return str(model.missing)
        return None

    def key(self, spec: TaskSpec, candidate: Candidate) -> tuple[str, ...]:
        """One loaded model serves all of its tasks."""
        return (self.name, candidate.id)

    def load(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        """Load the weights. Raises as `fetch_weights`."""
        model = STARTERS[candidate.id]
        return READERS[model.reader](fetch_weights(model, settings), settings)
