"""Errors of libraries while they load a model, as `UnsupportedError`s that name the model and the task.

with load_errors(spec, candidate):
    model = AutoModel.from_pretrained(folder)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jarvis_agent.backends.devices import is_out_of_memory
from jarvis_agent.backends.hub.model_card import brief_text
from jarvis_agent.core.errors import JarvisError, UnsupportedError
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate


@contextmanager
def load_errors(spec: TaskSpec, candidate: Candidate) -> Iterator[None]:
    """Raise an UnsupportedError for errors in the block; out-of-memory errors pass through to the pool."""
    try:
        yield
    except JarvisError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise UnsupportedError(_message(spec, candidate, error)) from error


def _message(spec: TaskSpec, candidate: Candidate, error: Exception) -> str:
    reason = str(error)
    if "torchvision" in reason.lower():  # libraries phrase this in many ways, inside long texts
        return f"{candidate.id} needs torchvision, which is not installed: pip install torchvision"
    if isinstance(error, ImportError):
        return f"{candidate.id} needs a package that is not installed: {brief_text(reason)}"
    return f"{candidate.id} cannot be loaded for {spec.name}: {brief_text(reason)}"
