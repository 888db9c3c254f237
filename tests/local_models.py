"""A backend of local models that a test makes."""

from collections.abc import Callable

from jarvis_agent.backends.base import Expert
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate


class ScriptedLocal(LocalBackend):
    """Runs every model; `make` loads it, given its task."""

    name = "fake"

    def __init__(self, make: Callable[[TaskSpec], Expert], pool: ModelPool) -> None:
        super().__init__(Settings(), pool)
        self._make = make

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> None:
        return None

    def load(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        return self._make(spec)
