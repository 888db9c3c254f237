"""Runs models of the Hub with transformers, from a directory, the Hub's cache, or a download.

    backend = TransformersBackend(pool, settings)
    backend.unsupported_reason(spec, candidate)       # None, or why it can not run this candidate
    raw = await backend.run(call)

What it can do is the table in tasks.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.devices import weight_bytes
from jarvis_agent.backends.hub.snapshot import config_file, model_folder, refusal
from jarvis_agent.backends.load_errors import load_errors
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.backends.transformers.control import CONTROL_MAPS
from jarvis_agent.backends.transformers.loading import (
    Loaded,
    PipelineSpec,
    choose_way,
    hush,
    load_model,
    try_out,
)
from jarvis_agent.backends.transformers.pipelines import PIPELINES
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate


@dataclass(frozen=True, slots=True)
class TransformersExpert:
    """A loaded model that does one task, and the control maps that are drawn from it."""

    way: PipelineSpec
    loaded: Loaded
    nbytes: int

    def __call__(self, call: Call) -> Any:
        options = call.candidate.metadata.get("options") or {}
        raw = self.way.run(replace(self.loaded, options=options), call)
        draw = CONTROL_MAPS.get(call.spec.name)
        return draw(raw, self.loaded, call) if draw else raw

    @property
    def batch(self) -> Callable[[Sequence[Call]], list[Any]] | None:
        """What computes several calls at once; None if the way knows no such thing."""
        return None if self.way.batch is None else partial(self.way.batch, self.loaded)


class TransformersBackend(LocalBackend):
    """Runs the tasks of TASK_WAYS."""

    name = "transformers"
    needs = ("torch", "transformers")

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """None if transformers is there, has a way to do the task, and may load the candidate."""
        if spec.name not in PIPELINES:
            return f"transformers has no way here to do {spec.name}"
        if candidate.library not in (None, "transformers"):
            return f"it is made for {candidate.library}, not for transformers"
        if lacking := self.lacking(candidate):
            return str(lacking)
        return refusal(candidate, self.settings)

    def key(self, spec: TaskSpec, candidate: Candidate) -> tuple[str, ...]:
        """A task and the control maps that are drawn from it share a model."""
        return (self.name, spec.models_of or spec.name, candidate.id, candidate.revision or "")

    def load(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        """Find the files, choose the way by the model's config, and load it.

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
    from transformers import AutoConfig

    hush()
    remote = settings.trust_remote_code
    folder = model_folder(candidate, settings) if remote else config_file(candidate, settings).parent
    config = AutoConfig.from_pretrained(str(folder), trust_remote_code=remote)
    way = choose_way(PIPELINES[spec.name], config)
    if way is None:
        raise UnsupportedError(f"{candidate.id} is a {config.model_type} model, which can not do {spec.name}")
    if not remote and not candidate.local and candidate.path is None:
        try_out(way, config)
    loaded = load_model(way, model_folder(candidate, settings), candidate, settings)
    return TransformersExpert(way, loaded, weight_bytes(loaded.model, *loaded.extras.values()))
