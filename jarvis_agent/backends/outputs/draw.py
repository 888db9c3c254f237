"""Drawings of what was found in an image: boxes, masks and skeletons, a colour for each label."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from jarvis_agent.core.images import to_opaque

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

PALETTE = ("#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7", "#785ef0")
"""Colour-blind safe colours (Okabe and Ito 2008, with violet instead of black)."""

Point = tuple[float, float]

Box = tuple[str, str, tuple[float, float, float, float]]
"""Label, caption, and (xmin, ymin, xmax, ymax) in pixels."""

Mask = tuple[str, str, "Image"]
"""Label, caption (may be empty), and an image in mode L of any size, white inside."""

Skeleton = tuple[Sequence[Point | None], Sequence[tuple[int, int]]]
"""Joints in pixels (None: not seen), and bones as pairs of indices of joints."""


def draw_boxes(image: Image, boxes: Sequence[Box]) -> Image:
    """A copy of the image in RGB with each box and its caption; the first box is on top."""
    from PIL import ImageDraw

    picture = to_opaque(image).copy()
    pen = ImageDraw.Draw(picture)
    width = max(2, min(picture.size) // 200)
    colours = _colours(label for label, _, _ in boxes)
    for label, caption, (xmin, ymin, xmax, ymax) in reversed(boxes):
        left, right = _clamp(xmin, xmax, picture.width)
        top, bottom = _clamp(ymin, ymax, picture.height)
        pen.rectangle((left, top, right, bottom), outline=colours[label], width=width)
        _draw_caption(pen, caption, (left, top), colours[label], picture.size)
    return picture


def draw_masks(image: Image, masks: Sequence[Mask]) -> Image:
    """A copy of the image in RGB with each mask tinted and captioned."""
    from PIL import Image as Images
    from PIL import ImageDraw

    picture = to_opaque(image).copy()
    colours = _colours(label for label, _, _ in masks)
    captions = []
    for label, caption, mask in masks:
        fitted = mask.resize(picture.size, Images.Resampling.NEAREST)
        picture.paste(colours[label], mask=fitted.point(lambda value: value // 2))
        if caption and (bounds := fitted.getbbox()) is not None:
            left, top, right, bottom = bounds
            captions.append((caption, ((left + right) / 2, (top + bottom) / 2), colours[label]))
    pen = ImageDraw.Draw(picture)
    for caption, middle, colour in captions:
        _draw_caption(pen, caption, middle, colour, picture.size)
    return picture


def draw_skeletons(image: Image, skeletons: Sequence[Skeleton]) -> Image:
    """A copy of the image in RGB with each skeleton in its own colour: bones, and joints as dots."""
    from PIL import ImageDraw

    picture = to_opaque(image).copy()
    pen = ImageDraw.Draw(picture)
    width = max(2, min(picture.size) // 120)
    for place, (joints, bones) in reversed(list(enumerate(skeletons))):
        for start, end in ((joints[first], joints[second]) for first, second in bones):
            if start and end:
                pen.line((start, end), fill=PALETTE[place % len(PALETTE)], width=width)
        for joint in filter(None, joints):
            pen.circle(joint, width + 1, fill="white", outline="black", width=max(1, width // 3))
    return picture


def _colours(labels: Iterable[str]) -> dict[str, str]:
    return {label: PALETTE[place % len(PALETTE)] for place, label in enumerate(dict.fromkeys(labels))}


def _clamp(low: float, high: float, size: int) -> tuple[float, float]:
    """Two coordinates in order and inside the image."""
    low, high = sorted((low, high))
    return min(max(low, 0), size - 1), min(max(high, 0), size - 1)


def _draw_caption(pen: ImageDraw, caption: str, at: Point, colour: str, size: tuple[int, int]) -> None:
    """Draw a caption on a coloured plate: above the point if possible, never outside the image."""
    from PIL import ImageFont

    font = ImageFont.load_default(max(11, min(size) // 32))
    _, _, width, height = pen.textbbox((0, 0), caption, font=font)
    x = max(0, min(at[0], size[0] - width))
    y = max(0, min(at[1] - height, size[1] - height))
    pen.rectangle((x, y, x + width, y + height), fill=colour)
    pen.text((x, y), caption, fill="black", font=font)
