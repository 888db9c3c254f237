"""The base class of backends that load models on this machine."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, ClassVar

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.jobs import Notify
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.errors import MissingExtraError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate

_CALL_OPTIONS = {"options", "providers"}
"""Metadata of a candidate that changes its calls, and not the model that is loaded."""


class LocalBackend(ABC):
    """Loads models into the shared pool. Override `unsupported_reason` and `load`.

    `needs` are the modules that `load` imports; `extra` is the extra of this package that installs them.
    """

    name: ClassVar[str]
    local: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ()
    extra: ClassVar[str] = "local"

    def __init__(self, pool: ModelPool, settings: Settings | None = None) -> None:
        """`settings` apply to `unsupported_reason`; a call has its own."""
        self.pool = pool
        self.settings = settings or Settings()

    @abstractmethod
    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """Return None if `load` can load the candidate, else the reason."""

    @abstractmethod
    def load(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        """Load the model and return the callable that runs it. Called in a worker thread."""

    def lacking(self, candidate: Candidate) -> MissingExtraError | None:
        """Return the error for modules in `needs` that are not installed; None if all are."""
        if all(find_spec(module) for module in self.needs):
            return None
        return MissingExtraError(f"{candidate.id} on this machine", self.extra)

    def key(self, spec: TaskSpec, candidate: Candidate) -> tuple[str, ...]:
        """What tells loaded models apart beside path and settings; override it to share one between tasks."""
        return (self.name, spec.name, candidate.id, candidate.revision or "")

    async def run(self, call: Call) -> Any:
        """Run the model, loaded once for each folder, device, dtype and trust level, in a worker thread."""
        spec, candidate, settings = call.spec, call.candidate, call.settings
        key = self.pool_key(spec, candidate, settings)
        return await self.pool.run(key, lambda: self.load(spec, candidate, settings), call)

    def prepare(
        self, spec: TaskSpec, candidate: Candidate, settings: Settings, depth: int, notify: Notify
    ) -> Callable[[], None]:
        """Load the model before its call; see `ModelPool.reserve`."""
        key = self.pool_key(spec, candidate, settings)
        return self.pool.reserve(
            key, lambda: self.load(spec, candidate, settings), candidate.size, depth, notify
        )

    def pool_key(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> tuple[str, ...]:
        """What tells loaded models apart."""
        metadata = {name: value for name, value in candidate.metadata.items() if name not in _CALL_OPTIONS}
        trust = f"pickle {settings.allow_pickle}, code {settings.trust_remote_code}"
        return (
            *self.key(spec, candidate),
            str(candidate.path or ""),
            settings.device,
            settings.dtype,
            trust,
            json.dumps(metadata, sort_keys=True, default=str),
        )

    async def close(self) -> None:  # noqa: B027
        """Do nothing: the pool frees the models."""
