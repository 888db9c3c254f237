"""File layouts: which files of a model each library reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.backends.hub.layouts import (
    DIFFUSERS,
    SENTENCE_TRANSFORMERS,
    SKOPS,
    TRANSFORMERS,
    Layout,
)
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.settings import Settings

FLOAT = Settings(device="cpu", dtype="float32")
HALF = Settings(device="cpu", dtype="float16")
PIPELINE = {
    "_class_name": "StableDiffusionPipeline",
    "_diffusers_version": "0.30",
    "unet": ["diffusers", "UNet2DConditionModel"],
    "clip": ["transformers", "CLIPTextModel"],
    "scheduler": ["diffusers", "DDIMScheduler"],
    "safety_checker": [None, None],
    "requires_safety_checker": False,
}
CLIP = {"clip": PIPELINE["clip"]}
MODULES = [{"path": ""}, {"path": "1_Pooling"}, {"path": "2_Dense"}]
SHARDS = "model-00001-of-00002.safetensors model-00002-of-00002.safetensors"
CLIP_SHARDS = SHARDS.replace("model-", "clip/model-")
ONE_COPY = [
    ("model.safetensors", "pytorch_model.bin model-00001-of-00001.safetensors"),
    (SHARDS, ""),
    ("model.safetensors config.json tokenizer.json spiece.model", "README.md tf_model.h5 modeling_own.py"),
]
# Each case: layout, index, settings, the files that are read, and files beside them.
READ: list[tuple[Layout, Any, Settings, str, str]] = [
    (
        DIFFUSERS,
        PIPELINE,
        FLOAT,
        "model_index.json unet/config.json unet/diffusion_pytorch_model.safetensors clip/config.json "
        "clip/model.safetensors scheduler/scheduler_config.json",
        "v1-5-pruned.safetensors model.safetensors README.md unet/diffusion_pytorch_model.bin "
        "unet/diffusion_pytorch_model.fp16.safetensors unet/diffusion_pytorch_model.non_ema.safetensors "
        "unet/diffusion_flax_model.msgpack unet/model.onnx clip/openvino_model.bin "
        "safety_checker/model.safetensors vae_decoder/model.onnx",
    ),
    (DIFFUSERS, CLIP, FLOAT, "clip/model.safetensors", "clip/model.fp16.safetensors"),
    (DIFFUSERS, CLIP, HALF, "clip/model.fp16.safetensors", "clip/model.safetensors"),
    (DIFFUSERS, CLIP, FLOAT, "clip/model.fp16.safetensors", ""),
    (DIFFUSERS, CLIP, HALF, "clip/model.safetensors", ""),
    (DIFFUSERS, CLIP, FLOAT, CLIP_SHARDS, CLIP_SHARDS.replace("model-", "model.fp16-")),
    (
        DIFFUSERS,  # a ControlNet has no index
        None,
        FLOAT,
        "config.json diffusion_pytorch_model.safetensors",
        "diffusion_pytorch_model.bin a/b.json",
    ),
    (
        SENTENCE_TRANSFORMERS,
        MODULES,
        FLOAT,
        "modules.json config_sentence_transformers.json tokenizer.json model.safetensors "
        "1_Pooling/config.json 2_Dense/config.json 2_Dense/model.safetensors",
        "onnx/model.onnx onnx/config.json pytorch_model.bin openvino/openvino_model.xml",
    ),
    (SKOPS, None, FLOAT, "config.json model.skops", "model.pkl"),
    *((TRANSFORMERS, None, FLOAT, *files) for files in ONE_COPY),
    *((SENTENCE_TRANSFORMERS, None, FLOAT, *files) for files in ONE_COPY),
    (TRANSFORMERS, None, Settings(trust_remote_code=True), "model.safetensors modeling_own.py", "README.md"),
]


def chosen(layout: Layout, names: str, index: Any = None, settings: Settings = FLOAT) -> set[str]:
    return set(layout.choose("org/model", names.split(), index, settings))


def test_one_copy_of_what_the_library_needs_is_read(subtests: pytest.Subtests) -> None:
    pytest.importorskip("torch")
    for layout, index, settings, wanted, beside in READ:
        with subtests.test(f"{layout.library}: {wanted}"):
            assert chosen(layout, f"{beside} {wanted}", index, settings) == {*wanted.split()}


def test_a_model_without_weights_that_may_be_loaded_is_refused() -> None:
    pickles = "modules.json model.safetensors 2_Dense/pytorch_model.bin"
    with pytest.raises(UnsupportedError, match="only as a pickle"):
        chosen(SENTENCE_TRANSFORMERS, pickles, MODULES)
    with pytest.raises(UnsupportedError, match=r"only as a pickle.*ask its author for a \.skops file"):
        chosen(SKOPS, "config.json model.pkl", settings=Settings(allow_pickle=True))
    for layout in (TRANSFORMERS, DIFFUSERS, SENTENCE_TRANSFORMERS, SKOPS):
        with pytest.raises(UnsupportedError, match=f"no weights that {layout.library} reads"):
            chosen(layout, "config.json model.onnx")


def test_the_index_of_a_pipeline_may_be_absent_but_not_damaged(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"_class_name": "ControlNetModel"}))
    assert DIFFUSERS.read_index(tmp_path) is None
    (tmp_path / "model_index.json").write_text("{")
    with pytest.raises(UnsupportedError, match=r"model_index.json is damaged.*download the model again"):
        DIFFUSERS.read_index(tmp_path)


def test_the_variant_for_diffusers_is_read_from_the_file_names(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "diffusion_pytorch_model.fp16.safetensors").write_bytes(b"")
    assert DIFFUSERS.variant(tmp_path, FLOAT) == "fp16"
    (tmp_path / "diffusion_pytorch_model.safetensors").write_bytes(b"")
    assert DIFFUSERS.variant(tmp_path, FLOAT) is None
    assert DIFFUSERS.variant(tmp_path, HALF) == "fp16"
