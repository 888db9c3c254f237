"""The transformers backend: what it loads and downloads, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.devices import weight_bytes
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.errors import (
    ConfigError,
    ExpertError,
    RateLimitedError,
    TransientError,
    UnsupportedError,
)
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate
from jarvis_agent.testing import HubDouble

pytest.importorskip("torch")
pytest.importorskip("transformers")

from model_bench import as_pickle

from jarvis_agent.backends.transformers.backend import TransformersBackend

SPEC = TASKS["text-classification"]
TEXT = "Ada wrote the first program."


@pytest.fixture
def classifier(built: Callable[[str], Path]) -> Path:
    """The folder of a tiny text classifier."""
    return built("bert_classifier")


@pytest.fixture
def copied(classifier: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(classifier, tmp_path / "copy"))


@pytest.fixture
def backend(pool: ModelPool) -> TransformersBackend:
    return TransformersBackend(pool, Settings(device="cpu", offline=False))


def load_from(backend: TransformersBackend, folder: Path, **settings: Any) -> Any:
    candidate = Candidate(id="org/model", task=SPEC.name, path=folder, local=True)
    return backend.load(SPEC, candidate, Settings(**{"device": "cpu", **settings}))


def call_of(candidate: Candidate, **settings: Any) -> Call:
    return Call(SPEC, candidate, {"text": TEXT}, Path, Settings(**{"device": "cpu", **settings}))


def test_weights_that_are_a_pickle_are_refused_unless_allowed(
    backend: TransformersBackend, copied: Path
) -> None:
    as_pickle(copied / "model.safetensors")
    with pytest.raises(UnsupportedError, match=r"only as a pickle.*JARVIS_ALLOW_PICKLE"):
        load_from(backend, copied)
    assert load_from(backend, copied, allow_pickle=True)


def test_a_damaged_model_is_refused_by_name(backend: TransformersBackend, copied: Path) -> None:
    (copied / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(UnsupportedError, match="org/model cannot be loaded for text-classification"):
        load_from(backend, copied)
    (copied / "config.json").unlink()
    with pytest.raises(UnsupportedError, match=r"org/model cannot be loaded: there is no .*config.json"):
        load_from(backend, copied)


def test_errors_of_the_library_are_explained_and_want_of_memory_is_left_to_the_pool(
    backend: TransformersBackend, classifier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
            load_from(backend, classifier)


def test_a_missing_device_or_dtype_is_a_wrong_setting(backend: TransformersBackend, classifier: Path) -> None:
    with pytest.raises(ConfigError, match="JARVIS_DEVICE"):
        load_from(backend, classifier, device="cuda:99")
    with pytest.raises(ConfigError, match="JARVIS_DTYPE"):
        load_from(backend, classifier, dtype="int8")


def test_models_without_a_trained_head_or_of_another_kind_are_refused(
    backend: TransformersBackend, built: Callable[[str], Path]
) -> None:
    with pytest.raises(UnsupportedError, match=r"org/model is not trained for text-class.*classifier"):
        load_from(backend, built("bert_base"))
    candidate = Candidate(id="org/model", task="fill-mask", path=built("llama"), local=True)
    with pytest.raises(UnsupportedError, match="org/model is a llama model, which cannot do fill-mask"):
        backend.load(TASKS["fill-mask"], candidate, Settings(device="cpu"))


def test_the_weights_of_a_model_are_measured(backend: TransformersBackend, copied: Path) -> None:
    files = (copied / "model.safetensors").stat().st_size
    assert weight_bytes(load_from(backend, copied)) == pytest.approx(files, rel=0.25)


@pytest.mark.parametrize(
    ("task", "changes", "reason"),
    [
        ("text-to-image", {}, "transformers does not do text-to-image here"),
        ("text-classification", {"library": "diffusers"}, "it is made for diffusers"),
        ("text-classification", {"tags": ("custom_code",), "local": True}, "JARVIS_TRUST_REMOTE_CODE"),
        ("text-classification", {"size": 10**10}, r"the download of 10.0 GB exceeds.*JARVIS_MAX_DOWNLOAD"),
    ],
)
def test_what_cannot_be_loaded_has_a_reason(
    backend: TransformersBackend, task: str, changes: dict[str, Any], reason: str
) -> None:
    candidate = Candidate(id="org/model", task=task, **changes)
    told = backend.unsupported_reason(TASKS[task], candidate)
    assert told is not None
    assert re.search(reason, told)


def test_the_settings_decide_what_may_be_loaded(pool: ModelPool) -> None:
    candidate = Candidate(id="org/model", task=SPEC.name, library="transformers", size=10)
    for changes, settings, reason in (
        ({}, {"offline": False}, None),
        ({}, {"offline": True}, "JARVIS_OFFLINE"),
        ({"local": True}, {"offline": True}, None),
        ({"tags": ("custom_code",)}, {"offline": False, "trust_remote_code": True}, None),
    ):
        backend = TransformersBackend(pool, Settings(**settings))
        found = backend.unsupported_reason(SPEC, candidate.model_copy(update=changes))
        assert found is None if reason is None else reason in str(found)


def test_without_torch_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, backend: TransformersBackend
) -> None:
    monkeypatch.setattr("jarvis_agent.backends.local.find_spec", lambda name: None)
    spec = TASKS["text-classification"]
    candidate = Candidate(id="org/model", task=spec.name, local=True)
    assert 'pip install "langchain-hugginggpt[local]"' in str(backend.unsupported_reason(spec, candidate))
    with pytest.raises(ConfigError, match=r"langchain-hugginggpt\[local\]"):
        backend.load(spec, candidate, Settings())


def test_a_model_is_loaded_once_for_each_device_and_dtype(
    backend: TransformersBackend, classifier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = []
    load = backend.load
    monkeypatch.setattr(backend, "load", lambda *args: loads.append(1) or load(*args))
    candidate = Candidate(id="org/model", task=SPEC.name, path=classifier)
    for dtype in ("float32", "bfloat16", "float32"):
        asyncio.run(backend.run(call_of(candidate, dtype=dtype)))
    assert len(loads) == 2


def test_importing_the_backend_imports_none_of_what_it_runs() -> None:
    code = (
        "import sys, jarvis_agent.backends.transformers.backend, jarvis_agent.backends.outputs.adapters; "
        "sys.exit(bool({'torch', 'transformers', 'numpy', 'PIL', 'huggingface_hub'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_cancelled_generation_stops(pool: ModelPool, built: Callable[[str], Path]) -> None:
    candidate = Candidate(id="org/llama", task="text-generation", path=built("llama"))
    call = Call(TASKS["text-generation"], candidate, {"text": "a"}, Path, Settings(device="cpu"))
    expert = TransformersBackend(pool).load(call.spec, candidate, call.settings)
    began, steps, forward = threading.Event(), [], expert.loaded.model.forward

    def slow(**inputs: Any) -> Any:
        steps.append(1)
        began.set()
        threading.Event().wait(0.02)
        return forward(**inputs)

    expert.loaded.model.forward = slow

    async def cancel() -> None:
        running = asyncio.ensure_future(pool.run(("slow",), lambda: expert, call))
        await asyncio.to_thread(began.wait, 10)
        running.cancel()
        await pool.close()

    asyncio.run(cancel())
    assert len(steps) < 20


@pytest.fixture
def hub(classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubDouble]:
    """A Hub with the classifier, and an empty cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    with HubDouble() as hub, hub.redirected():
        useless = ("pytorch_model.bin", "onnx/model.onnx", "onnx/config.json", "model.fp16.safetensors")
        hub.add_model("org/model", directory=classifier, files=dict.fromkeys(useless, b"useless"))
        yield hub


def fetched_from(hub: HubDouble) -> set[str]:
    """The files that were downloaded."""
    return {request.path.split("/main/")[-1] for request in hub.requests if "/resolve/" in request.path}


ON_HUB = Candidate(id="org/model", task=SPEC.name, library="transformers")


def test_a_model_of_the_hub_is_downloaded_and_run(backend: TransformersBackend, hub: HubDouble) -> None:
    raw = asyncio.run(backend.run(call_of(ON_HUB, offline=False)))
    assert {row["label"] for row in raw} == {"first", "second", "third"}
    fetched = {Path(name).name for name in fetched_from(hub)}
    assert {"config.json", "tokenizer.json", "model.safetensors"} <= fetched
    assert not fetched & {"pytorch_model.bin", "model.onnx", "model.fp16.safetensors"}


def test_what_was_downloaded_is_there_without_the_hub(backend: TransformersBackend, hub: HubDouble) -> None:
    asyncio.run(backend.run(call_of(ON_HUB, offline=False)))
    before = len(hub.requests)
    cached = ON_HUB.model_copy(update={"local": True, "revision": "main"})
    assert asyncio.run(backend.run(call_of(cached, offline=True)))
    assert len(hub.requests) == before


def test_a_model_that_is_nowhere_is_refused_by_name(backend: TransformersBackend, hub: HubDouble) -> None:
    gone = ON_HUB.model_copy(update={"id": "org/gone"})
    with pytest.raises(UnsupportedError, match=r"the Hub refuses org/gone \(404\)"):
        asyncio.run(backend.run(call_of(gone, offline=False)))
    with pytest.raises(UnsupportedError, match=r"org/gone is not on this machine.*hf download org/gone"):
        asyncio.run(backend.run(call_of(gone.model_copy(update={"local": True}), offline=False)))
    with pytest.raises(UnsupportedError, match=r"org/gone cannot be loaded: .*JARVIS_OFFLINE"):
        asyncio.run(backend.run(call_of(gone, offline=True)))


def test_a_download_obeys_the_limit_though_the_size_was_unknown(
    backend: TransformersBackend, hub: HubDouble
) -> None:
    with pytest.raises(UnsupportedError, match=r"exceeds the limit of 0.0 GB \(JARVIS_MAX_DOWNLOAD\)"):
        asyncio.run(backend.run(call_of(ON_HUB, offline=False, max_download=1000)))
    assert fetched_from(hub) == {"config.json"}


def test_a_model_of_another_kind_is_not_downloaded(backend: TransformersBackend, hub: HubDouble) -> None:
    detector = ON_HUB.model_copy(update={"task": "object-detection"})
    with pytest.raises(UnsupportedError, match="is a bert model, which cannot do object-detection"):
        backend.load(TASKS["object-detection"], detector, Settings(device="cpu", offline=False))
    assert fetched_from(hub) == {"config.json"}


@pytest.mark.skipif(find_spec("timm") is not None, reason="timm is installed")
def test_a_model_that_lacks_a_package_is_not_downloaded(backend: TransformersBackend, hub: HubDouble) -> None:
    detector = ON_HUB.model_copy(update={"task": "object-detection"})
    config = {"model_type": "detr", "use_timm_backbone": True, "backbone": "resnet50"}
    hub.add_model("org/model", files={"config.json": json.dumps(config), "model.safetensors": b"weights"})
    with pytest.raises(UnsupportedError, match=r"needs a package that is not installed: .* timm library"):
        backend.load(TASKS["object-detection"], detector, Settings(device="cpu", offline=False))
    assert fetched_from(hub) == {"config.json"}


def test_a_repository_with_pickles_alone_is_refused_before_the_download(
    backend: TransformersBackend, hub: HubDouble, classifier: Path
) -> None:
    config = (classifier / "config.json").read_bytes()
    hub.add_model("org/model", files={"config.json": config, "pytorch_model.bin": b"pickle"})
    with pytest.raises(UnsupportedError, match=r"only as a pickle"):
        asyncio.run(backend.run(call_of(ON_HUB, offline=False)))
    hub.add_model("org/model", files={"config.json": config, "model.onnx": b"onnx"})
    with pytest.raises(UnsupportedError, match="has no weights that transformers reads"):
        asyncio.run(backend.run(call_of(ON_HUB, offline=False)))


def test_a_gated_model_says_what_to_do(
    backend: TransformersBackend, hub: HubDouble, classifier: Path
) -> None:
    hub.add_model("org/model", directory=classifier, gated="manual")
    with pytest.raises(UnsupportedError, match=r"org/model is gated: accept its terms on .*HF_TOKEN"):
        asyncio.run(backend.run(call_of(ON_HUB, offline=False, hf_token=None)))


@pytest.mark.parametrize(("status", "error"), [(503, TransientError), (429, RateLimitedError)])
def test_a_hub_in_trouble_is_worth_another_try(
    backend: TransformersBackend, hub: HubDouble, status: int, error: type[ExpertError], monkeypatch: Any
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    hub.answer("/api/models", status=status, body={"error": "busy"}, headers={"Retry-After": "7"})
    with pytest.raises(error, match="org/model could not be downloaded"):
        asyncio.run(backend.run(call_of(ON_HUB, offline=False)))


def test_no_network_is_worth_another_try(backend: TransformersBackend, monkeypatch: Any) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with HubDouble() as hub:
        closed = hub
    with closed.redirected(), pytest.raises(TransientError, match="org/model could not be downloaded"):
        asyncio.run(backend.run(call_of(ON_HUB, offline=False)))


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        (["model.safetensors", "pytorch_model.bin"], ["model.safetensors"]),
        (["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"], None),
        (["model.safetensors", "model-00001-of-00001.safetensors"], ["model.safetensors"]),
        (["model.safetensors", "config.json", "spiece.model", "README.md", "tf_model.h5"], [0, 1, 2]),
    ],
)
def test_one_copy_of_the_weights_is_chosen(files: list[str], chosen: list[Any] | None) -> None:
    from jarvis_agent.backends.hub.layouts import TRANSFORMERS

    wanted = files if chosen is None else [files[n] if isinstance(n, int) else n for n in chosen]
    assert set(TRANSFORMERS.choose("org/model", files, None, Settings())) == set(wanted)
