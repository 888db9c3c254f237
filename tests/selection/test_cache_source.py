"""CacheSource: models in the Hub's cache, in the layout of huggingface_hub."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate
from jarvis_agent.selection.sources.cache import CacheSource

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
    """Write a model into a cache and return its snapshot."""
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


async def test_a_downloaded_model_is_listed_with_its_card(tmp_path: Path) -> None:
    files = {"README.md": CARD, "model.safetensors": "12345", "config.json": "{}"}
    snapshot = put(tmp_path, "org/detr", files)
    (tmp_path / "datasets--org--data" / "snapshots" / "x").mkdir(parents=True)
    (tmp_path / "lost+found").mkdir()
    [one] = await found(tmp_path)
    assert (one.id, one.local, one.path, one.revision, one.size) == ("org/detr", True, snapshot, "c0ffee", 5)
    assert (one.license, one.languages, one.library) == ("mit", ("en",), "transformers")
    assert one.description == "Finds the objects of photos very well indeed."
    assert await found(tmp_path, "translation") == await found(tmp_path / "none") == []


async def test_an_unreadable_cache_is_an_error_and_an_incomplete_model_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="HF_HOME"):
        await found(tmp_path / "file")
    put(tmp_path, "org/card-only", {"README.md": CARD, "config.json": "{}"})
    index = json.dumps({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})
    half = {"README.md": CARD, "model.safetensors.index.json": index, "1.safetensors": "1"}
    put(tmp_path, "org/half", half)
    assert await found(tmp_path) == []


async def test_the_main_revision_is_preferred_and_all_are_known(tmp_path: Path) -> None:
    weights = {"README.md": CARD, "model.safetensors": "1"}
    main = put(tmp_path, "org/detr", weights, "aaa")
    old = put(tmp_path, "org/detr", weights, "bbb", "v1")
    put(tmp_path, "org/detr", {"README.md": CARD}, "ccc", "empty")
    [candidate] = await found(tmp_path)
    assert candidate.revision == "aaa"
    assert candidate.metadata["revisions"] == {
        "aaa": str(main), "main": str(main), "bbb": str(old), "v1": str(old),
    }  # fmt: skip


async def test_a_scan_is_reused_for_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("jarvis_agent.selection.sources.cache.time", SimpleNamespace(monotonic=lambda: now))
    source = CacheSource(Settings(), cache_dir=tmp_path)
    assert await source.candidates(DETECTION, 10) == []
    put(tmp_path, "org/detr", {"README.md": CARD, "model.safetensors": "1"})
    for now, count in ((59.0, 0), (61.0, 1)):  # noqa: B007 - the clock reads it
        assert len(await source.candidates(DETECTION, 10)) == count


def pipeline(class_name: str) -> str:
    return json.dumps({"_class_name": class_name, "_diffusers_version": "0.42"})


def tagged(*lines: str) -> str:
    return "\n".join(["---", *lines, "---", ""])


CONFIG = json.dumps({"architectures": ["DetrForObjectDetection"]})
SIMILARITY = tagged("pipeline_tag: sentence-similarity", "tags: [feature-extraction, transformers]")
FORECASTS = tagged("pipeline_tag: time-series-forecasting", "library_name: chronos-forecasting")
TABLES = tagged("tags: [tabular-classification]")
LIBRARIES: list[tuple[str, dict[str, str], str, str]] = [
    ("a/detr", {"config.json": CONFIG}, "object-detection", "transformers"),
    ("a/b", {"model_index.json": pipeline("WanPipeline")}, "text-to-video", "diffusers"),
    ("a/controlnet-canny", {"config.json": pipeline("ControlNetModel")}, "canny-text-to-image", "diffusers"),
    ("a/e", {"modules.json": "[]", "README.md": SIMILARITY}, "sentence-similarity", "sentence-transformers"),
    ("a/e", {"modules.json": "[]", "README.md": SIMILARITY}, "feature-extraction", "sentence-transformers"),
    ("a/ts", {"config.json": "{}", "README.md": FORECASTS}, "time-series-forecasting", "chronos-forecasting"),
    ("a/wine", {"model.skops": "1", "README.md": TABLES}, "tabular-classification", "sklearn"),
]


async def test_models_of_every_library_are_recognised_by_their_files(tmp_path: Path) -> None:
    for place, (model, files, task, library) in enumerate(LIBRARIES):
        cache = tmp_path / str(place)
        put(cache, model, {"diffusion_pytorch_model.safetensors": "1", **files})
        listed = [(candidate.id, candidate.library) for candidate in await found(cache, task)]
        assert listed == [(model, library)], task


async def test_the_config_of_a_controlnet_overrides_its_card(tmp_path: Path) -> None:
    card = tagged("pipeline_tag: image-to-image", "tags: [text-to-image]", "base_model: a/sd")
    files = {"config.json": pipeline("ControlNetModel"), "README.md": card, "model.safetensors": "1"}
    put(tmp_path, "a/control_v11p_sd15_openpose", files)
    [candidate] = await found(tmp_path, "openpose-text-to-image")
    assert candidate.metadata["base_model"] == ["a/sd"]
    assert await found(tmp_path, "image-to-image") == []
