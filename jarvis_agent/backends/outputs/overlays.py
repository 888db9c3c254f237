"""Overlays: draw boxes, masks, skeletons and their captions onto an image.

draw_boxes(image, [Box("cat", "cat 0.98", 10, 20, 110, 140)]).save("found.png")
draw_masks(image, [Mask("cat", "cat", mask)])
draw_skeletons(image, [Skeleton(((10, 20), (40, 80), None), ((0, 1), (1, 2)))])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

Colour = tuple[int, int, int]
Size = tuple[int, int]

PALETTE: tuple[Colour, ...] = (
    (230, 159, 0),
    (86, 180, 233),
    (0, 158, 115),
    (240, 228, 66),
    (0, 114, 178),
    (213, 94, 0),
    (204, 121, 167),
    (120, 94, 240),
)
"""Colour-blind safe colours (Okabe and Ito 2008, with violet instead of black)."""

_MASK_OPACITY = 0.5


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels; boxes with the same `label` get the same colour."""

    label: str
    caption: str
    xmin: float
    ymin: float
    xmax: float
    ymax: float


@dataclass(frozen=True, slots=True)
class Mask:
    """A segment: `mask` has mode L and any size, white inside. An empty caption is not drawn."""

    label: str
    caption: str
    mask: Image


@dataclass(frozen=True, slots=True)
class Skeleton:
    """Joints in pixels (None: not seen), and bones as pairs of indices of joints."""

    joints: Sequence[tuple[float, float] | None]
    bones: Sequence[tuple[int, int]]


def draw_boxes(image: Image, boxes: Sequence[Box]) -> Image:
    """A copy of the image in RGB with each box and its caption; the first box is on top."""
    from PIL import ImageDraw

    picture = _opaque(image)
    pen = ImageDraw.Draw(picture)
    width = max(2, min(picture.size) // 200)
    colours = _colours(box.label for box in boxes)
    for box in reversed(boxes):
        left, right = _clamp(box.xmin, box.xmax, picture.width)
        top, bottom = _clamp(box.ymin, box.ymax, picture.height)
        pen.rectangle((left, top, right, bottom), outline=colours[box.label], width=width)
        _draw_caption(pen, box.caption, left, top, colours[box.label], picture.size)
    return picture


def draw_masks(image: Image, masks: Sequence[Mask]) -> Image:
    """A copy of the image in RGB with each mask tinted, outlined and captioned."""
    from PIL import Image as Images
    from PIL import ImageDraw

    picture = _opaque(image)
    colours = _colours(mask.label for mask in masks)
    rim = max(1, min(picture.size) // 300)
    places = []
    for found in masks:
        mask = found.mask
        fitted = mask if mask.size == picture.size else mask.resize(picture.size, Images.Resampling.NEAREST)
        picture.paste(colours[found.label], mask=fitted.point(lambda value: int(value * _MASK_OPACITY)))
        picture.paste(colours[found.label], mask=_outline(fitted, rim))
        if found.caption and (bounds := fitted.getbbox()) is not None:
            places.append((found, bounds))
    pen = ImageDraw.Draw(picture)
    for found, (left, top, right, bottom) in places:
        middle = (left + right) / 2, (top + bottom) / 2
        _draw_caption(pen, found.caption, *middle, colours[found.label], picture.size)
    return picture


def draw_skeletons(image: Image, skeletons: Sequence[Skeleton]) -> Image:
    """A copy of the image in RGB with each skeleton in its own colour: bones, and joints as dots."""
    from PIL import ImageDraw

    picture = _opaque(image)
    pen = ImageDraw.Draw(picture)
    width = max(2, min(picture.size) // 120)
    for place, skeleton in reversed(list(enumerate(skeletons))):
        colour = PALETTE[place % len(PALETTE)]
        joints = skeleton.joints
        bones = [(joints[one], joints[other]) for one, other in skeleton.bones]
        seen = [(one, other) for one, other in bones if one is not None and other is not None]
        # A dark outline keeps bones visible on a background of their colour.
        for one, other in seen:
            pen.line((one, other), fill="black", width=width + 2)
        for one, other in seen:
            pen.line((one, other), fill=colour, width=width)
        for joint in joints:
            if joint is not None:
                pen.circle(joint, width + 1, fill="white", outline="black", width=max(1, width // 3))
    return picture


def _outline(mask: Image, width: int) -> Image:
    """The pixels of a mask that are at most `width` from its outside."""
    from PIL import ImageChops, ImageFilter

    return ImageChops.subtract(mask, mask.filter(ImageFilter.MinFilter(2 * width + 1)))


def _opaque(image: Image) -> Image:
    """A copy in RGB, with white where the image is transparent."""
    from PIL import Image as Images

    if "A" not in image.getbands():
        return image.convert("RGB") if image.mode != "RGB" else image.copy()
    seen = image.convert("RGBA")
    paper = Images.new("RGBA", seen.size, "white")
    return Images.alpha_composite(paper, seen).convert("RGB")


def _colours(labels: Iterable[str]) -> dict[str, Colour]:
    return {label: PALETTE[place % len(PALETTE)] for place, label in enumerate(dict.fromkeys(labels))}


def _clamp(low: float, high: float, size: int) -> tuple[float, float]:
    """Two coordinates in order and inside the image."""
    low, high = sorted((low, high))
    return min(max(low, 0), size - 1), min(max(high, 0), size - 1)


def _draw_caption(pen: ImageDraw, caption: str, x: float, y: float, colour: Colour, size: Size) -> None:
    """Draw a caption on a coloured plate: above the point if possible, never outside the image."""
    from PIL import ImageFont

    font = ImageFont.load_default(max(11, min(size) // 32))
    left, top, right, bottom = pen.textbbox((0, 0), caption, font=font)
    pad = 2
    width, height = right - left + 2 * pad, bottom - top + 2 * pad
    x = max(0, min(x, size[0] - width))
    y = y - height if y >= height else max(0, min(y, size[1] - height))
    pen.rectangle((x, y, x + width, y + height), fill=colour)
    red, green, blue = colour
    ink = "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "white"
    pen.text((x + pad - left, y + pad - top), caption, fill=ink, font=font)
