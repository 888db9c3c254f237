"""The diffusers backend: seeds, masks, options, ControlNets, cancellation, and refused models."""

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from libraries import needs
from model_bench import Bench
from PIL import Image

from jarvis_agent.backends import diffusers as backend
from jarvis_agent.core.errors import ExpertError, UnsupportedError
from jarvis_agent.core.settings import Settings

np = pytest.importorskip("numpy")
torch = needs("torch")
diffusers = needs("diffusers")

pytestmark = pytest.mark.slow

BACKEND = backend.DiffusersBackend
PROMPT = "a red fox"
UNCONDITIONAL = "unconditional-image-generation"
UNET = "unet/diffusion_pytorch_model.safetensors"


def options(steps: int = 1, **more: Any) -> dict[str, Any]:
    """Metadata of a candidate with options of the pipeline."""
    return {"options": {"num_inference_steps": steps, **more}}


def test_the_same_seed_gives_the_same_result_and_another_seed_another(bench: Bench) -> None:
    def pixels(seed: int) -> Any:
        return np.asarray(
            bench.ask("text-to-image", "stable_diffusion", options(), text=PROMPT, settings={"seed": seed})
        )

    assert (pixels(1) == pixels(1)).all()
    assert (pixels(1) != pixels(2)).any()


def test_it_is_told_that_a_prompt_is_longer_than_what_the_model_reads(bench: Bench) -> None:
    for text, notes in (
        (PROMPT, []),
        (PROMPT * 9, ["only the first 16 tokens of a text were read; longer: 1"]),
    ):
        call = bench.call("text-to-image", "stable_diffusion", options(), text=text)
        bench.load(call)(call)
        assert call.notes == notes


def test_the_tokenizer_of_a_pipeline_may_be_in_a_processor(bench: Bench) -> None:
    class Pipeline:
        components = MappingProxyType[str, Any]({})

        def __call__(self, prompt: str, num_inference_steps: int) -> Any:
            return SimpleNamespace(images=[Image.new("RGB", (8, 8), "white")])

    call = bench.call("text-to-image", "stable_diffusion", options(), text=PROMPT * 9)
    expert = bench.load(call)
    processors = {"tokenizer": SimpleNamespace(tokenizer=expert.loaded.tokenizer), "tokenizer_2": object()}
    Pipeline.components = MappingProxyType(processors)
    replace(expert, loaded=Pipeline())(call)
    assert call.notes == ["only the first 16 tokens of a text were read; longer: 1"]


def test_a_cancelled_call_stops_between_two_steps(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    text = {"text": PROMPT}
    for task, model, given in (("text-to-image", "stable_diffusion", text), (UNCONDITIONAL, "ddpm", {})):
        call = bench.call(task, model, options(900), **given)
        expert = bench.load(call)
        answers = iter([False, False, True])
        monkeypatch.setattr(backend, "is_cancelled", lambda answers=answers: next(answers))
        with pytest.raises(ExpertError, match="org/model was stopped"):
            expert(call)
        assert not [*answers]


def test_a_folder_without_a_known_class_is_refused(bench: Bench, copied: Callable[[str], Path]) -> None:
    folder = copied("ddpm")
    index = json.loads((folder / "model_index.json").read_text())
    newest = f"NewestInpaintPipeline, which diffusers {version('diffusers')}"
    for task, name, error in (
        ("text-to-image", "AmusedPipeline", "cannot be loaded for text-to-image"),
        ("image-to-image", "NewestInpaintPipeline", newest),
        ("text-to-image", None, "is not a diffusers model: no model_index.json"),
    ):
        (folder / "model_index.json").write_text(json.dumps({**index, "_class_name": name}))
        with pytest.raises(UnsupportedError, match=error):
            bench.load(bench.call(task, folder))


def test_weights_in_half_precision_and_files_at_the_top_are_loaded(
    bench: Bench, copied: Callable[[str], Path]
) -> None:
    folder = copied("ddpm")
    half = folder / UNET.replace(".safetensors", ".fp16.safetensors")
    (folder / UNET).rename(half)
    expert = bench.load(bench.call(UNCONDITIONAL, folder))
    assert str(expert.loaded.unet.dtype) == "torch.float32"
    half.rename(folder / UNET)
    for part in ("unet", "scheduler"):
        for file in (folder / part).iterdir():
            file.rename(folder / file.name)
        (folder / part).rmdir()
    assert bench.ask(UNCONDITIONAL, folder, options(), name="org/early").size == (16, 16)


def test_an_unknown_option_is_refused_with_those_that_exist(bench: Bench) -> None:
    with pytest.raises(UnsupportedError, match=r"no option 'stesp'.*takes prompt.*num_inference_steps"):
        bench.ask("text-to-image", "stable_diffusion", {"options": {"stesp": 2}}, text=PROMPT)


def test_what_is_black_in_the_mask_stays(bench: Bench, tmp_path: Path) -> None:
    def made(left: int) -> Any:
        mask = Image.new("L", (64, 48))
        mask.paste(255, (left, 0, 64, 48))
        mask.save(tmp_path / f"{left}.png")
        given = {"image": "photo", "text": PROMPT, "mask": tmp_path / f"{left}.png"}
        return np.asarray(bench.ask("image-to-image", "stable_diffusion", options(4), **given)).astype(int)

    changed = abs(made(32) - made(64))
    assert changed[:, :24].mean() < changed[:, 40:].mean()


def test_masks_must_fit_the_model(bench: Bench) -> None:
    given = {"image": "photo", "text": PROMPT}
    with pytest.raises(UnsupportedError, match="only fills masked parts"):
        bench.ask("image-to-image", "inpainting", options(), **given)
    with pytest.raises(UnsupportedError, match=r"InstructPix2PixPipeline.*cannot use a mask"):
        bench.ask("image-to-image", "instruct_pix2pix", options(), mask="photo", **given)


def test_a_part_is_put_into_its_base_model(bench: Bench) -> None:
    base = str(bench.built("stable_diffusion"))
    controlled = {**options(), "base_model": Path(base)}
    call = bench.call("canny-text-to-image", "control_part", controlled, image="photo", text=PROMPT)
    assert type(bench.load(call).loaded).__name__ == "StableDiffusionControlNetPipeline"
    assert bench.load(call)(call).size == (64, 48)
    moving = {**options(num_frames=3, height=32, width=32), "base_model": [base]}
    made = bench.ask("text-to-video", "motion_adapter", moving, text=PROMPT)
    assert len(made["frames"]) == 3
    for metadata, error in (
        ({}, r"part of a model; say of which.*base_model"),
        ({"base_model": "org/base"}, "org/base is not on this machine"),
    ):
        with pytest.raises(UnsupportedError, match=error):
            bench.load(bench.call("canny-text-to-image", "control_part", metadata))


def test_a_flagged_image_is_an_error(bench: Bench) -> None:
    class Pipeline:
        components = MappingProxyType[str, Any]({})

        def __call__(self, prompt: str, num_inference_steps: int) -> Any:
            return SimpleNamespace(images=["black"], nsfw_content_detected=[True])

    call = bench.call("text-to-image", "stable_diffusion", options(), text=PROMPT)
    expert = bench.load(call)
    with pytest.raises(ExpertError, match=r"safety checker.*JARVIS_SEED"):
        replace(expert, loaded=Pipeline())(call)


def test_a_distilled_model_does_few_steps(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, backend.__name__):
        bench.ask("text-to-image", "stable_diffusion", name="org/sd-turbo", text=PROMPT)
    messages = [record.getMessage() for record in caplog.records if record.name == backend.__name__]
    assert messages == ["org/sd-turbo: step 1 of 2", "org/sd-turbo: step 2 of 2"]


def test_a_large_image_is_made_smaller_for_the_model(bench: Bench, tmp_path: Path) -> None:
    large = tmp_path / "large.png"
    Image.new("RGB", (400, 300), "red").save(large)
    assert bench.ask("image-to-image", "stable_diffusion", options(2), image=large).size == (72, 56)


def test_a_package_that_a_pipeline_needs_is_named_and_a_video_keeps_its_length(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from diffusers.pipelines.wan import pipeline_wan_video2video as wan

    small = options(2, height=32, width=32)
    monkeypatch.delattr(wan, "ftfy", raising=False)
    with pytest.raises(UnsupportedError, match="needs the package ftfy, which is not installed"):
        bench.ask("video-to-video", "wan", small, video="clip", text=PROMPT)
    monkeypatch.setattr(wan, "ftfy", SimpleNamespace(fix_text=lambda text: text), raising=False)
    made = bench.ask("video-to-video", "wan", small, video="clip", text=PROMPT)
    assert len(made["frames"]) == 9
    assert len(made["frames"]) / made["fps"] == pytest.approx(2.0, rel=0.1)


def test_a_gpu_without_room_takes_the_parts_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    placed: list[str] = []
    pipe = SimpleNamespace(
        components={"unet": torch.nn.Linear(100, 100)},
        to=lambda device: placed.append("whole"),
        enable_model_cpu_offload=lambda device: placed.append("by parts"),
    )
    for free, budget in ((1_000_000, None), (1_000_000, 1_000), (10_000, None)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free, 1_000_000))
        backend.move_to_device(pipe, torch.device("cuda:0"), Settings(memory_budget=budget))
    assert placed == ["whole", "by parts", "by parts"]
