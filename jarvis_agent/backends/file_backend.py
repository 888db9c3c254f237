"""Base of the backends that load model files: from a directory, the Hub's cache or a download.

class TransformersBackend(FileBackend):
    name, needs = "transformers", ("torch", "transformers")
    library, libraries, tasks = "transformers", (None, "transformers"), PIPELINES

    def load_files(self, spec, candidate, settings): ...     # the loaded expert
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Container
from typing import ClassVar

from jarvis_agent.backends.base import Expert
from jarvis_agent.backends.devices import is_out_of_memory
from jarvis_agent.backends.hub.snapshot import refusal
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.core.errors import JarvisError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.text import brief_text
from jarvis_agent.core.types import Candidate


class FileBackend(LocalBackend):
    """A local backend whose models are files.

    Attributes:
        library: name of the library in messages.
        libraries: values of `Candidate.library` that the backend accepts; None means unknown.
        tasks: names of the task types that the backend supports.
    """

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
        """Return None if the backend can load the candidate for the task, else the reason."""
        if reason := self.mismatch(spec, candidate):
            return reason
        if missing := self.lacking(candidate):
            return str(missing)
        return refusal(candidate, self.settings)

    def load(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        """Load the candidate.

        Raises:
            UnsupportedError: the model is absent, forbidden, damaged, or of a kind that does not do the task.
            JarvisError: a package, the device or the dtype does not exist here, or the download failed.
        """
        if missing := self.lacking(candidate):
            raise missing
        try:
            return self.load_files(spec, candidate, settings)
        except JarvisError:
            raise
        except Exception as error:
            if is_out_of_memory(error):  # the pool handles it
                raise
            raise UnsupportedError(_describe(spec, candidate, error)) from error


def _describe(spec: TaskSpec, candidate: Candidate, error: Exception) -> str:
    reason = str(error)
    if "torchvision" in reason.lower():  # libraries word this in many ways, deep inside long messages
        return f"{candidate.id} needs torchvision, which is not installed: pip install torchvision"
    if isinstance(error, ImportError):
        return f"{candidate.id} needs a package that is not installed: {brief_text(reason)}"
    return f"{candidate.id} cannot be loaded for {spec.name}: {brief_text(reason)}"
