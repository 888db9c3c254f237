"""The table of what diffusers does here: for each task, the ways to do it, by the class of the model.

TASK_WAYS["image-to-video"]      # Stable Video Diffusion, LTX, Wan, …

A new family of pipelines is a name in a pattern; a new task is a row.
"""

from __future__ import annotations

from jarvis_agent.backends.diffusers import media as media
from jarvis_agent.backends.diffusers.loading import PipelineSpec

_IMAGE_TO_IMAGE = (
    PipelineSpec(
        r"StableDiffusion(XL)?InstructPix2PixPipeline|(Flux\w*Kontext|QwenImageEdit(Plus)?|Flux2(Klein)?)Pipeline"
        r"|(LongCatImageEdit|JoyImageEdit|BriaFiboEdit|StableDiffusionDepth2Img)Pipeline"
        r"|(StableDiffusion(Latent)?Upscale|LDMSuperResolution)Pipeline"
        r"|(StableDiffusionImageVariation|StableUnCLIPImg2Img|UnCLIPImageVariation)Pipeline",
        media.redraw,
    ),
    PipelineSpec(r"(?!.*(Control|Audio|Animate|Kandinsky|SuperRes))\w+Inpaint\w*Pipeline", media.fill),
    PipelineSpec(r"(?!.*Control)\w+", media.redraw, loads="AutoPipelineForImage2Image"),
)

_IMAGE_TO_VIDEO = (
    PipelineSpec(r"(StableVideoDiffusion|I2VGenXL|PIA)Pipeline", media.animate),
    PipelineSpec(r"LTX(ImageToVideo)?Pipeline", media.animate, loads="LTXImageToVideoPipeline"),
    PipelineSpec(
        r"(Wan|LTX2|CogVideoX|SkyReelsV2|HunyuanVideo(15)?|Sana)ImageToVideoPipeline"
        r"|(HunyuanSkyreelsImageToVideo|Kandinsky5I2V|HunyuanVideoFramepack|MotifVideoImage2Video)Pipeline",
        media.animate,
    ),
)

_CONTROLLED = (
    PipelineSpec(
        r"(SD3|Flux|HunyuanDiT2D|QwenImage)?ControlNetModel",
        media.follow,
        loads="AutoPipelineForText2Image",
        part="controlnet",
    ),
    PipelineSpec(r"(?!.*(Img2Img|Inpaint|Union|Video|Animate|Blip|XS))\w*Control(Net)?(PAG)?Pipeline", media.follow),
)

PIPELINES: dict[str, tuple[PipelineSpec, ...]] = {
    "text-to-image": (
        PipelineSpec(r"(?!.*(Control|Kontext|Inpaint|Helios))\w+", media.paint, loads="AutoPipelineForText2Image"),
        PipelineSpec(
            r"(UnCLIP|StableUnCLIP|LDMTextToImage|Amused|SanaSprint|HiDreamImage|OmniGen|Bria|BriaFibo"
            r"|HunyuanImage|LongCatImage|PRXPixel|Kandinsky5T2I|CogView3Plus)Pipeline",
            media.paint,
        ),
    ),
    "image-to-image": _IMAGE_TO_IMAGE,
    "image-text-to-image": _IMAGE_TO_IMAGE,
    "unconditional-image-generation": (
        PipelineSpec(r"(DDPM|DDIM|PNDM|KarrasVe|ScoreSdeVe|ConsistencyModel|LDM)Pipeline", media.dream, exact=True),
    ),
    "text-to-video": (
        PipelineSpec("MotionAdapter", media.film, loads="AnimateDiffPipeline", part="motion_adapter"),
        PipelineSpec(
            r"(TextToVideoSD|AnimateDiff(SDXL|PAG)?|Wan|LTX|LTX2|CogVideoX|HunyuanVideo(15)?|Mochi|Allegro|Latte"
            r"|SkyReelsV2|SanaVideo|EasyAnimate|Kandinsky5T2V|CosmosTextToWorld|MotifVideo)Pipeline",
            media.film,
        ),
    ),
    "image-to-video": _IMAGE_TO_VIDEO,
    "image-text-to-video": _IMAGE_TO_VIDEO,
    "video-to-video": (
        PipelineSpec(
            r"AnimateDiff(VideoToVideo)?Pipeline",
            media.reshoot,
            loads="AnimateDiffVideoToVideoPipeline",
        ),
        PipelineSpec(
            "MotionAdapter",
            media.reshoot,
            loads="AnimateDiffVideoToVideoPipeline",
            part="motion_adapter",
        ),
        PipelineSpec(r"Wan(VideoToVideo)?Pipeline", media.reshoot, loads="WanVideoToVideoPipeline"),
        PipelineSpec(r"CogVideoX(VideoToVideo)?Pipeline", media.reshoot, loads="CogVideoXVideoToVideoPipeline"),
        PipelineSpec(r"TextToVideoSDPipeline|VideoToVideoSDPipeline", media.reshoot, loads="VideoToVideoSDPipeline"),
    ),
    "text-to-3d": (PipelineSpec("ShapEPipeline", media.sculpt),),
    "image-to-3d": (PipelineSpec("ShapEImg2ImgPipeline", media.sculpt),),
    "text-to-audio": (PipelineSpec(r"(AudioLDM2?|MusicLDM|StableAudio3?|LongCatAudioDiT)Pipeline", media.sound),),
    **{
        f"{control}-text-to-image": _CONTROLLED
        for control in ("canny", "hed", "mlsd", "scribble", "depth", "normal", "openpose", "seg")
    },
}
