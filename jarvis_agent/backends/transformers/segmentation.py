"""Masks of everything in an image, with transformers: SAM is asked at each point of a grid what is there.

The answers are sifted while they are small and only those that are kept are brought to the image's size, so
that a large image needs no more memory than a small one. None of this needs torchvision; SAM 2's image
processor does.
"""

from __future__ import annotations

from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.transformers.boxes import best_apart
from jarvis_agent.backends.transformers.loading import Loaded
from jarvis_agent.backends.transformers.vision import picture

POINTS = 32
"""Points along each side of the grid."""

BATCH = 64
"""How many points are asked about at once."""

LEAST_SCORE = 0.88
"""How good the model must think that a mask is (SAM, Kirillov et al., 2023)."""

LEAST_STABLE = 0.95
"""Share of a mask that must stay when the cut is moved by one logit up and down (the same)."""

OVERLAP = 0.7
"""Of two masks whose boxes share more than this (intersection over union), the better one is kept."""


def mask_everything(loaded: Loaded, call: Call) -> list[dict[str, Any]]:
    """[{mask: PIL L of the image's size, score}], the best first."""
    import torch

    image = picture(call)
    batch = loaded.parts["image_processor"](image, return_tensors="pt")
    height, width = batch["reshaped_input_sizes"][0].tolist()
    with torch.inference_mode():
        seen = _embeddings(loaded, batch)
        answers = [_ask(loaded, seen, points) for points in _grid(width, height).split(BATCH)]
    masks, scores = (torch.cat(part) for part in zip(*answers, strict=True))
    masks = _unpadded(masks, (height, width), loaded.parts["image_processor"].pad_size)
    good = _sound(masks, scores)
    masks, scores = masks[good], scores[good]
    kept = best_apart([_box(mask > 0) for mask in masks], scores, OVERLAP)
    return [{"mask": _drawn(masks[n], image.size), "score": min(float(scores[n]), 1.0)} for n in kept]


def _embeddings(loaded: Loaded, batch: Any) -> dict[str, Any]:
    """What the model made of the image, which is looked at only once. SAM-HQ keeps its middle layers too."""
    pixels = loaded.inputs({"pixel_values": batch["pixel_values"]})["pixel_values"]
    seen = loaded.model.get_image_embeddings(pixels)
    names = ("image_embeddings", "intermediate_embeddings")
    return dict(zip(names, seen if isinstance(seen, tuple) else (seen,), strict=False))


def _grid(width: int, height: int) -> Any:
    """Float (POINTS², 2): the middles of the cells into which the image, as the model sees it, is cut."""
    import torch

    middles = (torch.arange(POINTS) + 0.5) / POINTS
    down, across = torch.meshgrid(middles * height, middles * width, indexing="ij")
    return torch.stack([across, down], dim=-1).reshape(-1, 2)


def _ask(loaded: Loaded, seen: dict[str, Any], points: Any) -> tuple[Any, Any]:
    """Mask logits (n, h, w) and scores (n,): for each point three, from a part to the whole."""
    import torch

    asked = loaded.inputs(
        {"input_points": points[None, :, None, :], "input_labels": torch.ones(1, len(points), 1).long()}
    )
    told = loaded.model(**asked, **seen, multimask_output=True)
    return told.pred_masks[0].flatten(0, 1).float().cpu(), told.iou_scores[0].flatten().float().cpu()


def _unpadded(masks: Any, size: tuple[int, int], padded: Any) -> Any:
    """The part of the masks where the image is: it stands in the top left corner of a square."""
    tall, wide = masks.shape[-2:]
    height = max(round(tall * size[0] / padded["height"]), 1)
    width = max(round(wide * size[1] / padded["width"]), 1)
    return masks[:, :height, :width]


def _sound(masks: Any, scores: Any) -> Any:
    """Which masks are good and do not hang on where exactly the cut is made; empty ones are not."""
    smaller, larger = (masks > 1).sum((1, 2)), (masks > -1).sum((1, 2))
    return (scores > LEAST_SCORE) & (smaller > 0) & (smaller / larger.clamp(min=1) > LEAST_STABLE)


def _box(mask: Any) -> list[int]:
    down, across = mask.any(1).nonzero(), mask.any(0).nonzero()
    return [int(across[0]), int(down[0]), int(across[-1]) + 1, int(down[-1]) + 1]


def _drawn(mask: Any, size: tuple[int, int]) -> Any:
    """A mask's logits as a PIL image in mode L, 0 and 255, of `size`."""
    import torch
    from PIL import Image

    whole = torch.nn.functional.interpolate(
        mask[None, None], size[::-1], mode="bilinear", align_corners=False
    )
    return Image.fromarray(((whole[0, 0] > 0) * 255).to(torch.uint8).numpy())


def mask_by_pipeline(loaded: Loaded, call: Call) -> list[dict[str, Any]]:
    """As `mask_everything`, for models whose image processors need torchvision anyway (SAM 2)."""
    found = loaded.pipe(picture(call))
    return [
        {"mask": mask, "score": min(float(score), 1.0)}
        for mask, score in zip(found["masks"], found["scores"], strict=True)
    ]
