"""Models in the Hub's cache, as huggingface_hub lays it out."""

import json
from pathlib import Path

import pytest

from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.settings import Settings
from jarvis_agent.selection.sources.cache import CacheSource
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate

DETECTION = TASKS["object-detection"]
CARD = """---
license: mit
pipeline_tag: object-detection
language: en
library_name: transformers
---
# DETR

Finds the objects of photos very well indeed.
"""


def put(
    cache: Path, model: str, files: dict[str, str], commit: str = "c0ffee", ref: str | None = "main"
) -> Path:
    """Lay a model into a cache, and return its snapshot."""
    repo = cache / f"models--{model.replace('/', '--')}"
    snapshot = repo / "snapshots" / commit
    for name, content in files.items():
        file = snapshot / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    if ref:
        (repo / "refs").mkdir(exist_ok=True)
        (repo / "refs" / ref).write_text(commit)
    return snapshot


async def found(cache: Path, task: str = "object-detection") -> list[Candidate]:
    return await CacheSource(Settings(), cache_dir=cache).candidates(TASKS[task], 10)


async def test_a_downloaded_model_is_found_with_its_card(tmp_path: Path) -> None:
    snapshot = put(
        tmp_path, "org/detr", {"README.md": CARD, "model.safetensors": "12345", "config.json": "{}"}
    )
    [candidate] = await found(tmp_path)
    assert candidate.id == "org/detr"
    assert candidate.local
    assert (candidate.path, candidate.revision, candidate.size) == (snapshot, "c0ffee", 5)
    assert (candidate.license, candidate.languages, candidate.library) == ("mit", ("en",), "transformers")
    assert candidate.description == "Finds the objects of photos very well indeed."
    assert await found(tmp_path, "translation") == []


async def test_without_a_card_the_config_tells_the_task(tmp_path: Path) -> None:
    config = json.dumps({"architectures": ["DetrForObjectDetection"]})
    put(tmp_path, "org/detr", {"config.json": config, "pytorch_model.bin": "1"})
    [candidate] = await found(tmp_path)
    assert candidate.library == "transformers"


async def test_a_model_is_offered_for_every_task_that_it_names(tmp_path: Path) -> None:
    card = "---\npipeline_tag: sentence-similarity\ntags: [feature-extraction, transformers]\n---\n"
    put(tmp_path, "org/minilm", {"README.md": card, "modules.json": "[]", "model.safetensors": "1"})
    [similarity] = await found(tmp_path, "sentence-similarity")
    [features] = await found(tmp_path, "feature-extraction")
    assert similarity.library == features.library == "sentence-transformers"


async def test_a_model_without_its_weights_is_not_offered(tmp_path: Path) -> None:
    put(tmp_path, "org/card-only", {"README.md": CARD, "config.json": "{}"})
    index = json.dumps({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})
    put(
        tmp_path, "org/half", {"README.md": CARD, "model.safetensors.index.json": index, "1.safetensors": "1"}
    )
    assert await found(tmp_path) == []


async def test_main_comes_before_other_revisions_and_all_are_known(tmp_path: Path) -> None:
    weights = {"README.md": CARD, "model.safetensors": "1"}
    main = put(tmp_path, "org/detr", weights, "aaa")
    old = put(tmp_path, "org/detr", weights, "bbb", "v1")
    put(tmp_path, "org/detr", {"README.md": CARD}, "ccc", "empty")
    [candidate] = await found(tmp_path)
    assert candidate.revision == "aaa"
    assert candidate.metadata["revisions"] == {
        "aaa": str(main), "main": str(main), "bbb": str(old), "v1": str(old),
    }  # fmt: skip


async def test_data_sets_and_unknown_folders_are_passed_over(tmp_path: Path) -> None:
    put(tmp_path, "org/detr", {"README.md": CARD, "model.safetensors": "1"})
    (tmp_path / "datasets--org--data" / "snapshots" / "x").mkdir(parents=True)
    (tmp_path / "lost+found").mkdir()
    assert [candidate.id for candidate in await found(tmp_path)] == ["org/detr"]


async def test_no_cache_is_no_error(tmp_path: Path) -> None:
    assert await found(tmp_path / "none") == []


async def test_a_cache_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "hub").touch()
    with pytest.raises(ConfigError, match="HF_HOME"):
        await found(tmp_path / "hub")


async def test_a_scan_is_good_for_a_minute(tmp_path: Path) -> None:
    now = 0.0
    source = CacheSource(Settings(), cache_dir=tmp_path, clock=lambda: now)
    assert await source.candidates(DETECTION, 10) == []
    put(tmp_path, "org/detr", {"README.md": CARD, "model.safetensors": "1"})
    now = 59.0
    assert await source.candidates(DETECTION, 10) == []
    now = 61.0
    assert len(await source.candidates(DETECTION, 10)) == 1


def pipeline(class_name: str) -> str:
    return json.dumps({"_class_name": class_name, "_diffusers_version": "0.42"})


@pytest.mark.parametrize(
    ("model", "files", "task", "library"),
    [
        ("a/sd", {"model_index.json": pipeline("StableDiffusionPipeline")}, "text-to-image", "diffusers"),
        (
            "a/svd",
            {"model_index.json": pipeline("StableVideoDiffusionPipeline")},
            "image-to-video",
            "diffusers",
        ),
        ("a/wan", {"model_index.json": pipeline("WanPipeline")}, "text-to-video", "diffusers"),
        ("a/audio", {"model_index.json": pipeline("StableAudioPipeline")}, "text-to-audio", "diffusers"),
        ("a/shap", {"model_index.json": pipeline("ShapEImg2ImgPipeline")}, "image-to-3d", "diffusers"),
        (
            "a/ddpm",
            {"model_index.json": pipeline("DDPMPipeline")},
            "unconditional-image-generation",
            "diffusers",
        ),
        (
            "a/sd-controlnet-canny",
            {"config.json": pipeline("ControlNetModel")},
            "canny-text-to-image",
            "diffusers",
        ),
        (
            "a/embedder",
            {"modules.json": "[]", "README.md": "---\npipeline_tag: sentence-similarity\n---\n"},
            "sentence-similarity",
            "sentence-transformers",
        ),
        (
            "a/chronos",
            {
                "config.json": "{}",
                "README.md": "---\npipeline_tag: time-series-forecasting\n"
                "library_name: chronos-forecasting\n---\n",
            },
            "time-series-forecasting",
            "chronos-forecasting",
        ),
        (
            "a/wine",
            {"model.skops": "1", "README.md": "---\ntags: [tabular-classification]\n---\n"},
            "tabular-classification",
            "sklearn",
        ),
    ],
)
async def test_models_of_every_library_are_known_by_their_files(
    tmp_path: Path, model: str, files: dict[str, str], task: str, library: str
) -> None:
    put(tmp_path, model, {"diffusion_pytorch_model.safetensors": "1", **files})
    [candidate] = await found(tmp_path, task)
    assert (candidate.id, candidate.library) == (model, library)


async def test_a_controlnets_card_is_not_believed(tmp_path: Path) -> None:
    card = "---\npipeline_tag: image-to-image\ntags: [text-to-image]\nbase_model: a/sd\n---\n"
    files = {"config.json": pipeline("ControlNetModel"), "README.md": card, "model.safetensors": "1"}
    put(tmp_path, "a/control_v11p_sd15_openpose", files)
    [candidate] = await found(tmp_path, "openpose-text-to-image")
    assert candidate.metadata["base_model"] == ["a/sd"]
    assert await found(tmp_path, "image-to-image") == []
