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
    "text_encoder": ["transformers", "CLIPTextModel"],
    "scheduler": ["diffusers", "DDIMScheduler"],
    "safety_checker": [None, None],
    "requires_safety_checker": False,
}
CONTROLNET = {"_class_name": "ControlNetModel", "_diffusers_version": "0.30", "down_block_types": ["A", "B"]}


def chosen(layout: Layout, names: list[str], index: Any = None, settings: Settings = FLOAT) -> set[str]:
    return set(layout.choose("org/model", names, index, settings))


def test_a_diffusers_pipeline_is_its_components_and_nothing_beside_them() -> None:
    wanted = {
        "model_index.json",
        "unet/config.json",
        "unet/diffusion_pytorch_model.safetensors",
        "text_encoder/config.json",
        "text_encoder/model.safetensors",
        "scheduler/scheduler_config.json",
    }
    useless = {
        "v1-5-pruned.safetensors",
        "model.safetensors",
        "README.md",
        "unet/diffusion_pytorch_model.bin",
        "unet/diffusion_pytorch_model.fp16.safetensors",
        "unet/diffusion_pytorch_model.non_ema.safetensors",
        "unet/diffusion_flax_model.msgpack",
        "unet/model.onnx",
        "text_encoder/openvino_model.bin",
        "safety_checker/model.safetensors",
        "vae_decoder/model.onnx",
    }
    assert chosen(DIFFUSERS, [*wanted, *useless], PIPELINE) == wanted


@pytest.mark.parametrize(
    ("settings", "files", "weights"),
    [
        (FLOAT, ["model.safetensors", "model.fp16.safetensors"], {"model.safetensors"}),
        (HALF, ["model.safetensors", "model.fp16.safetensors"], {"model.fp16.safetensors"}),
        (FLOAT, ["model.fp16.safetensors"], {"model.fp16.safetensors"}),
        (HALF, ["model.safetensors"], {"model.safetensors"}),
        (
            FLOAT,
            [
                "model.fp16-00001-of-00002.safetensors",
                "model.fp16-00002-of-00002.safetensors",
                "model-00001-of-00002.safetensors",
                "model-00002-of-00002.safetensors",
            ],
            {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"},
        ),
    ],
)
def test_one_precision_of_a_component_is_read(
    settings: Settings, files: list[str], weights: set[str]
) -> None:
    pytest.importorskip("torch")
    names = ["model_index.json", *(f"text_encoder/{name}" for name in files)]
    found = chosen(DIFFUSERS, names, {"text_encoder": ["transformers", "CLIPTextModel"]}, settings)
    assert found == {"model_index.json", *(f"text_encoder/{name}" for name in weights)}


def test_a_lone_controlnet_lies_at_the_top_and_has_no_index(tmp_path: Path) -> None:
    names = ["config.json", "diffusion_pytorch_model.safetensors", "diffusion_pytorch_model.bin", "a/b.json"]
    assert chosen(DIFFUSERS, names) == set(names[:2])
    (tmp_path / "config.json").write_text(json.dumps(CONTROLNET))
    assert DIFFUSERS.read_index(tmp_path) is None
    (tmp_path / "model_index.json").write_text("{")
    with pytest.raises(UnsupportedError, match=r"model_index.json is damaged.*download the model again"):
        DIFFUSERS.read_index(tmp_path)


def test_the_variant_that_diffusers_must_be_told_is_in_the_names(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "diffusion_pytorch_model.fp16.safetensors").write_bytes(b"")
    assert DIFFUSERS.variant(tmp_path, FLOAT) == "fp16"
    (tmp_path / "diffusion_pytorch_model.safetensors").write_bytes(b"")
    assert DIFFUSERS.variant(tmp_path, FLOAT) is None
    assert DIFFUSERS.variant(tmp_path, HALF) == "fp16"


def test_a_sentence_transformer_is_its_modules() -> None:
    modules = [{"path": ""}, {"path": "1_Pooling"}, {"path": "2_Dense"}]
    wanted = {
        "modules.json",
        "config_sentence_transformers.json",
        "tokenizer.json",
        "model.safetensors",
        "1_Pooling/config.json",
        "2_Dense/config.json",
        "2_Dense/model.safetensors",
    }
    useless = {"onnx/model.onnx", "onnx/config.json", "pytorch_model.bin", "openvino/openvino_model.xml"}
    assert chosen(SENTENCE_TRANSFORMERS, [*wanted, *useless], modules) == wanted
    with pytest.raises(UnsupportedError, match="only as a pickle"):
        chosen(
            SENTENCE_TRANSFORMERS, ["modules.json", "model.safetensors", "2_Dense/pytorch_model.bin"], modules
        )


def test_one_copy_of_the_weights_is_chosen_and_code_only_if_it_may_run() -> None:
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    small = ["config.json", "tokenizer.json", "spiece.model"]
    code, trusted = "modeling_own.py", Settings(trust_remote_code=True)
    for names, expected in (
        (["model.safetensors", "pytorch_model.bin"], ["model.safetensors"]),
        (shards, shards),
        (["model.safetensors", "model-00001-of-00001.safetensors"], ["model.safetensors"]),
        (["model.safetensors", *small, "README.md", "tf_model.h5", code], ["model.safetensors", *small]),
    ):
        for layout in (TRANSFORMERS, SENTENCE_TRANSFORMERS):
            assert chosen(layout, names) == set(expected)
    assert chosen(TRANSFORMERS, ["model.safetensors", code], None, trusted) == {"model.safetensors", code}


def test_a_scikit_learn_model_is_never_read_from_a_pickle() -> None:
    assert chosen(SKOPS, ["config.json", "model.skops", "model.pkl"]) == {"config.json", "model.skops"}
    with pytest.raises(UnsupportedError, match=r"only as a pickle.*ask its author for a \.skops file"):
        chosen(SKOPS, ["config.json", "model.pkl"], settings=Settings(allow_pickle=True))


@pytest.mark.parametrize("layout", [TRANSFORMERS, DIFFUSERS, SENTENCE_TRANSFORMERS, SKOPS])
def test_a_model_without_weights_is_refused(layout: Layout) -> None:
    with pytest.raises(UnsupportedError, match=f"no weights that {layout.library} reads"):
        chosen(layout, ["config.json", "model.onnx"])
