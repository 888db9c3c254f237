"""Backends that load model files: what they refuse, download, share, and say when something is missing."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.backends import local
from jarvis_agent.backends.base import Call
from jarvis_agent.backends.devices import weight_bytes
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.errors import (
    ConfigError,
    ExpertError,
    MissingExtraError,
    RateLimitedError,
    TransientError,
    UnsupportedError,
)
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Resource
from jarvis_agent.testing import HubDouble

pytest.importorskip("torch")
pytest.importorskip("diffusers")
pytest.importorskip("sentence_transformers")

from model_bench import Bench, as_pickle

from jarvis_agent.backends.diffusers.backend import DiffusersBackend
from jarvis_agent.backends.sentence_transformers import SentenceTransformersBackend
from jarvis_agent.backends.transformers.backend import TransformersBackend

TEXT_TASK, UNCONDITIONAL = "text-classification", "unconditional-image-generation"
KINDS: dict[str, Any] = {
    kind.name: kind for kind in (TransformersBackend, DiffusersBackend, SentenceTransformersBackend)
}
UNET = "unet/diffusion_pytorch_model.safetensors"
STEP = {"options": {"num_inference_steps": 1}}
ONLINE, OFFLINE = Settings(device="cpu", offline=False), Settings(device="cpu", offline=True)
Copied = Callable[[str], Path]


@pytest.fixture(scope="module")
def benches(built: Any, media: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bench]:
    folder = tmp_path_factory.mktemp("made")
    return {name: Bench(kind, built, media, folder) for name, kind in KINDS.items()}


# Models on this machine


@pytest.mark.parametrize(
    ("backend", "task", "model", "file"),
    [
        ("transformers", TEXT_TASK, "bert_classifier", "model.safetensors"),
        ("diffusers", UNCONDITIONAL, "ddpm", UNET),
        ("sentence-transformers", "feature-extraction", "dense_embedder", "model.safetensors"),
        ("sentence-transformers", "feature-extraction", "dense_embedder", "2_Dense/model.safetensors"),
    ],
)
def test_weights_that_are_a_pickle_are_refused_unless_allowed(
    benches: dict[str, Bench], copied: Copied, backend: str, task: str, model: str, file: str
) -> None:
    folder, bench = copied(model), benches[backend]
    as_pickle(folder / file)
    with pytest.raises(UnsupportedError, match=r"only as a pickle.*JARVIS_ALLOW_PICKLE"):
        bench.load(bench.call(task, folder))
    assert bench.load(bench.call(task, folder, settings={"allow_pickle": True}))


@pytest.mark.parametrize(
    ("backend", "task", "model", "error"),
    [
        ("transformers", TEXT_TASK, "bert_base", r"org/model is not trained for text-class.*classifier"),
        ("transformers", "fill-mask", "llama", "org/model is a llama model, which cannot do fill-mask"),
        ("diffusers", "text-to-image", "ddpm", "org/model is a DDPMPipeline, which cannot do text-to-image"),
        ("diffusers", "text-to-image", "wan", "is a WanPipeline"),
        ("diffusers", "text-to-video", "stable_diffusion", "is a StableDiffusionPipeline"),
        ("diffusers", "image-to-3d", "shap_e", "is a ShapEPipeline"),
        ("diffusers", "canny-text-to-image", "stable_diffusion", "is a StableDiffusionPipeline"),
        ("diffusers", UNCONDITIONAL, "control_part", "is a ControlNetModel"),
        ("sentence-transformers", "text-ranking", "bert_nli", "sorts pairs of texts into 3 classes"),
    ],
)
def test_a_model_of_another_kind_is_refused(
    benches: dict[str, Bench], backend: str, task: str, model: str, error: str
) -> None:
    with pytest.raises(UnsupportedError, match=error):
        benches[backend].load(benches[backend].call(task, model))


@pytest.mark.parametrize(
    ("task", "model", "lost"),
    [
        ("zero-shot-image-classification", "clip", "text_projection.weight"),
        ("mask-generation", "sam", "mask_decoder.iou_token.weight"),
        ("keypoint-detection", "vitpose", "head.conv.weight"),
    ],
)
def test_a_model_that_lacks_weights_is_refused(
    benches: dict[str, Bench], copied: Copied, task: str, model: str, lost: str
) -> None:
    from safetensors.torch import load_file, save_file

    file, bench = copied(model) / "model.safetensors", benches["transformers"]
    weights = load_file(file)
    del weights[lost]
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(UnsupportedError, match=f"lacks the weights {lost}"):
        bench.load(bench.call(task, file.parent))


def test_a_damaged_model_is_refused_by_name(benches: dict[str, Bench], copied: Copied) -> None:
    folder, bench = copied("bert_classifier"), benches["transformers"]
    (folder / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(UnsupportedError, match="org/model cannot be loaded for text-classification"):
        bench.load(bench.call(TEXT_TASK, folder))
    (folder / "config.json").unlink()
    with pytest.raises(UnsupportedError, match=r"org/model cannot be loaded: there is no .*config.json"):
        bench.load(bench.call(TEXT_TASK, folder))


def test_errors_of_the_library_are_explained_and_out_of_memory_is_left_to_the_pool(
    benches: dict[str, Bench], copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied("bert_classifier")
    for raised, error, text in (
        (
            ImportError("\nThis backbone requires the timm library but it was not found"),
            UnsupportedError,
            "org/model needs a package that is not installed: This backbone",
        ),
        (RuntimeError("CUDA out of memory"), RuntimeError, "out of memory"),
    ):

        def fails(*args: Any, error: Exception = raised, **options: Any) -> Any:
            raise error

        monkeypatch.setattr("transformers.AutoModelForSequenceClassification.from_pretrained", fails)
        with pytest.raises(error, match=text):
            benches["transformers"].ask(TEXT_TASK, folder, text="a")


def test_a_missing_device_or_dtype_is_a_wrong_setting(benches: dict[str, Bench]) -> None:
    for settings, name in (({"device": "cuda:99"}, "JARVIS_DEVICE"), ({"dtype": "int8"}, "JARVIS_DTYPE")):
        bench = benches["transformers"]
        with pytest.raises(ConfigError, match=name):
            bench.load(bench.call(TEXT_TASK, "bert_classifier", settings=settings))


@pytest.mark.parametrize(
    ("backend", "task", "changes", "reason"),
    [
        ("transformers", "text-to-image", {}, "transformers does not do text-to-image here"),
        ("transformers", TEXT_TASK, {"library": "diffusers"}, "it is made for diffusers, not for"),
        ("transformers", TEXT_TASK, {"tags": ("custom_code",), "local": True}, "JARVIS_TRUST_REMOTE_CODE"),
        ("transformers", TEXT_TASK, {"size": 10**10}, r"download of 10.0 GB exceeds.*JARVIS_MAX_DOWNLOAD"),
        ("transformers", TEXT_TASK, {"size": 10}, None),
        ("sentence-transformers", "sentence-similarity", {}, None),
        ("sentence-transformers", "sentence-similarity", {"library": "transformers"}, None),
        ("sentence-transformers", "text-ranking", {"library": "gguf"}, "it is made for gguf, not for"),
        ("sentence-transformers", "feature-extraction", {"library": "transformers"}, "it is made for transf"),
        ("sentence-transformers", "summarization", {}, "does not do summarization here"),
    ],
)
def test_what_can_be_run_is_known_before_loading(
    pool: ModelPool, backend: str, task: str, changes: dict[str, Any], reason: str | None
) -> None:
    candidate = Candidate(**{"id": "org/model", "task": task, "library": backend, **changes})
    found = KINDS[backend](pool, ONLINE).unsupported_reason(TASKS[task], candidate)
    assert found is None if reason is None else re.search(reason, found or "")


def test_the_settings_decide_what_may_be_loaded(pool: ModelPool) -> None:
    candidate = Candidate(id="org/model", task=TEXT_TASK, library="transformers", size=10)
    for changes, settings, reason in (
        ({}, OFFLINE, "JARVIS_OFFLINE"),
        ({"local": True}, OFFLINE, None),
        ({"tags": ("custom_code",)}, Settings(offline=False, trust_remote_code=True), None),
    ):
        backend = TransformersBackend(pool, settings)
        found = backend.unsupported_reason(TASKS[TEXT_TASK], candidate.model_copy(update=changes))
        assert found is None if reason is None else reason in str(found)


def test_without_its_library_a_backend_names_the_extra(
    pool: ModelPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "find_spec", lambda name: None)
    tasks = (TEXT_TASK, UNCONDITIONAL, "text-ranking")
    for kind, task in zip(KINDS.values(), tasks, strict=True):
        candidate = Candidate(id="org/model", task=task, library=kind.name, local=True)
        reason = kind(pool).unsupported_reason(TASKS[task], candidate)
        assert 'pip install "langchain-hugginggpt[local]"' in str(reason)
        with pytest.raises(MissingExtraError, match=r"langchain-hugginggpt\[local\]"):
            kind(pool).load(TASKS[task], candidate, OFFLINE)


def test_a_model_is_measured_and_loaded_once_for_each_device_and_dtype(
    benches: dict[str, Bench], pool: ModelPool, built: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = []
    backend, bench = TransformersBackend(pool), benches["transformers"]
    load = backend.load
    monkeypatch.setattr(backend, "load", lambda *args: loads.append(load(*args)) or loads[-1])
    for dtype in ("float32", "bfloat16", "float32"):
        asyncio.run(
            backend.run(bench.call(TEXT_TASK, "bert_classifier", settings={"dtype": dtype}, text="a"))
        )
    files = (built("bert_classifier") / "model.safetensors").stat().st_size
    expected = [pytest.approx(size, rel=0.25) for size in (files, files / 2)]
    assert [weight_bytes(*expert.modules) for expert in loads] == expected


def test_tasks_of_one_kind_share_a_loaded_model(pool: ModelPool) -> None:
    for kind, shared, other in (
        (DiffusersBackend, ("canny-text-to-image", "hed-text-to-image"), "text-to-image"),
        (TransformersBackend, ("depth-control", "depth-estimation", "normal-control"), "image-to-text"),
        (SentenceTransformersBackend, ("feature-extraction", "text-ranking", "sentence-similarity"), None),
    ):
        candidate = Candidate(id="org/model", task=shared[0])
        keys = {kind(pool).key(TASKS[task], candidate) for task in shared}
        assert len(keys) == 1
        assert other is None or kind(pool).key(TASKS[other], candidate) not in keys


def test_importing_a_backend_imports_none_of_what_it_runs() -> None:
    code = (
        "import sys, jarvis_agent.backends.transformers.backend, jarvis_agent.backends.outputs.adapters; "
        "sys.exit(bool({'torch', 'transformers', 'numpy', 'PIL', 'huggingface_hub'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Models of the Hub

ON_HUB = Candidate(id="org/model", task=TEXT_TASK, library="transformers")


def fetched_from(hub: HubDouble) -> set[str]:
    """The files that were downloaded."""
    paths = [request.path for request in hub.requests if "/resolve/" in request.path]
    return {path.split("/resolve/")[1].partition("/")[2] for path in paths}


def run_from_hub(
    pool: ModelPool, candidate: Candidate = ON_HUB, settings: Settings = ONLINE, **inputs: Any
) -> Any:
    kind = KINDS[candidate.library or "transformers"]
    call = Call(TASKS[candidate.task], candidate, inputs or {"text": "Ada"}, Path, settings)
    return asyncio.run(kind(pool, settings).run(call))


def test_a_model_of_the_hub_is_downloaded_and_run_and_then_found_without_it(
    pool: ModelPool, hub: HubDouble, built: Callable[[str], Path]
) -> None:
    useless = ("pytorch_model.bin", "onnx/model.onnx", "onnx/config.json", "model.fp16.safetensors")
    hub.add_model("org/model", directory=built("bert_classifier"), files=dict.fromkeys(useless, b"useless"))
    assert {row["label"] for row in run_from_hub(pool)} == {"first", "second", "third"}
    assert {"config.json", "tokenizer.json", "model.safetensors"} <= fetched_from(hub)
    assert fetched_from(hub).isdisjoint(useless)
    hub.requests.clear()
    cached = ON_HUB.model_copy(update={"local": True, "revision": "main"})
    assert run_from_hub(pool, cached, OFFLINE)
    assert hub.requests == []


def test_a_pipeline_and_its_base_are_downloaded_and_run(
    pool: ModelPool, hub: HubDouble, built: Callable[[str], Path], media: dict[str, Path]
) -> None:
    useless = ("v1-5.ckpt", "unet/diffusion_pytorch_model.bin", "onnx/unet/model.onnx", "photo.png")
    hub.add_model("org/whole", directory=built("stable_diffusion"), files=dict.fromkeys(useless, b"useless"))
    hub.add_model("org/part", directory=built("control_part"))
    metadata = {**STEP, "base_model": ["org/whole"]}
    part = Candidate(id="org/part", task="canny-text-to-image", library="diffusers", metadata=metadata)
    image = Resource(kind="image", path=media["photo"])
    assert run_from_hub(pool, part, image=image, text="a fox").size == (64, 48)
    assert {"config.json", "model_index.json", UNET} <= fetched_from(hub)
    assert fetched_from(hub).isdisjoint(useless)


def test_what_cannot_be_loaded_is_refused_before_its_weights_are_downloaded(
    pool: ModelPool, hub: HubDouble, built: Callable[[str], Path], subtests: pytest.Subtests
) -> None:
    classifier = built("bert_classifier")
    config = (classifier / "config.json").read_bytes()
    detr = json.dumps({"model_type": "detr", "use_timm_backbone": True, "backbone": "resnet50"})
    weights = {"model.safetensors": b"weights"}
    detector = {"task": "object-detection"}
    painter = {"task": "text-to-image", "library": "diffusers"}
    small = Settings(device="cpu", offline=False, max_download=1000)
    read = {"config.json"}
    cases: list[tuple[dict[str, Any], dict[str, Any], Settings, str, set[str]]] = [
        ({"directory": classifier}, detector, ONLINE, "is a bert model, which cannot do object-det", read),
        ({"directory": classifier}, {}, small, r"exceeds the limit of 0.0 GB \(JARVIS_MAX_DOWNLOAD", read),
        ({"files": {"config.json": config, "pytorch_model.bin": b"-"}}, {}, ONLINE, "only as a pickle", read),
        (
            {"files": {"config.json": config, "a.onnx": b"-"}},
            {},
            ONLINE,
            "no weights that transformers",
            read,
        ),
        ({"directory": classifier, "gated": "manual"}, {}, ONLINE, r"is gated: accept its.*HF_TOKEN", set()),
        (
            {"files": {"lora.safetensors": b"-"}},
            painter,
            ONLINE,
            "diffusers cannot load .* no model_i",
            set(),
        ),
        (
            {"directory": built("stable_diffusion")},
            {**painter, "task": "text-to-video"},
            ONLINE,
            "is a StableDiffusionPipeline, which cannot do text-to-video",
            {"model_index.json"},
        ),
    ]
    if find_spec("timm") is None:
        files = {"config.json": detr, **weights}
        cases.append(({"files": files}, detector, ONLINE, r"package that is not installed: .* timm", read))
    for number, (made, changes, settings, error, fetched) in enumerate(cases):
        with subtests.test(error):
            hub.add_model(f"org/model{number}", **made)
            hub.requests.clear()
            candidate = ON_HUB.model_copy(update={"id": f"org/model{number}", **changes})
            with pytest.raises(UnsupportedError, match=error):
                run_from_hub(pool, candidate, settings)
            # A refused file may have been asked for, but no weights.
            assert fetched_from(hub) <= fetched | ({"config.json"} if "gated" in made else set())


def test_a_hub_in_trouble_is_worth_another_try(
    pool: ModelPool, hub: HubDouble, built: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    hub.add_model("org/model", directory=built("bert_classifier"))
    troubles: list[tuple[int, type[ExpertError]]] = [(503, TransientError), (429, RateLimitedError)]
    for status, error in troubles:
        hub.answer("/api/models", status=status, body={"error": "busy"}, headers={"Retry-After": "7"})
        with pytest.raises(error, match="org/model could not be downloaded"):
            run_from_hub(pool)
    with HubDouble() as stopped:
        pass
    with stopped.redirected(), pytest.raises(TransientError, match="org/model could not be downloaded"):
        run_from_hub(pool)
