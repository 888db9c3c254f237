"""Backends that load model files: what they refuse, download, share, and say when something is missing."""

import asyncio
import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Any, ClassVar

import pytest
from libraries import needs
from model_bench import Bench, as_pickle, fetched

from jarvis_agent.backends import local
from jarvis_agent.backends.base import Call
from jarvis_agent.backends.devices import weight_bytes
from jarvis_agent.backends.diffusers import DiffusersBackend
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.backends.sentence_transformers import SentenceTransformersBackend
from jarvis_agent.backends.transformers.backend import TransformersBackend
from jarvis_agent.core.errors import (
    ConfigError,
    MissingExtraError,
    RateLimitedError,
    TransientError,
    UnsupportedError,
    install_command,
)
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate, Resource
from jarvis_agent.testing import HubDouble

needs("torch")
needs("diffusers")
needs("sentence_transformers")

pytestmark = pytest.mark.slow

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


def test_a_model_of_another_kind_is_refused(benches: dict[str, Bench]) -> None:
    for backend, task, model, error in (
        ("transformers", TEXT_TASK, "bert_base", r"org/model is not trained for text-class.*classifier"),
        ("transformers", "fill-mask", "llama", "org/model is a llama model, which cannot do fill-mask"),
        ("diffusers", "text-to-image", "ddpm", "org/model is a DDPMPipeline, which cannot do text-to-image"),
        ("diffusers", "text-to-video", "stable_diffusion", "is a StableDiffusionPipeline"),
        ("diffusers", UNCONDITIONAL, "control_part", "is a ControlNetModel"),
        ("sentence-transformers", "text-ranking", "bert_nli", "sorts pairs of texts into 3 classes"),
    ):
        with pytest.raises(UnsupportedError, match=error):
            benches[backend].load(benches[backend].call(task, model))


def test_a_model_that_lacks_weights_is_refused(benches: dict[str, Bench], copied: Copied) -> None:
    from safetensors.torch import load_file, save_file

    file, bench = copied("clip") / "model.safetensors", benches["transformers"]
    weights = load_file(file)
    del weights["text_projection.weight"]
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(UnsupportedError, match=r"lacks the weights text_projection\.weight"):
        bench.load(bench.call("zero-shot-image-classification", file.parent))


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


def test_a_missing_device_is_a_wrong_setting(benches: dict[str, Bench]) -> None:
    bench = benches["transformers"]
    with pytest.raises(ConfigError, match="JARVIS_DEVICE"):
        bench.load(bench.call(TEXT_TASK, "bert_classifier", settings={"device": "cuda:99"}))


def test_what_can_be_run_is_known_before_loading(pool: ModelPool, subtests: pytest.Subtests) -> None:
    here, coded, sentences = {"local": True}, {"tags": ("custom_code",)}, "sentence-transformers"
    trusting = Settings(offline=False, trust_remote_code=True)
    cases: list[tuple[str, str, dict[str, Any], Settings, str]] = [
        ("transformers", "text-to-image", {}, ONLINE, "transformers does not do text-to-image here"),
        ("transformers", TEXT_TASK, {"library": "diffusers"}, ONLINE, "it is made for diffusers, not for"),
        ("transformers", TEXT_TASK, here | coded, ONLINE, "JARVIS_TRUST_REMOTE_CODE"),
        ("transformers", TEXT_TASK, coded, trusting, ""),
        ("transformers", TEXT_TASK, {"size": 10**10}, ONLINE, r"of 10.0 GB exceeds.*JARVIS_MAX_DOWNLOAD"),
        ("transformers", TEXT_TASK, {"size": 10}, OFFLINE, "JARVIS_OFFLINE"),
        ("transformers", TEXT_TASK, here, OFFLINE, ""),
        (sentences, "sentence-similarity", {"library": "transformers"}, ONLINE, ""),
        (sentences, "text-ranking", {"library": "gguf"}, ONLINE, "it is made for gguf, not for"),
        (sentences, "feature-extraction", {"library": "transformers"}, ONLINE, ""),
    ]
    for backend, task, changes, settings, reason in cases:
        with subtests.test(f"{backend} {task} {changes}"):
            candidate = Candidate(**{"id": "org/model", "task": task, "library": backend, **changes})
            found = KINDS[backend](settings, pool).unsupported_reason(TASKS[task], candidate)
            assert re.search(reason, found) if reason else found is None


def test_a_backend_names_the_extra_of_its_library(pool: ModelPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "find_spec", lambda name: None)
    tasks = (TEXT_TASK, UNCONDITIONAL, "text-ranking")
    for kind, task in zip(KINDS.values(), tasks, strict=True):
        candidate = Candidate(id="org/model", task=task, library=kind.name, local=True)
        reason = kind(OFFLINE, pool).unsupported_reason(TASKS[task], candidate)
        assert install_command("local") in str(reason)
        with pytest.raises(MissingExtraError, match=re.escape(install_command("local"))):
            kind(OFFLINE, pool).load(TASKS[task], candidate, OFFLINE)


def test_threads_that_import_a_library_at_once_all_get_it(
    pool: ModelPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
        import sys, time, types
        time.sleep(0.3)
        sys.modules[__name__] = types.SimpleNamespace(Model="loaded", __spec__=__spec__)  # like transformers
    """
    (tmp_path / "lazy_library.py").write_text(dedent(code))
    monkeypatch.syspath_prepend(tmp_path)

    class Backend(TransformersBackend):
        needs: ClassVar[Any] = ("lazy_library",)

        def load_files(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Any:
            from lazy_library import Model  # type: ignore[import-not-found]

            return Model

    load = partial(Backend(OFFLINE, pool).load, TASKS[TEXT_TASK], Candidate(id="org/model", task=TEXT_TASK))
    with ThreadPoolExecutor(8) as threads:
        loaded: list[Any] = [*threads.map(load, [OFFLINE] * 8)]
    assert loaded == ["loaded"] * 8


def test_a_model_is_measured_and_loaded_once_for_each_folder(
    benches: dict[str, Bench], pool: ModelPool, copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[Any] = []
    backend, bench = TransformersBackend(OFFLINE, pool), benches["transformers"]
    load = backend.load
    monkeypatch.setattr(backend, "load", lambda *args: loads.append(load(*args)) or loads[-1])
    here, other = bench.built("bert_classifier"), copied("bert_classifier")
    for folder in (here, here, other):
        asyncio.run(backend.run(bench.call(TEXT_TASK, folder, text="a")))
    size = pytest.approx((here / "model.safetensors").stat().st_size, rel=0.25)
    assert [weight_bytes(*expert.modules) for expert in loads] == [size, size]


def test_tasks_of_one_kind_share_a_loaded_model(pool: ModelPool) -> None:
    for kind, shared, other in (
        (DiffusersBackend, ("canny-text-to-image", "hed-text-to-image"), "text-to-image"),
        (TransformersBackend, ("depth-control", "depth-estimation", "normal-control"), "image-to-text"),
        (SentenceTransformersBackend, ("feature-extraction", "text-ranking", "sentence-similarity"), None),
    ):
        candidate = Candidate(id="org/model", task=shared[0])
        keys = {kind(OFFLINE, pool).key(TASKS[task], candidate) for task in shared}
        assert len(keys) == 1
        assert other is None or kind(OFFLINE, pool).key(TASKS[other], candidate) not in keys


# Models of the Hub

ON_HUB = Candidate(id="org/model", task=TEXT_TASK, library="transformers")


def run_from_hub(
    pool: ModelPool, candidate: Candidate = ON_HUB, settings: Settings = ONLINE, **inputs: Any
) -> Any:
    kind = KINDS[candidate.library or "transformers"]
    call = Call(TASKS[candidate.task], candidate, inputs or {"text": "Ada"}, Path, settings)
    return asyncio.run(kind(settings, pool).run(call))


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
    assert {"config.json", "model_index.json", UNET} <= fetched(hub)
    assert fetched(hub).isdisjoint(useless)


def test_what_cannot_be_loaded_is_refused_before_its_weights_are_downloaded(
    pool: ModelPool, hub: HubDouble, built: Callable[[str], Path], subtests: pytest.Subtests
) -> None:
    classifier, painter = built("bert_classifier"), built("stable_diffusion")
    config = (classifier / "config.json").read_bytes()
    small = Settings(device="cpu", offline=False, max_download=1000)
    detector = {"task": "object-detection"}
    paints = {"task": "text-to-image", "library": "diffusers"}
    films = {**paints, "task": "text-to-video"}
    cases: list[tuple[dict[str, Any], dict[str, Any], Settings, str]] = [
        ({"directory": classifier}, detector, ONLINE, "is a bert model, which cannot do object-det"),
        ({"directory": classifier}, {}, small, r"the limit of 0.0 GB\. What helps: JARVIS_MAX_DOWNLOAD sets"),
        ({"files": {"config.json": config, "pytorch_model.bin": b"-"}}, {}, ONLINE, "only as a pickle"),
        ({"files": {"config.json": config, "a.onnx": b"-"}}, {}, ONLINE, "no weights that transformers"),
        ({"directory": classifier, "gated": "manual"}, {}, ONLINE, r"is gated: accept its.*HF_TOKEN"),
        ({"files": {"lora.safetensors": b"-"}}, paints, ONLINE, "diffusers cannot load .* no model_i"),
        ({"directory": painter}, films, ONLINE, "is a StableDiffusionPipeline, which cannot do text-to-vi"),
    ]
    if find_spec("timm") is None:
        detr = json.dumps({"model_type": "detr", "use_timm_backbone": True, "backbone": "resnet50"})
        files = {"config.json": detr, "model.safetensors": b"weights"}
        cases.append(({"files": files}, detector, ONLINE, r"package that is not installed: .* timm"))
    for number, (made, changes, settings, error) in enumerate(cases):
        with subtests.test(error):
            hub.add_model(f"org/model{number}", **made)
            hub.requests.clear()
            candidate = ON_HUB.model_copy(update={"id": f"org/model{number}", **changes})
            with pytest.raises(UnsupportedError, match=error):
                run_from_hub(pool, candidate, settings)
            assert fetched(hub) <= {"config.json", "model_index.json"}


def test_temporary_errors_of_the_hub_are_transient(
    pool: ModelPool, hub: HubDouble, built: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    hub.add_model("org/model", directory=built("bert_classifier"))
    for status, error in ((503, TransientError), (429, RateLimitedError)):
        hub.answer("/api/models", status=status, body={"error": "busy"}, headers={"Retry-After": "7"})
        with pytest.raises(error, match="org/model could not be downloaded"):
            run_from_hub(pool)
    with HubDouble() as stopped:
        pass
    with stopped.redirected(), pytest.raises(TransientError, match="org/model could not be downloaded"):
        run_from_hub(pool)
