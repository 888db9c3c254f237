"""Masks of everything in an image with transformers: SAM is prompted at each point of a grid.

Masks are filtered at the model's resolution and only the remaining ones are resized, so that memory does not
grow with the image. transformers' own pipeline needs torchvision; this code does not.
"""

from __future__ import annotations

from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.transformers.loading import LoadedModel
from jarvis_agent.backends.transformers.vision import image_of, non_max_suppression

POINTS = 32
"""Points along each side of the grid."""

BATCH = 64
"""Points per forward pass."""

MIN_SCORE = 0.88
"""Lowest predicted quality of a mask (SAM, Kirillov et al., 2023)."""

MIN_STABILITY = 0.95
"""Lowest share of a mask that stays when the threshold moves by one logit either way (the same paper)."""

OVERLAP = 0.7
"""Intersection over union of boxes above which only the better of two masks is kept."""


def mask_everything(loaded: LoadedModel, call: Call) -> list[dict[str, Any]]:
    """Return [{mask: PIL image in mode L of the image's size, score}], best first."""
    import torch

    image = image_of(call)
    processor = loaded.parts["image_processor"]
    batch = processor(image, return_tensors="pt")
    height, width = batch["reshaped_input_sizes"][0].tolist()
    with torch.inference_mode():
        pixels = loaded.inputs({"pixel_values": batch["pixel_values"]})
        embeddings = loaded.model.get_image_embeddings(**pixels)
        answers = [_prompt(loaded, embeddings, points) for points in _grid(width, height).split(BATCH)]
    masks, scores = (torch.cat(part) for part in zip(*answers, strict=True))
    masks = _crop_padding(masks, (height, width), processor.pad_size)
    good = _is_stable(masks) & (scores > MIN_SCORE)
    masks, scores = masks[good], scores[good]
    kept = non_max_suppression([_box(mask > 0) for mask in masks], scores, OVERLAP)
    return [{"mask": _resize(masks[n], image.size), "score": min(float(scores[n]), 1.0)} for n in kept]


def _grid(width: int, height: int) -> Any:
    """Return float (POINTS², 2): the centres of the cells of a grid over the resized image."""
    import torch

    centres = (torch.arange(POINTS) + 0.5) / POINTS
    down, across = torch.meshgrid(centres * height, centres * width, indexing="ij")
    return torch.stack([across, down], dim=-1).reshape(-1, 2)


def _prompt(loaded: LoadedModel, embeddings: Any, points: Any) -> tuple[Any, Any]:
    """Return mask logits (n, h, w) and scores (n,): three masks a point, from a part to the whole object."""
    import torch

    prompts = loaded.inputs(
        {"input_points": points[None, :, None, :], "input_labels": torch.ones(1, len(points), 1).long()}
    )
    output = loaded.model(**prompts, image_embeddings=embeddings, multimask_output=True)
    return output.pred_masks[0].flatten(0, 1).float().cpu(), output.iou_scores[0].flatten().float().cpu()


def _crop_padding(masks: Any, size: tuple[int, int], padded: Any) -> Any:
    """Return the part of the masks that shows the image, which lies in the top left corner."""
    mask_height, mask_width = masks.shape[-2:]
    height = max(round(mask_height * size[0] / padded["height"]), 1)
    width = max(round(mask_width * size[1] / padded["width"]), 1)
    return masks[:, :height, :width]


def _is_stable(masks: Any) -> Any:
    """Return bool (n,): whether a mask is not empty and depends little on the exact threshold."""
    smaller, larger = (masks > 1).sum((1, 2)), (masks > -1).sum((1, 2))
    return (smaller > 0) & (smaller / larger.clamp(min=1) > MIN_STABILITY)


def _box(mask: Any) -> list[int]:
    rows, columns = mask.any(1).nonzero(), mask.any(0).nonzero()
    return [int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1]


def _resize(mask: Any, size: tuple[int, int]) -> Any:
    """Return mask logits as a PIL image in mode L with values 0 and 255."""
    import torch
    from PIL import Image

    whole = torch.nn.functional.interpolate(
        mask[None, None], size[::-1], mode="bilinear", align_corners=False
    )
    return Image.fromarray(((whole[0, 0] > 0) * 255).to(torch.uint8).numpy())


def mask_by_pipeline(loaded: LoadedModel, call: Call) -> list[dict[str, Any]]:
    """Return the result of `mask_everything` for models whose image processor needs torchvision (SAM 2)."""
    found = loaded.pipe(image_of(call))
    return [
        {"mask": mask, "score": min(float(score), 1.0)}
        for mask, score in zip(found["masks"], found["scores"], strict=True)
    ]
