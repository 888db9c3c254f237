"""What runs a model. A new backend is one small class: a row of backends/table.py, or an entry point.

    class Backend(Protocol):
        name = "transformers"
        local = True
        def unsupported_reason(self, spec, candidate): ...      # cheap: no heavy import, no network
        async def run(self, call): ...               # raw output, as the task's adapter takes it

A local model is best written as a LocalBackend: `load` gives a callable, the pool keeps it loaded.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from jarvis_agent.core.errors import MissingExtraError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate

if TYPE_CHECKING:
    from jarvis_agent.backends.pool import ModelPool


@dataclass(frozen=True, slots=True)
class Call:
    """One use of one candidate.

    Attributes:
        spec: the task type.
        candidate: the model.
        inputs: arguments by name. Media (image, audio, video, …) are `Resource`s with a path; arguments of
            kind text are str; arguments of kind data are plain JSON; a `many` argument is a list of those.
        new_path: makes a fresh path for a file that the backend writes; its parameter is the suffix (".wav").
        settings: the user's settings.
        hints: what else is known ("ocr": True where the request asks to read an image's text).
        sweep: removes what was written after the call was cancelled. A thread that calls `new_path`, and may
            go on after that, calls it at its end; the pool does so for those of local models.
    """

    spec: TaskSpec
    candidate: Candidate
    inputs: Mapping[str, Any]
    new_path: Callable[[str], Path]
    settings: Settings
    hints: Mapping[str, Any] = field(default_factory=dict)
    sweep: Callable[[], None] = lambda: None


@runtime_checkable
class Backend(Protocol):
    """Runs candidates."""

    name: ClassVar[str]
    local: ClassVar[bool]

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """None if this backend can run the candidate for the task, else the reason why not, for people.

        A missing optional package is such a reason ('needs the extra "local": pip install …'). It is asked
        for every candidate of every task, so it must not import heavy libraries or use the network.
        """
        ...

    async def run(self, call: Call) -> Any:
        """Run the candidate once and return its raw output, in the form that the task's adapter takes.

        Raises:
            ExpertError: one of its kinds, which decides what happens next (see jarvis_agent.core.errors).
        """
        ...

    async def close(self) -> None:
        """Free what is held: models, connections, threads."""
        ...


def patience(settings: Settings) -> float:
    """Seconds for which those who run a model elsewhere are waited for.

    It is less than an attempt may take, so that silence is their failure, which another try or another
    provider may not meet, and not the attempt's.
    """
    return 0.9 * settings.attempt_timeout


_OF_CALLS = {"options", "providers"}
"""What a candidate's metadata says of its calls, and not of the model that is loaded."""

Expert = Callable[[Call], Any]
"""A loaded model, called in a worker thread: takes a Call, returns the raw output."""


class LocalBackend(ABC):
    """Base of the backends that load models on this machine. Override `unsupported_reason` and `load`.

    `needs` are the modules that `load` imports, `extra` the one of pyproject's extras that brings them.
    """

    name: ClassVar[str]
    local: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ()
    extra: ClassVar[str] = "local"

    def __init__(self, pool: ModelPool, settings: Settings | None = None) -> None:
        """`settings` are those that `unsupported_reason` goes by; a call brings its own."""
        self.pool = pool
        self.settings = settings or Settings()

    @abstractmethod
    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """None if `load` can load the candidate, else the reason."""

    @abstractmethod
    def load(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        """Load the model (called in a worker thread) and return what runs it."""

    def lacking(self, candidate: Candidate) -> MissingExtraError | None:
        """The error for what `load` needs and is not installed; None if everything is."""
        if all(find_spec(module) for module in self.needs):
            return None
        return MissingExtraError(f"{candidate.id} on this machine", self.extra)

    def key(self, spec: TaskSpec, candidate: Candidate) -> tuple[str, ...]:
        """What loaded models are shared by; override it where one model serves several tasks."""
        return (self.name, spec.name, candidate.id, candidate.revision or "")

    async def run(self, call: Call) -> Any:
        """Usually not overridden: load once for each device, dtype and trust, then run in a worker thread."""
        candidate, settings = call.candidate, call.settings
        trust = f"pickle {settings.allow_pickle}, code {settings.trust_remote_code}"
        placed = (settings.device, settings.dtype, trust, _parts(candidate))
        key = (*self.key(call.spec, candidate), *placed)
        return await self.pool.run(key, lambda: self.load(call.spec, candidate, settings), call)

    async def close(self) -> None:  # noqa: B027
        """Usually not overridden: the pool frees the models."""


def _parts(candidate: Candidate) -> str:
    """What else a model is loaded with (a voice, a detector, a base model), as text."""
    parts = {name: value for name, value in candidate.metadata.items() if name not in _OF_CALLS}
    return json.dumps(parts, sort_keys=True, default=str)
