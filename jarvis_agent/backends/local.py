"""The base classes of backends that load models on this machine, and of those whose models are files."""

import asyncio
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.devices import is_out_of_memory
from jarvis_agent.backends.hub.snapshot import refusal
from jarvis_agent.backends.jobs import Activity, listed
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.errors import JarvisError, MissingExtraError, UnsupportedError
from jarvis_agent.core.forks import fork_safe
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.text import brief_text
from jarvis_agent.core.types import Candidate
from jarvis_agent.media.limits import check_task_limits

_IMPORTING = fork_safe(threading.Lock())
"""Held for imports: transformers replaces its module, and a second thread would import from the old one."""

LOADING = fork_safe(threading.Lock())
"""Held while a model is built: transformers and diffusers change torch's default dtype and initialisers."""

CALL_OPTIONS = {"options", "providers"}
"""Metadata of a candidate that changes its calls, and not the model that is loaded."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadedExpert:
    """What is loaded, and the function that runs a call with it. For the other fields see `ModelPool`."""

    loaded: Any
    run: Callable[[Any, Call], Any]
    modules: Sequence[Any] = ()
    nbytes: int | None = None
    batch: Callable[[Sequence[Call]], list[Any]] | None = None

    def __call__(self, call: Call) -> Any:
        return self.run(self.loaded, call)


class LocalBackend(ABC):
    """Loads models into the shared pool. Override `unsupported_reason` and `load`.

    `needs` are the modules that `load` imports; `extra` is the extra of this package that installs them.
    `is_served`: whether an expert server may run the models in place of this process.
    """

    name: ClassVar[str]
    local: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ()
    extra: ClassVar[str] = "local"
    is_served: ClassVar[bool] = False

    def __init__(self, settings: Settings, pool: ModelPool) -> None:
        """`settings` apply to `unsupported_reason`; a call has its own."""
        self.settings = settings
        self.pool = pool

    @abstractmethod
    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """Return None if `load` can load the candidate, else the reason."""

    @abstractmethod
    def load(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        """Load the model and return the callable that runs it. Called in a worker thread."""

    def mismatch(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """As `unsupported_reason`, whatever is installed on this machine."""
        return self.unsupported_reason(spec, candidate)

    def lacking(self, candidate: Candidate) -> MissingExtraError | None:
        """Return the error for modules in `needs` that are not installed; None if all are."""
        if all(find_spec(module) for module in self.needs):
            return None
        return MissingExtraError(f"{candidate.id} on this machine", self.extra)

    def key(self, spec: TaskSpec, candidate: Candidate) -> tuple[str, ...]:
        """What tells loaded models apart beside path and settings; override it to share one between tasks."""
        return (self.name, spec.name, candidate.id, candidate.revision or "")

    async def run(self, call: Call) -> Any:
        """Run the model in a worker thread; it is loaded once for each `pool_key`."""
        spec, candidate, settings = call.spec, call.candidate, call.settings
        await asyncio.to_thread(check_task_limits, spec.name, call.inputs)

        def load() -> Expert:
            with listed(Activity(candidate.id)):
                return self.load(spec, candidate, settings)

        return await self.pool.run(self.pool_key(spec, candidate, settings), load, call)

    def pool_key(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> tuple[str, ...]:
        """What tells loaded models apart."""
        metadata = {name: value for name, value in candidate.metadata.items() if name not in CALL_OPTIONS}
        return (
            *self.key(spec, candidate),
            str(candidate.path or ""),
            settings.device,
            f"pickle {settings.allow_pickle}, code {settings.trust_remote_code}",
            json.dumps(metadata, sort_keys=True, default=str),
        )

    async def close(self) -> None:  # noqa: B027
        """Do nothing: the pool frees the models."""


class FileBackend(LocalBackend):
    """A local backend whose models are files.

    Attributes:
        library: name of the library in messages.
        libraries: values of `Candidate.library` that the backend accepts; None means unknown.
        tasks: names of the task types that the backend supports.
    """

    is_served = True
    library: ClassVar[str]
    libraries: ClassVar[tuple[str | None, ...]]
    tasks: ClassVar[Container[str]]

    def mismatch(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """Return why the library does not fit the task or the candidate, or None if it does."""
        if spec.name not in self.tasks:
            return f"{self.library} does not do {spec.name} here"
        if candidate.library not in self.libraries:
            return f"it is made for {candidate.library or 'another library'}, not for {self.library}"
        return None

    @abstractmethod
    def load_files(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        """Find the model's files and load them. Called in a worker thread."""

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        if reason := self.mismatch(spec, candidate):
            return reason
        if missing := self.lacking(candidate):
            return missing.note
        return refusal(candidate, self.settings)

    def load(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        """Load the candidate. Raises UnsupportedError for an error of a library, else JarvisError.

        An error that says that memory ran out is raised as it is: the pool frees memory.
        """
        if missing := self.lacking(candidate):
            raise missing
        try:
            with _IMPORTING:
                for module in self.needs:
                    import_module(module)
                    if module in ("transformers", "diffusers"):
                        _silence(import_module(f"{module}.utils.logging"))
            return self.load_files(spec, candidate, settings)
        except JarvisError:
            raise
        except Exception as error:
            if is_out_of_memory(error):  # the pool handles it
                raise
            reason, what = str(error), f"cannot be loaded for {spec.name}"
            if "torchvision" in reason.lower():  # libraries word this in many ways, inside long messages
                lacks = f"{candidate.id} needs torchvision, which is not installed"
                raise UnsupportedError(lacks, advice="pip install torchvision") from error
            if isinstance(error, ImportError):
                what = "needs a package that is not installed"
            raise UnsupportedError(f"{candidate.id} {what}", detail=brief_text(reason)) from error


def _silence(log: Any) -> None:
    """Disable a library's progress bars, and its warnings unless the user set a level of its log."""
    log.disable_progress_bar()
    if log.get_verbosity() == log.WARNING:
        log.set_verbosity_error()
