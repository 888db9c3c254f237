"""Tasks with diffusers: functions of a loaded pipeline and a call that give the raw output.

paint(loaded, call)        # a PIL image, from call.inputs["text"]
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.diffusers.generate import ask, options, parameters
from jarvis_agent.backends.diffusers.loading import Loaded
from jarvis_agent.backends.transformers.text import text_of
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.media.files import open_image
from jarvis_agent.media.video import probe_video, spread_frames

if TYPE_CHECKING:
    from PIL.Image import Image

LONGEST_CLIP = 25
"""Frames of a video that a model changes at most (8 n + 1, as most video models want it)."""

SIDE = 768
"""Pixels: images for a model that does not say its own size are not larger than this squared."""

GRID = 128
"""Cells a side of the grid in which the surface of a shape is looked for."""

FRAME_RATES: tuple[tuple[str, float], ...] = (
    ("Wan|ChronoEdit|Sana", 16.0),
    ("LTX|SkyReels|Kandinsky|HunyuanVideo15", 24.0),
    ("Hunyuan|Allegro", 15.0),
    ("Mochi", 30.0),
)
"""Frames a second of pipelines that do not say it in their call; the others make 8."""


def paint(loaded: Loaded, call: Call) -> Image:
    """An image from a text."""
    return _image(ask(loaded, call, prompt=text_of(call)))


def dream(loaded: Loaded, call: Call) -> Image:
    """An image from nothing but the seed."""
    return _image(ask(loaded, call))


def redraw(loaded: Loaded, call: Call) -> Image:
    """An image made of another one, after the text if there is one; with a mask, only where that is white."""
    if call.inputs.get("mask") is not None:
        return fill(loaded, call)
    return _image(ask(loaded, call, **_picture(loaded, call), prompt=_wish(call)))


def fill(loaded: Loaded, call: Call) -> Image:
    """An image with its masked part made anew.

    Raises:
        UnsupportedError: the model needs a mask and has none, or can not take one.
    """
    if call.inputs.get("mask") is None:
        raise UnsupportedError(f"{loaded.id} only fills masked parts of an image; give it a mask")
    given = _picture(loaded, call)
    mask = open_image(call.inputs["mask"]).convert("L").resize(given["image"].size)
    return _image(ask(loaded, call, pipe=_filler(loaded), **given, mask_image=mask, prompt=_wish(call)))


def _filler(loaded: Loaded) -> Any:
    """A pipeline that takes a mask, of the same parts."""
    if "mask_image" in parameters(loaded.pipe):
        return loaded.pipe
    from diffusers import AutoPipelineForInpainting

    try:
        return AutoPipelineForInpainting.from_pipe(loaded.pipe)
    except ValueError as error:
        raise UnsupportedError(
            f"{loaded.id} ({type(loaded.pipe).__name__}) can not keep to a mask; leave it away"
        ) from error


def follow(loaded: Loaded, call: Call) -> Image:
    """An image from a text that keeps to a control map; it has the map's size, to multiples of 8 pixels."""
    given = _picture(loaded, call)
    return _image(ask(loaded, call, **given, control_image=given["image"], prompt=text_of(call)))


def film(loaded: Loaded, call: Call) -> dict[str, Any]:
    """{frames, fps} from a text."""
    return _video(loaded, call, prompt=text_of(call))


def animate(loaded: Loaded, call: Call) -> dict[str, Any]:
    """{frames, fps} of a video that starts from an image, following the text if there is one."""
    return _video(loaded, call, **_picture(loaded, call), prompt=_wish(call))


def reshoot(loaded: Loaded, call: Call) -> dict[str, Any]:
    """{frames, fps} of a changed video: LONGEST_CLIP frames at most, evenly spread over its whole length."""
    path = call.inputs["video"].path
    frames, seconds = clip(path), probe_video(path).duration
    size = fitted(frames[0], loaded, call)
    given = {"video": [frame.resize(size) for frame in frames], "width": size[0], "height": size[1]}
    made = _video(loaded, call, **given, prompt=_wish(call))
    return {**made, "fps": len(made["frames"]) / seconds if seconds else made["fps"]}


def sculpt(loaded: Loaded, call: Call) -> dict[str, Any]:
    """{vertices, faces, colors} from a text or an image.

    The surface is looked for in a grid of GRID cells a side, or as many as the candidate's metadata say
    ("grid_size"): fewer are faster and coarser.
    """
    import torch

    image = call.inputs.get("image")
    given = {"image": open_image(image).convert("RGB")} if image else {"prompt": text_of(call)}
    shape = ask(loaded, call, **given, output_type="latent").images[0]
    with torch.no_grad():
        mesh = loaded.pipe.shap_e_renderer.decode_to_mesh(
            shape[None], shape.device, grid_size=int(call.candidate.metadata.get("grid_size", GRID))
        )
    channels = [mesh.vertex_channels[channel] for channel in "RGB"]
    return {
        "vertices": _array(mesh.verts),
        "faces": _array(mesh.faces),
        "colors": _array(channels).clip(0, 1).T,
    }


def sound(loaded: Loaded, call: Call) -> dict[str, Any]:
    """{audio, sampling_rate}: what a text describes, as mono samples."""
    heard = _array(ask(loaded, call, prompt=text_of(call)).audios[0])
    return {
        "audio": heard.mean(axis=0) if heard.ndim > 1 else heard,
        "sampling_rate": _rate(loaded),
    }


def clip(path: Path) -> list[Image]:
    """LONGEST_CLIP RGB frames at most, 8 n + 1 of them, evenly spread over a video."""
    count = len(spread_frames(path, LONGEST_CLIP))
    return [frame.convert("RGB") for _, frame in spread_frames(path, 8 * ((count - 1) // 8) + 1)]


def fitted(image: Image, loaded: Loaded, call: Call) -> tuple[int, int]:
    """Width and height for an image: no more pixels than the model was trained for, in whole blocks.

    The sizes that the candidate's options name are taken as they are.
    """
    wanted = options(loaded, call)
    if "width" in wanted and "height" in wanted:
        return int(wanted["width"]), int(wanted["height"])
    block = 8 if hasattr(loaded.pipe, "unet") else 32
    scale = min(1.0, math.sqrt(_pixels(loaded.pipe) / (image.width * image.height)))
    width, height = (max(block, round(side * scale / block) * block) for side in image.size)
    return width, height


def _pixels(pipe: Any) -> int:
    """How many pixels an image of the model has by default."""
    takes = parameters(pipe)
    sides = [getattr(takes.get(side), "default", None) for side in ("height", "width")]
    if all(isinstance(side, int) for side in sides):
        return math.prod(side for side in sides if isinstance(side, int))
    network = getattr(pipe, "unet", None) or getattr(pipe, "transformer", None)
    trained = getattr(getattr(network, "config", None), "sample_size", None)
    size = getattr(pipe, "default_sample_size", trained)
    side = size * getattr(pipe, "vae_scale_factor", 8) if isinstance(size, int) else SIDE
    return int(side) ** 2


def _picture(loaded: Loaded, call: Call) -> dict[str, Any]:
    """The image of the call as the pipeline wants it: {image, width, height}."""
    image = open_image(call.inputs["image"]).convert("RGB")
    size = fitted(image, loaded, call)
    return {"image": image.resize(size), "width": size[0], "height": size[1]}


def _wish(call: Call) -> str:
    """The text, where it may be missing."""
    return str(call.inputs.get("text") or "").strip()


def _image(output: Any) -> Image:
    image: Image = output.images[0]
    return image


def _video(loaded: Loaded, call: Call, **inputs: Any) -> dict[str, Any]:
    import numpy as np

    frames = ask(loaded, call, **inputs, output_type="pil").frames[0]
    return {"frames": [np.asarray(frame) for frame in frames], "fps": _frame_rate(loaded, call)}


def _frame_rate(loaded: Loaded, call: Call) -> float:
    takes, wanted = parameters(loaded.pipe), options(loaded, call)
    for name in ("fps", "frame_rate"):
        stated = wanted.get(name, getattr(takes.get(name), "default", None))
        if isinstance(stated, int | float):
            return float(stated)
    name = type(loaded.pipe).__name__
    return next((rate for known, rate in FRAME_RATES if re.search(known, name)), 8.0)


def _rate(loaded: Loaded) -> int:
    """Hz of the sound that the pipeline makes."""
    for part in ("vocoder", "vae"):
        config = getattr(getattr(loaded.pipe, part, None), "config", None)
        if (rate := getattr(config, "sampling_rate", None)) is not None:
            return int(rate)
    return int(loaded.pipe.sample_rate)


def _array(values: Any) -> Any:
    """A float or integer array of a tensor, of a list of tensors, or of an array."""
    import numpy as np
    import torch

    if isinstance(values, list):
        values = torch.stack(values)
    if not isinstance(values, torch.Tensor):
        return np.asarray(values)
    cpu = values.detach().cpu()
    return (cpu.float() if cpu.is_floating_point() else cpu).numpy()
