"""Cases for tests/test_every_task.py: generation of images, videos, shapes and sounds with diffusers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tiny_diffusers as tiny
import tiny_videos
from task_case import Artifact, Case, files

PROMPT = "a red fox in the snow"
FEW = {"num_inference_steps": 2}
SMALL = {**FEW, "height": 32, "width": 32}


def image_of(width: int, height: int) -> Callable[[Artifact], None]:
    """Checks that one image of that size, in pixels, was made."""

    def check(artifact: Artifact) -> None:
        from PIL import Image

        (path,) = files(artifact, "image")
        with Image.open(path) as image:
            assert image.size == (width, height)

    return check


def video_of(frames: int, width: int, height: int) -> Callable[[Artifact], None]:
    """Checks that one video of so many frames, of that size, was made."""

    def check(artifact: Artifact) -> None:
        import av

        (path,) = files(artifact, "video")
        with av.open(path) as video:
            shown = [frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)]
        assert len(shown) == frames
        assert shown[0].shape == (height, width, 3)

    return check


def shape_is_there(artifact: Artifact) -> None:
    import trimesh

    (path,) = files(artifact, "3d")
    shape = trimesh.load(path, force="mesh")
    assert len(shape.vertices) > 0
    assert len(shape.faces) > 0


def sound_is_there(artifact: Artifact) -> None:
    import soundfile

    (path,) = files(artifact, "audio")
    samples, rate = soundfile.read(path)
    assert rate == 400
    assert 780 < len(samples) < 820


def _options(**options: Any) -> dict[str, Any]:
    return {"library": "diffusers", "metadata": {"options": options}}


COARSE = {"library": "diffusers", "metadata": {"options": FEW, "grid_size": 16}}

CASES: list[Case] = [
    Case("text-to-image", {"text": PROMPT}, image_of(64, 64), tiny.stable_diffusion, _options(**FEW)),
    Case(
        "image-to-image",
        {"image": "@photo", "text": PROMPT},
        image_of(64, 48),
        tiny.stable_diffusion,
        _options(num_inference_steps=4),
    ),
    Case(
        "image-to-image",
        {"image": "@photo", "text": PROMPT, "mask": "@photo"},
        image_of(64, 48),
        tiny.inpainting,
        _options(num_inference_steps=4),
    ),
    Case("image-to-image", {"image": "@photo"}, image_of(128, 96), tiny.upscaler, _options(**FEW)),
    Case(
        "image-text-to-image",
        {"image": "@photo", "text": "make it night"},
        image_of(64, 48),
        tiny.instruct_pix2pix,
        _options(**FEW),
    ),
    Case("unconditional-image-generation", {}, image_of(16, 16), tiny.ddpm, _options(**FEW)),
    Case(
        "text-to-video",
        {"text": PROMPT},
        video_of(4, 32, 32),
        tiny_videos.text_to_video,
        _options(**SMALL, num_frames=4),
    ),
    Case(
        "text-to-video",
        {"text": PROMPT},
        video_of(4, 32, 32),
        tiny_videos.animatediff,
        _options(**SMALL, num_frames=4),
    ),
    Case(
        "text-to-video",
        {"text": PROMPT},
        video_of(9, 32, 32),
        tiny_videos.wan,
        _options(**SMALL, num_frames=9),
    ),
    Case(
        "text-to-video",
        {"text": PROMPT},
        video_of(9, 32, 32),
        tiny_videos.ltx,
        _options(**SMALL, num_frames=9),
    ),
    Case(
        "image-to-video",
        {"image": "@photo"},
        video_of(2, 32, 32),
        tiny_videos.stable_video,
        _options(**SMALL, num_frames=2),
    ),
    Case(
        "image-text-to-video",
        {"image": "@photo", "text": "it starts to snow"},
        video_of(9, 32, 32),
        tiny_videos.ltx,
        _options(**SMALL, num_frames=9),
    ),
    Case(
        "video-to-video",
        {"video": "@clip", "text": PROMPT},
        video_of(9, 32, 32),
        tiny_videos.wan,
        _options(num_inference_steps=3, height=32, width=32),
        needs=("ftfy",),
    ),
    Case(
        "video-to-video",
        {"video": "@clip", "text": PROMPT},
        video_of(9, 32, 32),
        tiny_videos.animatediff,
        _options(num_inference_steps=3, height=32, width=32),
    ),
    Case(
        "text-to-3d",
        {"text": "a chair"},
        shape_is_there,
        tiny.shap_e,
        COARSE,
    ),
    Case(
        "image-to-3d",
        {"image": "@photo"},
        shape_is_there,
        tiny.shap_e_from_image,
        COARSE,
    ),
    Case(
        "text-to-audio",
        {"text": "rain on a roof"},
        sound_is_there,
        tiny.stable_audio,
        _options(**FEW, audio_end_in_s=2.0),
    ),
    *(
        Case(
            f"{control}-text-to-image",
            {"image": "@photo", "text": PROMPT},
            image_of(64, 48),
            tiny.controlnet,
            _options(**FEW),
        )
        for control in ("canny", "hed", "mlsd", "scribble", "depth", "normal", "openpose", "seg")
    ),
]
