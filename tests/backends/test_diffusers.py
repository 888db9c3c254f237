"""The diffusers backend: what models make of a seed, a mask, options, a ControlNet, and what is refused."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.errors import ExpertError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Resource

pytest.importorskip("torch")
pytest.importorskip("diffusers")

import tiny_diffusers as tiny
import tiny_videos

from jarvis_agent.backends.diffusers import pipeline_call as calls
from jarvis_agent.backends.diffusers.backend import DiffusersBackend, DiffusersExpert
from jarvis_agent.backends.diffusers.loading import move_to_device
from jarvis_agent.backends.diffusers.pipelines import PIPELINES

PROMPT = "a red fox"
FEW = {"num_inference_steps": 2}

Built = Callable[[Callable[[Path], None]], Path]


@pytest.fixture
def photo(media: dict[str, Path]) -> Resource:
    return Resource(kind="image", path=media["photo"])


@pytest.fixture
def backend(pool: ModelPool) -> DiffusersBackend:
    return DiffusersBackend(pool, Settings(device="cpu", offline=True))


def model(task: str, path: Path, name: str = "org/model", **metadata: Any) -> Candidate:
    return Candidate(
        id=name,
        task=task,
        library="diffusers",
        path=path,
        local=True,
        metadata={"options": FEW, **metadata},
    )


def call_of(candidate: Candidate, inputs: dict[str, Any], **settings: Any) -> Call:
    used = Settings(**{"device": "cpu", "offline": True, **settings})
    return Call(TASKS[candidate.task], candidate, inputs, Path, used)


def load(backend: DiffusersBackend, candidate: Candidate, **settings: Any) -> DiffusersExpert:
    call = call_of(candidate, {}, **settings)
    expert = backend.load(call.spec, candidate, call.settings)
    assert isinstance(expert, DiffusersExpert)
    return expert


def pixels(image: Any) -> Any:
    import numpy as np

    return np.asarray(image).astype(int)


def test_every_task_of_the_table_is_a_task_type() -> None:
    assert PIPELINES.keys() <= TASKS.keys()


def test_the_same_seed_gives_the_same_image_and_another_seed_another(
    backend: DiffusersBackend, built: Built
) -> None:
    candidate = model("text-to-image", built(tiny.stable_diffusion))
    expert = load(backend, candidate)
    first, again, other = (
        pixels(expert(call_of(candidate, {"text": PROMPT}, seed=seed))) for seed in (1, 1, 2)
    )
    assert (first == again).all()
    assert (first != other).any()


def test_a_video_of_the_same_seed_is_the_same(backend: DiffusersBackend, built: Built) -> None:
    options = {**FEW, "num_frames": 5, "height": 32, "width": 32}
    candidate = model("text-to-video", built(tiny_videos.wan), options=options)
    expert = load(backend, candidate)
    first, again = (expert(call_of(candidate, {"text": PROMPT}, seed=3)) for _ in range(2))
    assert (pixels(first["frames"]) == pixels(again["frames"])).all()
    assert first["fps"] == 16


def test_a_cancelled_call_stops_between_two_steps(
    pool: ModelPool, backend: DiffusersBackend, built: Built, caplog: pytest.LogCaptureFixture
) -> None:
    candidate = model("text-to-image", built(tiny.stable_diffusion), options={"num_inference_steps": 900})
    begun = threading.Event()

    class Watch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            begun.set()

    async def cancel() -> None:
        task = asyncio.create_task(backend.run(call_of(candidate, {"text": PROMPT})))
        await asyncio.to_thread(begun.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await pool.close()  # waits for the worker thread, which must not go on for 900 steps

    caplog.set_level(logging.DEBUG, calls.__name__)
    calls.logger.addHandler(watch := Watch())
    try:
        asyncio.run(cancel())
    finally:
        calls.logger.removeHandler(watch)
    steps = [record for record in caplog.records if record.name == calls.__name__]
    assert 1 <= len(steps) < 900


@pytest.mark.parametrize("build", [tiny.ddpm, tiny.shap_e], ids=lambda build: build.__name__)
def test_a_pipeline_without_callbacks_stops_as_well(
    backend: DiffusersBackend, built: Built, build: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = {"ddpm": "unconditional-image-generation", "shap_e": "text-to-3d"}[build.__name__]
    candidate = model(task, built(build))
    expert = load(backend, candidate)
    asked = iter([False, False, True])
    monkeypatch.setattr(calls, "is_cancelled", lambda: next(asked))
    with pytest.raises(ExpertError, match="org/model was stopped"):
        expert(call_of(candidate, {"text": PROMPT}))


@pytest.mark.parametrize(
    ("task", "build", "name"),
    [
        ("text-to-image", tiny.ddpm, "DDPMPipeline"),
        ("text-to-image", tiny.controlnet, "StableDiffusionControlNetPipeline"),
        ("text-to-image", tiny_videos.wan, "WanPipeline"),
        ("text-to-video", tiny.stable_diffusion, "StableDiffusionPipeline"),
        ("image-to-image", tiny.ddpm, "DDPMPipeline"),
        ("image-to-3d", tiny.shap_e, "ShapEPipeline"),
        ("canny-text-to-image", tiny.stable_diffusion, "StableDiffusionPipeline"),
        ("unconditional-image-generation", tiny.control_part, "ControlNetModel"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_model_of_another_family_is_refused_by_its_class(
    backend: DiffusersBackend, built: Built, task: str, build: Callable[[Path], None], name: str
) -> None:
    with pytest.raises(UnsupportedError, match=f"org/model is a {name}, which cannot do {task}"):
        load(backend, model(task, built(build)))


def test_a_folder_that_names_no_class_is_refused(backend: DiffusersBackend, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(UnsupportedError, match=r"is not a diffusers model: no model_index.json"):
        load(backend, model("text-to-image", tmp_path))


def test_a_class_that_this_diffusers_lacks_is_named(backend: DiffusersBackend, built: Built) -> None:
    from diffusers import __version__

    copy = built(tiny.ddpm).parent / "unknown"
    shutil.copytree(built(tiny.ddpm), copy)
    index = json.loads((copy / "model_index.json").read_text())
    (copy / "model_index.json").write_text(json.dumps({**index, "_class_name": "AmusedPipeline"}))
    with pytest.raises(UnsupportedError, match="cannot be loaded for text-to-image"):
        load(backend, model("text-to-image", copy))
    (copy / "model_index.json").write_text(json.dumps({**index, "_class_name": "NewestInpaintPipeline"}))
    with pytest.raises(UnsupportedError, match=f"NewestInpaintPipeline, which diffusers {__version__}"):
        load(backend, model("image-to-image", copy))


def test_weights_that_are_a_pickle_are_refused_unless_allowed(
    backend: DiffusersBackend, built: Built, tmp_path: Path
) -> None:
    import torch
    from safetensors.torch import load_file

    copy = tmp_path / "copy"
    shutil.copytree(built(tiny.ddpm), copy)
    safe = copy / "unet" / "diffusion_pytorch_model.safetensors"
    torch.save(load_file(safe), safe.with_suffix(".bin"))
    safe.unlink()
    candidate = model("unconditional-image-generation", copy)
    with pytest.raises(UnsupportedError, match=r"only as a pickle.*JARVIS_ALLOW_PICKLE"):
        load(backend, candidate)
    assert load(backend, candidate, allow_pickle=True).nbytes > 0


def test_weights_in_half_precision_alone_are_found(
    backend: DiffusersBackend, built: Built, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(built(tiny.ddpm), copy)
    plain = copy / "unet" / "diffusion_pytorch_model.safetensors"
    plain.rename(plain.with_name("diffusion_pytorch_model.fp16.safetensors"))
    expert = load(backend, model("unconditional-image-generation", copy))
    assert str(expert.loaded.pipe.unet.dtype) == "torch.float32"


def test_an_early_pipeline_with_its_files_at_the_top_is_loaded(
    backend: DiffusersBackend, built: Built, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(built(tiny.ddpm), copy)
    for file in [*(copy / "unet").iterdir(), *(copy / "scheduler").iterdir()]:
        file.rename(copy / file.name)
    for part in ("unet", "scheduler"):
        (copy / part).rmdir()
    candidate = model("unconditional-image-generation", copy)
    assert load(backend, candidate)(call_of(candidate, {})).size == (16, 16)


def test_an_option_that_the_pipeline_lacks_is_named_with_those_that_it_has(
    backend: DiffusersBackend, built: Built
) -> None:
    candidate = model("text-to-image", built(tiny.stable_diffusion), options={"stesp": 2})
    expert = load(backend, candidate)
    with pytest.raises(UnsupportedError, match=r"no option 'stesp'.*takes prompt.*num_inference_steps"):
        expert(call_of(candidate, {"text": PROMPT}))


def test_what_is_black_in_the_mask_stays(
    backend: DiffusersBackend, built: Built, photo: Resource, tmp_path: Path
) -> None:
    from PIL import Image

    for name, left in (("half", 32), ("none", 64)):
        mask = Image.new("L", (64, 48))
        mask.paste(255, (left, 0, 64, 48))
        mask.save(tmp_path / f"{name}.png")
    candidate = model("image-to-image", built(tiny.stable_diffusion), options={"num_inference_steps": 4})
    expert = load(backend, candidate)

    def made(name: str) -> Any:
        mask = Resource(kind="image", path=tmp_path / f"{name}.png")
        return pixels(expert(call_of(candidate, {"image": photo, "text": PROMPT, "mask": mask})))

    changed = abs(made("half") - made("none"))
    assert changed[:, :24].mean() < changed[:, 40:].mean()


def test_a_model_that_only_fills_asks_for_a_mask(
    backend: DiffusersBackend, built: Built, photo: Resource
) -> None:
    candidate = model("image-to-image", built(tiny.inpainting))
    with pytest.raises(UnsupportedError, match="only fills masked parts"):
        load(backend, candidate)(call_of(candidate, {"image": photo, "text": PROMPT}))


def test_a_model_that_can_not_keep_to_a_mask_says_so(
    backend: DiffusersBackend, built: Built, photo: Resource
) -> None:
    candidate = model("image-to-image", built(tiny.instruct_pix2pix))
    with pytest.raises(UnsupportedError, match=r"InstructPix2PixPipeline.*cannot use a mask"):
        load(backend, candidate)(call_of(candidate, {"image": photo, "text": PROMPT, "mask": photo}))


def test_a_controlnet_is_put_into_its_base_model(
    backend: DiffusersBackend, built: Built, photo: Resource
) -> None:
    base = str(built(tiny.stable_diffusion))
    candidate = model("canny-text-to-image", built(tiny.control_part), base_model=base)
    expert = load(backend, candidate)
    assert type(expert.loaded.pipe).__name__ == "StableDiffusionControlNetPipeline"
    assert expert(call_of(candidate, {"image": photo, "text": PROMPT})).size == (64, 48)


def test_a_motion_adapter_is_put_into_its_base_model(backend: DiffusersBackend, built: Built) -> None:
    options = {**FEW, "num_frames": 3, "height": 32, "width": 32}
    base = [str(built(tiny.stable_diffusion))]
    candidate = model("text-to-video", built(tiny_videos.motion_adapter), base_model=base, options=options)
    made = load(backend, candidate)(call_of(candidate, {"text": PROMPT}))
    assert len(made["frames"]) == 3


def test_a_part_whose_base_is_not_known_asks_for_it(backend: DiffusersBackend, built: Built) -> None:
    with pytest.raises(UnsupportedError, match=r"part of a model; say of which.*base_model"):
        load(backend, model("canny-text-to-image", built(tiny.control_part)))


def test_a_base_that_is_not_here_is_named(backend: DiffusersBackend, built: Built) -> None:
    candidate = model("canny-text-to-image", built(tiny.control_part), base_model="org/base")
    with pytest.raises(UnsupportedError, match="org/base is not on this machine"):
        load(backend, candidate)


def test_the_tasks_of_a_controlnet_share_one_pipeline(backend: DiffusersBackend) -> None:
    candidate = Candidate(id="org/model", task="canny-text-to-image")
    keys = {backend.key(TASKS[task], candidate) for task in ("canny-text-to-image", "hed-text-to-image")}
    assert len(keys) == 1
    assert keys.isdisjoint({backend.key(TASKS["text-to-image"], candidate)})


def test_a_flagged_image_is_an_error(
    backend: DiffusersBackend, built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidate = model("text-to-image", built(tiny.stable_diffusion))
    expert = load(backend, candidate)
    flagged = SimpleNamespace(images=["black"], nsfw_content_detected=[True])

    class Pipeline:
        def __call__(self, prompt: str, num_inference_steps: int) -> Any:
            return flagged

    fake = DiffusersExpert(expert.pipeline, type(expert.loaded)("org/model", Pipeline()), 0)
    with pytest.raises(ExpertError, match=r"safety checker.*JARVIS_SEED"):
        fake(call_of(candidate, {"text": PROMPT}))


def test_a_distilled_model_is_asked_for_few_steps(
    backend: DiffusersBackend, built: Built, caplog: pytest.LogCaptureFixture
) -> None:
    candidate = model("text-to-image", built(tiny.stable_diffusion), "org/sd-turbo", options={})
    expert = load(backend, candidate)
    with caplog.at_level(logging.DEBUG, calls.__name__):
        expert(call_of(candidate, {"text": PROMPT}))
    assert [record.getMessage() for record in caplog.records if record.name == calls.__name__] == [
        "org/sd-turbo: step 1 of 2",
        "org/sd-turbo: step 2 of 2",
    ]


def test_a_large_image_is_made_smaller_for_the_model(
    backend: DiffusersBackend, built: Built, tmp_path: Path
) -> None:
    from PIL import Image

    Image.new("RGB", (400, 300), "red").save(tmp_path / "large.png")
    candidate = model("image-to-image", built(tiny.stable_diffusion), options={"num_inference_steps": 4})
    large = Resource(kind="image", path=tmp_path / "large.png")
    made = load(backend, candidate)(call_of(candidate, {"image": large}))
    assert made.size == (72, 56)


def test_a_changed_video_is_as_long_as_it_was(
    backend: DiffusersBackend, built: Built, media: dict[str, Path]
) -> None:
    options = {"num_inference_steps": 3, "height": 32, "width": 32}
    candidate = model("video-to-video", built(tiny_videos.animatediff), options=options)
    made = load(backend, candidate)(
        call_of(candidate, {"video": Resource(kind="video", path=media["clip"]), "text": PROMPT})
    )
    assert len(made["frames"]) == 9
    assert len(made["frames"]) / made["fps"] == pytest.approx(2.0, rel=0.1)


def test_a_model_that_makes_videos_changes_them_too(
    backend: DiffusersBackend, built: Built, media: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from diffusers.pipelines.wan import pipeline_wan_video2video

    options = {"num_inference_steps": 3, "height": 32, "width": 32}
    candidate = model("video-to-video", built(tiny_videos.wan), options=options)
    call = call_of(candidate, {"video": Resource(kind="video", path=media["clip"]), "text": PROMPT})
    expert = load(backend, candidate)
    monkeypatch.delattr(pipeline_wan_video2video, "ftfy", raising=False)
    with pytest.raises(UnsupportedError, match="needs the package ftfy, which is not installed"):
        expert(call)
    monkeypatch.setattr(
        pipeline_wan_video2video, "ftfy", SimpleNamespace(fix_text=lambda text: text), raising=False
    )
    assert len(expert(call)["frames"]) == 9


def test_a_gpu_without_room_takes_the_parts_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    placed: list[str] = []
    pipe = SimpleNamespace(
        components={"unet": torch.nn.Linear(100, 100)},
        to=lambda device: placed.append("whole"),
        enable_model_cpu_offload=lambda device: placed.append("by parts"),
    )
    gpu = torch.device("cuda:0")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1_000_000, 1_000_000))
    move_to_device(pipe, gpu, Settings())
    move_to_device(pipe, gpu, Settings(gpu_memory_budget=1_000))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10_000, 1_000_000))
    move_to_device(pipe, gpu, Settings())
    assert placed == ["whole", "by parts", "by parts"]


def test_a_model_of_another_library_is_left_alone(backend: DiffusersBackend) -> None:
    candidate = Candidate(id="org/model", task="text-to-image", library="transformers", local=True)
    assert backend.unsupported_reason(TASKS["text-to-image"], candidate) == (
        "it is made for transformers, not for diffusers"
    )
    other = Candidate(id="org/model", task="translation", library="diffusers", local=True)
    assert "does not do translation here" in str(backend.unsupported_reason(TASKS["translation"], other))


def test_without_diffusers_the_extra_is_named(
    backend: DiffusersBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jarvis_agent.backends.local.find_spec", lambda name: None)
    candidate = Candidate(id="org/model", task="text-to-image", library="diffusers", local=True)
    assert 'needs the extra "local"' in str(backend.unsupported_reason(TASKS["text-to-image"], candidate))
