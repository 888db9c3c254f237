"""Runs the starter models (see `models`): one reader a model format, each a small module.

    load = READERS["whisper"]            # (weights, settings) → expert
    expert = load(Path("…/model.bin"), Settings())
    expert(call)                         # {"text": "…", "chunks": […]}

A reader imports its libraries when it loads, so this package costs nothing to import.
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
"""Loads weights (their principal file, the others beside it) and returns what runs them."""

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
        """None if the model does this task and its reader and weights are there or can be had."""
        model = STARTERS.get(candidate.id)
        if model is None or spec.name not in model.tasks:
            return f"{candidate.id} is no starter model for {spec.name}"
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
        """Find and check the weights, and load them.

        Raises:
            ConfigError: the weights are missing, or are not those expected.
            TransientError: they could not be downloaded.
        """
        model = STARTERS[candidate.id]
        return READERS[model.reader](fetch_weights(model, settings), settings)
