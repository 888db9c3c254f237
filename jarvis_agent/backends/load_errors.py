"""What libraries raise while they load a model, as errors that name the model and the task.

with load_errors(spec, candidate):
    model = AutoModel.from_pretrained(folder)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jarvis_agent.backends.weights import is_out_of_memory
from jarvis_agent.core.errors import JarvisError, UnsupportedError
from jarvis_agent.backends.hub.model_card import brief_text
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate


@contextmanager
def load_errors(spec: TaskSpec, candidate: Candidate) -> Iterator[None]:
    """What goes wrong inside, as an UnsupportedError; want of memory is left to the pool."""
    try:
        yield
    except JarvisError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise UnsupportedError(_told(spec, candidate, error)) from error


def _told(spec: TaskSpec, candidate: Candidate, error: Exception) -> str:
    reason = str(error)
    if "torchvision" in reason.lower():  # said in many ways, and in the middle of long texts
        return f"{candidate.id} needs torchvision, which is not installed: pip install torchvision"
    if isinstance(error, ImportError):
        return f"{candidate.id} needs a package that is not installed: {brief_text(reason)}"
    return f"{candidate.id} can not be loaded for {spec.name}: {brief_text(reason)}"
