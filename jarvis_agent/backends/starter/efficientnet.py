"""Reader of EfficientNet-Lite0: image-classification into the 1,000 classes of ImageNet.

Raw output: [{"label": str, "score": float}], the five best, best first.

The network (Tan and Le, 2019; Lite: ReLU6, no squeeze-excitation) is a function of its weights, whose shapes
define everything but the strides. The weights are converted from TensorFlow's, hence padding and epsilon.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.core.settings import Settings

if TYPE_CHECKING:
    from PIL.Image import Image

BEST = 5
SIDE = 224
EPSILON = 1e-3
STRIDES = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1)


def load(weights: Path, settings: Settings) -> Expert:
    """The network with `weights` (a state dict, read without unpickling code), in float32 on the CPU."""
    import torch

    state = torch.load(weights, map_location="cpu", weights_only=True)
    labels = imagenet_classes()

    def expert(call: Call) -> list[dict[str, Any]]:
        pixels = _prepared(call.inputs["image"].to_pil().convert("RGB"))
        with torch.inference_mode():
            scores, places = _logits(state, pixels).softmax(-1)[0].topk(BEST)
        found = zip(scores.tolist(), places.tolist(), strict=True)
        return [{"label": labels[place], "score": score} for score, place in found]

    return expert


@lru_cache(maxsize=1)
def imagenet_classes() -> tuple[str, ...]:
    """The names of ImageNet's 1,000 classes, in the order of the network's outputs."""
    text = files("jarvis_agent.backends.starter").joinpath("data/imagenet_classes.txt").read_text("utf-8")
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


def _prepared(image: Image) -> Any:
    """The middle of an image (7/8 of its shorter side), as a tensor of shape (1, 3, 224, 224)."""
    import numpy as np
    import torch
    from PIL.Image import Resampling

    edge = min(image.size) * SIDE / (SIDE + 32)
    left, top = (image.width - edge) / 2, (image.height - edge) / 2
    square = image.resize((SIDE, SIDE), Resampling.BICUBIC, box=(left, top, left + edge, top + edge))
    values = (np.asarray(square, np.float32) - 127.0) / 128.0
    return torch.from_numpy(values.transpose(2, 0, 1).copy())[None]


def _logits(state: dict[str, Any], pixels: Any) -> Any:
    from torch.nn.functional import linear, relu6

    x = relu6(_convolved(state, "_conv_stem", "_bn0", pixels, stride=2))
    for number, stride in enumerate(STRIDES):
        x = _block(state, f"_blocks.{number}.", x, stride)
    x = relu6(_convolved(state, "_conv_head", "_bn1", x))
    return linear(x.mean((2, 3)), state["_fc.weight"], state["_fc.bias"])


def _block(state: dict[str, Any], name: str, x: Any, stride: int) -> Any:
    """An inverted residual: expand (except in the first block), depthwise convolution, project."""
    from torch.nn.functional import relu6

    y = x
    if f"{name}_expand_conv.weight" in state:
        y = relu6(_convolved(state, f"{name}_expand_conv", f"{name}_bn0", y))
    y = relu6(_convolved(state, f"{name}_depthwise_conv", f"{name}_bn1", y, stride))
    y = _convolved(state, f"{name}_project_conv", f"{name}_bn2", y)
    return x + y if x.shape == y.shape else y


def _convolved(state: dict[str, Any], conv: str, norm: str, x: Any, stride: int = 1) -> Any:
    """A convolution with TensorFlow's "same" padding, and its batch normalisation."""
    from torch.nn.functional import batch_norm, conv2d, pad

    kernel = state[f"{conv}.weight"]
    edges: list[int] = []
    for size in (x.shape[-1], x.shape[-2]):
        missing = max((-(-size // stride) - 1) * stride + kernel.shape[-1] - size, 0)
        edges += [missing // 2, missing - missing // 2]
    y = conv2d(pad(x, edges), kernel, stride=stride, groups=x.shape[1] // kernel.shape[1])
    mean, variance = state[f"{norm}.running_mean"], state[f"{norm}.running_var"]
    return batch_norm(y, mean, variance, state[f"{norm}.weight"], state[f"{norm}.bias"], eps=EPSILON)
