"""What the diffusers backend fetches from the Hub: first what names the class, then what is read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Resource
from jarvis_agent.testing import HubDouble

pytest.importorskip("torch")
pytest.importorskip("diffusers")

import tiny_diffusers as tiny

from jarvis_agent.backends.diffusers.backend import DiffusersBackend

ON_HUB = Settings(device="cpu", offline=False)


@pytest.fixture
def backend() -> Iterator[DiffusersBackend]:
    pool = ModelPool(limit_bytes=10**9)
    yield DiffusersBackend(pool, ON_HUB)
    asyncio.run(pool.close())


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubDouble]:
    """A Hub with a pipeline, a ControlNet for it, and a LoRA adapter; and an empty cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    whole, part = tmp_path / "whole", tmp_path / "part"
    tiny.stable_diffusion(whole)
    tiny.control_part(part)
    with HubDouble() as hub, hub.redirected():
        useless = ("v1-5.ckpt", "unet/diffusion_pytorch_model.bin", "onnx/unet/model.onnx", "photo.png")
        hub.add_model("org/whole", directory=whole, files=dict.fromkeys(useless, b"useless"))
        hub.add_model("org/part", directory=part)
        hub.add_model("org/lora", files={"pytorch_lora_weights.safetensors": b"weights"})
        yield hub


def fetched_from(hub: HubDouble) -> set[str]:
    """The files that were downloaded."""
    paths = [request.path for request in hub.requests if "/resolve/" in request.path]
    return {path.split("/resolve/")[1].partition("/")[2] for path in paths}


def candidate(name: str, task: str, **metadata: Any) -> Candidate:
    options = {"num_inference_steps": 2}
    return Candidate(id=name, task=task, library="diffusers", metadata={"options": options, **metadata})


def test_a_pipeline_is_downloaded_and_run(backend: DiffusersBackend, hub: HubDouble) -> None:
    task = "text-to-image"
    call = Call(TASKS[task], candidate("org/whole", task), {"text": "a fox"}, Path, ON_HUB)
    assert asyncio.run(backend.run(call)).size == (64, 64)
    fetched = fetched_from(hub)
    assert {"model_index.json", "unet/diffusion_pytorch_model.safetensors"} <= fetched
    assert not [name for name in fetched if name.endswith((".ckpt", ".bin", ".onnx", ".png"))]


def test_of_a_pipeline_of_another_family_only_the_index_is_fetched(
    backend: DiffusersBackend, hub: HubDouble
) -> None:
    task = "text-to-video"
    with pytest.raises(UnsupportedError, match="org/whole is a StableDiffusionPipeline, which cannot do"):
        backend.load(TASKS[task], candidate("org/whole", task), ON_HUB)
    assert fetched_from(hub) == {"model_index.json"}


def test_a_controlnet_brings_the_base_that_its_card_names(
    backend: DiffusersBackend, hub: HubDouble, tmp_path: Path
) -> None:
    from PIL import Image

    Image.new("RGB", (32, 24)).save(tmp_path / "map.png")
    task = "canny-text-to-image"
    control = candidate("org/part", task, base_model=["org/whole"])
    inputs = {"image": Resource(kind="image", path=tmp_path / "map.png"), "text": "a fox"}
    made = asyncio.run(backend.run(Call(TASKS[task], control, inputs, Path, ON_HUB)))
    assert made.size == (32, 24)


def test_an_adapter_alone_is_refused_before_the_download(backend: DiffusersBackend, hub: HubDouble) -> None:
    task = "text-to-image"
    with pytest.raises(UnsupportedError, match=r"diffusers cannot load org/lora: it has no model_index.json"):
        backend.load(TASKS[task], candidate("org/lora", task), ON_HUB)
    assert fetched_from(hub) == set()
