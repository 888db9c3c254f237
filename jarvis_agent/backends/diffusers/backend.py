"""Run models of the Hub with diffusers: images, videos, sounds and shapes from texts and images.

    PIPELINES["image-to-video"]      # Stable Video Diffusion, LTX, Wan, …

`PIPELINES` has for each task the pipelines to choose from by the model's class. A new family of pipelines is
a name in a pattern; a new task is a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.diffusers import generate as generate
from jarvis_agent.backends.diffusers.generate import DiffusionPipelineSpec as Spec
from jarvis_agent.backends.diffusers.generate import LoadedPipeline, base_model, class_name, load_pipeline
from jarvis_agent.backends.hub.snapshot import DIFFUSERS, marker_folder, model_folder
from jarvis_agent.backends.local import FileBackend
from jarvis_agent.backends.transformers.loading import silence_library
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate

_IMAGE_TO_IMAGE = (
    Spec(
        r"StableDiffusion(XL)?InstructPix2PixPipeline|(Flux\w*Kontext|QwenImageEdit(Plus)?|Flux2(Klein)?)Pipeline"
        r"|(LongCatImageEdit|JoyImageEdit|BriaFiboEdit|StableDiffusionDepth2Img)Pipeline"
        r"|(StableDiffusion(Latent)?Upscale|LDMSuperResolution)Pipeline"
        r"|(StableDiffusionImageVariation|StableUnCLIPImg2Img|UnCLIPImageVariation)Pipeline",
        generate.image_to_image,
    ),
    Spec(r"(?!.*(Control|Audio|Animate|Kandinsky|SuperRes))\w+Inpaint\w*Pipeline", generate.inpaint),
    Spec(r"(?!.*Control)\w+", generate.image_to_image, loads="AutoPipelineForImage2Image"),
)

_IMAGE_TO_VIDEO = (
    Spec(r"(StableVideoDiffusion|I2VGenXL|PIA)Pipeline", generate.image_to_video),
    Spec(r"LTX(ImageToVideo)?Pipeline", generate.image_to_video, loads="LTXImageToVideoPipeline"),
    Spec(
        r"(Wan|LTX2|CogVideoX|SkyReelsV2|HunyuanVideo(15)?|Sana)ImageToVideoPipeline"
        r"|(HunyuanSkyreelsImageToVideo|Kandinsky5I2V|HunyuanVideoFramepack|MotifVideoImage2Video)Pipeline",
        generate.image_to_video,
    ),
)

_CONTROLLED = (
    Spec(
        r"(SD3|Flux|HunyuanDiT2D|QwenImage)?ControlNetModel",
        generate.controlled_image,
        loads="AutoPipelineForText2Image",
        part="controlnet",
    ),
    Spec(
        r"(?!.*(Img2Img|Inpaint|Union|Video|Animate|Blip|XS))\w*Control(Net)?(PAG)?Pipeline",
        generate.controlled_image,
    ),
)

PIPELINES: dict[str, tuple[Spec, ...]] = {
    "text-to-image": (
        Spec(
            r"(?!.*(Control|Kontext|Inpaint|Helios))\w+",
            generate.text_to_image,
            loads="AutoPipelineForText2Image",
        ),
        Spec(
            r"(UnCLIP|StableUnCLIP|LDMTextToImage|Amused|SanaSprint|HiDreamImage|OmniGen|Bria|BriaFibo"
            r"|HunyuanImage|LongCatImage|PRXPixel|Kandinsky5T2I|CogView3Plus)Pipeline",
            generate.text_to_image,
        ),
    ),
    "image-to-image": _IMAGE_TO_IMAGE,
    "image-text-to-image": _IMAGE_TO_IMAGE,
    "unconditional-image-generation": (
        Spec(
            r"(DDPM|DDIM|PNDM|KarrasVe|ScoreSdeVe|ConsistencyModel|LDM)Pipeline",
            generate.unconditional_image,
            exact=True,
        ),
    ),
    "text-to-video": (
        Spec("MotionAdapter", generate.text_to_video, loads="AnimateDiffPipeline", part="motion_adapter"),
        Spec(
            r"(TextToVideoSD|AnimateDiff(SDXL|PAG)?|Wan|LTX|LTX2|CogVideoX|HunyuanVideo(15)?|Mochi|Allegro|Latte"
            r"|SkyReelsV2|SanaVideo|EasyAnimate|Kandinsky5T2V|CosmosTextToWorld|MotifVideo)Pipeline",
            generate.text_to_video,
        ),
    ),
    "image-to-video": _IMAGE_TO_VIDEO,
    "image-text-to-video": _IMAGE_TO_VIDEO,
    "video-to-video": (
        Spec(
            r"AnimateDiff(VideoToVideo)?Pipeline",
            generate.video_to_video,
            loads="AnimateDiffVideoToVideoPipeline",
        ),
        Spec(
            "MotionAdapter",
            generate.video_to_video,
            loads="AnimateDiffVideoToVideoPipeline",
            part="motion_adapter",
        ),
        Spec(r"Wan(VideoToVideo)?Pipeline", generate.video_to_video, loads="WanVideoToVideoPipeline"),
        Spec(
            r"CogVideoX(VideoToVideo)?Pipeline",
            generate.video_to_video,
            loads="CogVideoXVideoToVideoPipeline",
        ),
        Spec(
            r"TextToVideoSDPipeline|VideoToVideoSDPipeline",
            generate.video_to_video,
            loads="VideoToVideoSDPipeline",
        ),
    ),
    "text-to-3d": (Spec("ShapEPipeline", generate.generate_shape),),
    "image-to-3d": (Spec("ShapEImg2ImgPipeline", generate.generate_shape),),
    "text-to-audio": (
        Spec(r"(AudioLDM2?|MusicLDM|StableAudio3?|LongCatAudioDiT)Pipeline", generate.text_to_audio),
    ),
    **{
        f"{control}-text-to-image": _CONTROLLED
        for control in ("canny", "hed", "mlsd", "scribble", "depth", "normal", "openpose", "seg")
    },
}


@dataclass(frozen=True, slots=True)
class DiffusersExpert:
    """A loaded pipeline for one task, or several of the same kind."""

    pipeline: Spec
    loaded: LoadedPipeline

    def __call__(self, call: Call) -> Any:
        return self.pipeline.run(self.loaded, call)

    @property
    def modules(self) -> list[Any]:
        """The torch modules that the pool measures."""
        return list(self.loaded.pipe.components.values())


class DiffusersBackend(FileBackend):
    """Runs the tasks of PIPELINES."""

    name = "diffusers"
    needs = ("torch", "diffusers")
    library = "diffusers"
    libraries = (None, "diffusers")
    tasks = PIPELINES

    def key(self, spec: TaskSpec, candidate: Candidate) -> tuple[str, ...]:
        """Tasks with the same pipelines share a loaded one."""
        first = next(task for task, row in PIPELINES.items() if row is PIPELINES[spec.name])
        return (self.name, first, candidate.id, candidate.revision or "")

    def load_files(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        """Read the model's class, choose the pipeline that fits it, then download and load the weights."""
        from diffusers.utils import logging

        silence_library(logging)
        silence_library()
        name = class_name(marker_folder(candidate, settings, DIFFUSERS))
        pipeline = generate.choose_diffusion_pipeline(PIPELINES[spec.name], name)
        if pipeline is None:
            raise UnsupportedError(f"{candidate.id} is a {name}, which cannot do {spec.name}")
        folder = model_folder(candidate, settings, DIFFUSERS)
        base = None
        if pipeline.part:
            base = model_folder(base_model(candidate, folder, settings), settings, DIFFUSERS)
        return DiffusersExpert(pipeline, load_pipeline(pipeline, name, folder, candidate, settings, base))
