"""Runs models of the Hub with diffusers: images, videos, sounds and shapes from texts and images.

    backend = DiffusersBackend(pool, settings)
    backend.unsupported_reason(spec, candidate)       # None, or why it can not run this candidate
    raw = await backend.run(call)

What it can do is the table in tasks.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.devices import weight_bytes
from jarvis_agent.backends.diffusers.loading import (
    Loaded,
    PipelineSpec,
    base_model,
    choose_way,
    class_name,
    load_pipeline,
)
from jarvis_agent.backends.diffusers.pipelines import PIPELINES
from jarvis_agent.backends.hub.layouts import DIFFUSERS
from jarvis_agent.backends.hub.snapshot import marker_folder, model_folder, refusal
from jarvis_agent.backends.load_errors import load_errors
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate


@dataclass(frozen=True, slots=True)
class DiffusersExpert:
    """A loaded pipeline that does one task, or several alike."""

    way: PipelineSpec
    loaded: Loaded
    nbytes: int

    def __call__(self, call: Call) -> Any:
        return self.way.run(self.loaded, call)


class DiffusersBackend(LocalBackend):
    """Runs the tasks of TASK_WAYS."""

    name = "diffusers"
    needs = ("torch", "diffusers")

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """None if diffusers is there, has a way to do the task, and may load the candidate."""
        if spec.name not in PIPELINES:
            return f"diffusers has no way here to do {spec.name}"
        if candidate.library not in (None, "diffusers"):
            return f"it is made for {candidate.library}, not for diffusers"
        if lacking := self.lacking(candidate):
            return str(lacking)
        return refusal(candidate, self.settings)

    def key(self, spec: TaskSpec, candidate: Candidate) -> tuple[str, ...]:
        """One loaded pipeline serves all tasks that have the same ways."""
        alike = next(task for task, ways in PIPELINES.items() if ways is PIPELINES[spec.name])
        return (self.name, alike, candidate.id, candidate.revision or "")

    def load(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        """Look at the model's class, choose the way, find the files, and load them.

        Raises:
            UnsupportedError: it is not there, not allowed, damaged, or of a kind that can not do the task.
            TransientError: it could not be downloaded.
            ConfigError: the device or the dtype is not there.
        """
        if lacking := self.lacking(candidate):
            raise lacking
        with load_errors(spec, candidate):
            return _load(spec, candidate, settings)


def _load(spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
    _hush()
    name = class_name(marker_folder(candidate, settings, DIFFUSERS))
    way = choose_way(PIPELINES[spec.name], name)
    if way is None:
        raise UnsupportedError(f"{candidate.id} is a {name}, which can not do {spec.name}")
    folder = model_folder(candidate, settings, DIFFUSERS)
    base = model_folder(base_model(candidate, folder, settings), settings, DIFFUSERS) if way.part else None
    loaded = load_pipeline(way, name, folder, candidate, settings, base)
    return DiffusersExpert(way, loaded, weight_bytes(*loaded.pipe.components.values()))


def _hush() -> None:
    """Take away the progress bars of diffusers and of transformers, and, unless somebody set its level,
    their advice to developers."""
    from diffusers.utils import logging as ours
    from transformers.utils import logging as theirs

    for logging in (ours, theirs):
        logging.disable_progress_bar()
        if logging.get_verbosity() == logging.WARNING:
            logging.set_verbosity_error()
