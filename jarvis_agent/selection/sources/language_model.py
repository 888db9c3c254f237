"""The user's language model as a candidate for the tasks that it does itself."""

from pathlib import Path
from typing import Any, ClassVar

from jarvis_agent.backends.chat_model import (
    AUDIO_TASKS,
    CLASSIFICATION,
    IMAGE_TASKS,
    TEXT_TASKS,
    WRITING,
    ChatModelBackend,
)
from jarvis_agent.core.environment import is_loopback
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate
from jarvis_agent.llm.chat_model import base_url_of, is_small, model_name
from jarvis_agent.selection.ranking import GENERALIST, OWN_MODEL

_DESCRIPTION = "The language model of this user: it writes, translates, summarises, sorts and answers."


class LanguageModelSource:
    """Lists one chat model.

        JarvisAgent(model=llm, sources=[LanguageModelSource(llm), my_source])

    An agent without `sources` has it, for its own model. The tasks on texts, and on pictures or sound if the
    model's `profile` has `image_inputs` or `audio_inputs`. A model below 2 billion parameters writes, and
    sorts texts if it is a GGUF file that is large enough.

    Args:
        model: a chat model, which must be the agent's own; or a GGUF file.
    """

    name: ClassVar[str] = "language-model"

    def __init__(self, model: Any) -> None:
        model = getattr(model, "bound", model)
        path = model if isinstance(model, Path) else getattr(model, "path", None)
        path = path if isinstance(path, Path) else None
        name = path.name if model is path and path else model_name(model)
        self._fields: dict[str, Any] = {
            "id": name,
            "source": self.name,
            "backend": ChatModelBackend.name,
            "description": _DESCRIPTION,
            "local": path is not None or is_loopback(base_url_of(model) or ""),
            "path": path,
            "size": path.stat().st_size if path else None,
        }
        self._traits = _traits(model, is_small(path or name), path is not None)

    async def candidates(self, spec: TaskSpec, limit: int) -> list[Candidate]:
        """Return the model if it does the task."""
        if spec.name not in self._traits:
            return []
        return [Candidate(**self._fields, task=spec.name, traits=self._traits[spec.name])]


def _traits(model: Any, small: bool, is_file: bool) -> dict[str, tuple[str, ...]]:
    """The traits of a model by task: it is the user's own for what it does better than others."""
    if small:
        sorts = dict.fromkeys(CLASSIFICATION if is_file else (), (GENERALIST,))
        return {**dict.fromkeys(WRITING, ()), **sorts, "text-generation": (OWN_MODEL,)}
    profile = getattr(model, "profile", None) or {}
    sees = dict.fromkeys(IMAGE_TASKS if profile.get("image_inputs") else (), ("caption", "ocr"))
    hears = dict.fromkeys(AUDIO_TASKS if profile.get("audio_inputs") else (), ())
    return {**sees, **hears, **dict.fromkeys(TEXT_TASKS, (OWN_MODEL,))}
