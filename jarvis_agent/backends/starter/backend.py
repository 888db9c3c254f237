"""Backend of the starter models. The reader of each model is a small module with lazy imports."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from jarvis_agent.backends.base import Expert
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.backends.starter.models import STARTERS, StarterModel, fetch_weights, find_weights
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate


def load_expert(model: StarterModel, settings: Settings) -> Expert:
    """Load a model with its reader's `load(weights, settings)`. Raises as `fetch_weights`."""
    reader = import_module(f"jarvis_agent.backends.starter.{model.reader}")
    expert: Expert = reader.load(fetch_weights(model, settings), settings)
    return expert


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
        """Load the model. Raises as `fetch_weights`."""
        return load_expert(STARTERS[candidate.id], settings)
