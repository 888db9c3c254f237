"""Adapters of boxes, masks and keypoints found in an image: as data, and drawn onto the image.

Overlays: draw boxes, masks, skeletons and their captions onto an image.

draw_boxes(image, [("cat", "cat 0.98", (10, 20, 110, 140))]).save("found.png")
draw_masks(image, [("cat", "cat", mask)])
draw_skeletons(image, [([(10, 20), (40, 80), None], [(0, 1), (1, 2)])])

What has the same label gets the same colour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.outputs.media import save_image, to_image
from jarvis_agent.backends.outputs.validators import (
    Adapted,
    UnexpectedError,
    best_first,
    number,
    quantity,
    read_rows,
    score,
    tally,
    text,
    to_matrix,
)
from jarvis_agent.core.types import Resource

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw


MIN_JOINT_SCORE = 0.3
"""Joints below this score are in the data, but are neither drawn nor counted."""


def objects(raw: Any, call: Call) -> Adapted:
    """[{label, score, box {xmin, ymin, xmax, ymax}}], best first, boxes in whole pixels."""
    rows = best_first(read_rows(raw, {"label": text, "score": score, "box": _box}))
    labels = [row["label"] for row in rows]
    captions = [f"{row['label']} {row['score']:.2f}" for row in rows]
    boxes = [tuple(row["box"].values()) for row in rows]
    drawn = draw_boxes(_input_image(call), list(zip(labels, captions, boxes, strict=True)))
    picture = save_image(drawn, call, "objects found")
    summary = f"{quantity(len(rows), 'object')}: {tally(labels)}" if rows else "no objects"
    return Adapted(rows, summary, (picture,))


def segments(raw: Any, call: Call) -> Adapted:
    """[{label, score or None, mask}]; each mask is a PNG, white inside the segment."""
    rows = read_rows(raw, {"label": text, "mask": _mask}, {"score": score})
    saved, files = _save_masks(rows, [row["label"] for row in rows], call, "segments found")
    shares = [sum(row["mask"].histogram()[128:]) / (row["mask"].width * row["mask"].height) for row in rows]
    named = (f"{row['label']} ({100 * share:.0f} %)" for row, share in zip(rows, shares, strict=True))
    summary = f"{quantity(len(saved), 'segment')}: {', '.join(named)}" if saved else "no segments"
    return Adapted([{"score": None, **row} for row in saved], summary, files)


def unlabelled_masks(raw: Any, call: Call) -> Adapted:
    """[{mask, score}] of all parts of an image, best first; each mask becomes a PNG."""
    rows = best_first(read_rows(raw, {"mask": _mask, "score": score}))
    saved, files = _save_masks(rows, [""] * len(rows), call, "masks found")
    return Adapted(saved, quantity(len(saved), "mask") if saved else "no masks", files)


def _save_masks(
    rows: Sequence[Mapping[str, Any]], labels: Sequence[str], call: Call, name: str
) -> tuple[list[dict[str, Any]], tuple[Resource, ...]]:
    """The rows with the paths of their masks; the image with the masks drawn, and the masks, as files."""
    named = [
        (place, label, row["mask"]) for place, (label, row) in enumerate(zip(labels, rows, strict=True), 1)
    ]
    drawn = [(label or str(place), label, mask) for place, label, mask in named]
    picture = save_image(draw_masks(_input_image(call), drawn), call, name)
    files = [
        save_image(mask, call, f"mask of {label}" if label else f"mask {place}")
        for place, label, mask in named
    ]
    saved = [{**row, "mask": str(file.path)} for row, file in zip(rows, files, strict=True)]
    return saved, (picture, *files)


def people(raw: Any, call: Call) -> Adapted:
    """[{score, box?, keypoints [{label, x, y, score}]}], one row a person, best first.

    Coordinates are pixels of the image. Edges (pairs of indices into `keypoints`) are drawn only.
    """
    fields = {"score": score, "keypoints": _joints}
    rows = best_first(read_rows(raw, fields, {"box": _box, "edges": _edges}))
    skeletons = [_skeleton(row["keypoints"], row.pop("edges", [])) for row in rows]
    picture = save_image(draw_skeletons(_input_image(call), skeletons), call, "people found")
    seen = [sum(joint is not None for joint in joints) for joints, _ in skeletons]
    counts = ", ".join(f"{quantity(count, 'joint')} seen" for count in seen)
    return Adapted(rows, f"{quantity(len(rows), 'person')}: {counts}" if rows else "no people", (picture,))


def _skeleton(joints: list[dict[str, Any]], edges: list[tuple[int, int]]) -> Skeleton:
    if any(not 0 <= place < len(joints) for edge in edges for place in edge):
        raise UnexpectedError(f"edges between the {len(joints)} keypoints")
    seen = [(joint["x"], joint["y"]) if joint["score"] >= MIN_JOINT_SCORE else None for joint in joints]
    return seen, edges


def _joints(value: Any) -> list[dict[str, Any]]:
    return read_rows(value, {"label": text, "x": _coordinate, "y": _coordinate, "score": score})


def _coordinate(value: Any) -> float:
    return round(number(value), 1)


def _edges(value: Any) -> list[tuple[int, int]]:
    return [(int(start), int(end)) for start, end in to_matrix(value, 2, "edges as pairs of keypoints")]


def _box(value: Any) -> dict[str, int]:
    sides = ("xmin", "ymin", "xmax", "ymax")
    if not isinstance(value, Mapping) or not all(side in value for side in sides):
        raise UnexpectedError("a box {xmin, ymin, xmax, ymax} for each object")
    return {side: round(number(value[side])) for side in sides}


def _mask(value: Any) -> Image:
    return to_image(value).convert("L")


def _input_image(call: Call) -> Image:
    image: Image = call.inputs["image"].to_pil()
    return image


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

    picture = _opaque(image)
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

    picture = _opaque(image)
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

    picture = _opaque(image)
    pen = ImageDraw.Draw(picture)
    width = max(2, min(picture.size) // 120)
    for place, (joints, bones) in reversed(list(enumerate(skeletons))):
        for start, end in ((joints[first], joints[second]) for first, second in bones):
            if start and end:
                pen.line((start, end), fill=PALETTE[place % len(PALETTE)], width=width)
        for joint in filter(None, joints):
            pen.circle(joint, width + 1, fill="white", outline="black", width=max(1, width // 3))
    return picture


def _opaque(image: Image) -> Image:
    """A copy in RGB, with white where the image is transparent."""
    from PIL import Image as Images

    seen = image.convert("RGBA")
    paper = Images.new("RGBA", seen.size, "white")
    return Images.alpha_composite(paper, seen).convert("RGB")


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
