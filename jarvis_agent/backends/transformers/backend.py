"""Run models of the Hub with transformers.

    backend = TransformersBackend(settings, pool)
    backend.unsupported_reason(spec, candidate)       # None, or why it cannot run this candidate
    raw = await backend.run(call)

pipelines.py lists the supported tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.hub.snapshot import marker_folder, model_folder
from jarvis_agent.backends.local import FileBackend
from jarvis_agent.backends.transformers.loading import (
    LoadedModel,
    PipelineSpec,
    choose_pipeline,
    dry_run,
    load_model,
    silence_library,
)
from jarvis_agent.backends.transformers.pipelines import PIPELINES
from jarvis_agent.backends.transformers.vision import CONTROL_MAPS
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate


@dataclass(frozen=True, slots=True)
class TransformersExpert:
    """A loaded model for one task and for the control maps drawn from that task's output."""

    pipeline: PipelineSpec
    loaded: LoadedModel

    def __call__(self, call: Call) -> Any:
        options = call.candidate.metadata.get("options") or {}
        raw = self.pipeline.run(replace(self.loaded, options=options), call)
        draw = CONTROL_MAPS.get(call.spec.name)
        return draw(raw, self.loaded, call) if draw else raw

    @property
    def modules(self) -> list[Any]:
        """The torch modules that the pool measures."""
        extras = self.loaded.extras.values()
        return [self.loaded.model, *(getattr(extra, "model", extra) for extra in extras)]

    @property
    def batch(self) -> Callable[[Sequence[Call]], list[Any]] | None:
        """The function that computes several calls at once, or None."""
        return None if self.pipeline.batch is None else partial(self.pipeline.batch, self.loaded)


class TransformersBackend(FileBackend):
    """Runs the tasks of PIPELINES."""

    name = "transformers"
    needs = ("torch", "transformers")
    library = "transformers"
    libraries = (None, "transformers")
    tasks = PIPELINES

    def key(self, spec: TaskSpec, candidate: Candidate) -> tuple[str, ...]:
        """A task and the control maps drawn from it share a model."""
        return (self.name, spec.models_of or spec.name, candidate.id, candidate.revision or "")

    def load_files(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        """Read the config, choose the pipeline that fits it, then download and load the weights."""
        from transformers import AutoConfig

        silence_library()
        remote = settings.trust_remote_code
        folder = (model_folder if remote else marker_folder)(candidate, settings)
        config = AutoConfig.from_pretrained(str(folder), trust_remote_code=remote)
        pipeline = choose_pipeline(PIPELINES[spec.name], config)
        if pipeline is None:
            raise UnsupportedError(
                f"{candidate.id} is a {config.model_type} model, which cannot do {spec.name}"
            )
        if not remote and not candidate.local and candidate.path is None:
            dry_run(pipeline, config)
        folder = model_folder(candidate, settings)
        return TransformersExpert(pipeline, load_model(pipeline, folder, candidate, settings))
