"""Run models of the Hub with diffusers: images, videos, sounds and shapes from texts and images.

    backend = DiffusersBackend(pool, settings)
    backend.unsupported_reason(spec, candidate)       # None, or why it cannot run this candidate
    raw = await backend.run(call)

pipelines.py lists the supported tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.diffusers.loading import (
    DiffusionPipelineSpec,
    LoadedPipeline,
    base_model,
    choose_diffusion_pipeline,
    class_name,
    load_pipeline,
)
from jarvis_agent.backends.diffusers.pipelines import PIPELINES
from jarvis_agent.backends.file_backend import FileBackend
from jarvis_agent.backends.hub.layouts import DIFFUSERS
from jarvis_agent.backends.hub.snapshot import marker_folder, model_folder
from jarvis_agent.backends.transformers.loading import silence_library
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate


@dataclass(frozen=True, slots=True)
class DiffusersExpert:
    """A loaded pipeline for one task, or several of the same kind."""

    pipeline: DiffusionPipelineSpec
    loaded: LoadedPipeline

    def __call__(self, call: Call) -> Any:
        return self.pipeline.run(self.loaded, call)

    @property
    def modules(self) -> list[Any]:
        """The torch modules that the pool measures."""
        return list(self.loaded.pipe.components.values())


class DiffusersBackend(FileBackend):
    """Runs the tasks of PIPELINES."""

    name = "diffusers"
    needs = ("torch", "diffusers")
    library = "diffusers"
    libraries = (None, "diffusers")
    tasks = PIPELINES

    def key(self, spec: TaskSpec, candidate: Candidate) -> tuple[str, ...]:
        """Tasks with the same pipelines share a loaded one."""
        first = next(task for task, row in PIPELINES.items() if row is PIPELINES[spec.name])
        return (self.name, first, candidate.id, candidate.revision or "")

    def load_files(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        """Read the model's class, choose the pipeline that fits it, then download and load the weights."""
        from diffusers.utils import logging

        silence_library(logging)
        silence_library()
        name = class_name(marker_folder(candidate, settings, DIFFUSERS))
        pipeline = choose_diffusion_pipeline(PIPELINES[spec.name], name)
        if pipeline is None:
            raise UnsupportedError(f"{candidate.id} is a {name}, which cannot do {spec.name}")
        folder = model_folder(candidate, settings, DIFFUSERS)
        base = None
        if pipeline.part:
            base = model_folder(base_model(candidate, folder, settings), settings, DIFFUSERS)
        return DiffusersExpert(pipeline, load_pipeline(pipeline, name, folder, candidate, settings, base))
