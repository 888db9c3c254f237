"""Adapters of boxes, masks and keypoints found in an image: as data, and drawn onto the image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.outputs.files import save_image, to_image
from jarvis_agent.backends.outputs.overlays import Box, Mask, Skeleton, draw_boxes, draw_masks, draw_skeletons
from jarvis_agent.backends.outputs.validators import (
    Adapted,
    UnexpectedError,
    number,
    optional_score,
    quantity,
    require_rows,
    score,
    tally,
    text,
    to_list,
)
from jarvis_agent.core.types import Resource

if TYPE_CHECKING:
    from PIL.Image import Image

MIN_JOINT_SCORE = 0.3
"""Joints below this score are in the data, but are neither drawn nor counted."""

_SIDES = ("xmin", "ymin", "xmax", "ymax")


def objects(raw: Any, call: Call) -> Adapted:
    """[{label, score, box {xmin, ymin, xmax, ymax}}], best first, boxes in whole pixels."""
    found: list[dict[str, Any]] = [
        {"label": text(row["label"]), "score": score(row["score"]), "box": _box(row["box"])}
        for row in require_rows(raw, "label", "score", "box")
    ]
    found.sort(key=lambda row: -row["score"])
    boxes = [Box(row["label"], f"{row['label']} {row['score']:.2f}", **row["box"]) for row in found]
    picture = save_image(draw_boxes(_input_image(call), boxes), call, "objects found")
    names = [row["label"] for row in found]
    summary = f"{quantity(len(found), 'object')}: {tally(names)}" if found else "no objects"
    return Adapted(found, summary, (picture,))


def segments(raw: Any, call: Call) -> Adapted:
    """[{label, score or None, mask}]; each mask is a PNG, white inside the segment."""
    found: list[dict[str, Any]] = []
    masks: list[Mask] = []
    files: list[Resource] = []
    shares: list[str] = []
    for row in require_rows(raw, "label", "mask"):
        label, mask = text(row["label"]), to_image(row["mask"]).convert("L")
        files.append(save_image(mask, call, f"mask of {label}"))
        masks.append(Mask(label, label, mask))
        found.append({"label": label, "score": optional_score(row.get("score")), "mask": str(files[-1].path)})
        white = sum(mask.histogram()[128:])
        shares.append(f"{label} ({100 * white / (mask.width * mask.height):.0f} %)")
    picture = save_image(draw_masks(_input_image(call), masks), call, "segments found")
    summary = f"{quantity(len(found), 'segment')}: {', '.join(shares)}" if found else "no segments"
    return Adapted(found, summary, (picture, *files))


def unlabelled_masks(raw: Any, call: Call) -> Adapted:
    """[{mask, score}] of all parts of an image, best first; each mask becomes a PNG."""
    ranked = sorted(require_rows(raw, "mask", "score"), key=lambda row: -number(row["score"]))
    found: list[dict[str, Any]] = []
    masks: list[Mask] = []
    files: list[Resource] = []
    for place, row in enumerate(ranked, 1):
        mask = to_image(row["mask"]).convert("L")
        files.append(save_image(mask, call, f"mask {place}"))
        masks.append(Mask(str(place), "", mask))
        found.append({"score": score(row["score"]), "mask": str(files[-1].path)})
    picture = save_image(draw_masks(_input_image(call), masks), call, "masks found")
    return Adapted(found, quantity(len(found), "mask") if found else "no masks", (picture, *files))


def people(raw: Any, call: Call) -> Adapted:
    """[{score, box?, keypoints [{label, x, y, score}], edges?}], one row a person, best first.

    Coordinates are pixels of the image. Edges (pairs of indices into `keypoints`) are drawn only.
    """
    ranked = sorted(require_rows(raw, "score", "keypoints"), key=lambda row: -number(row["score"]))
    found = [_person(row) for row in ranked]
    skeletons = [
        Skeleton(
            tuple(
                (joint["x"], joint["y"]) if joint["score"] >= MIN_JOINT_SCORE else None for joint in joints
            ),
            _edges(row.get("edges"), len(joints)),
        )
        for row, joints in zip(ranked, (person["keypoints"] for person in found), strict=True)
    ]
    picture = save_image(draw_skeletons(_input_image(call), skeletons), call, "people found")
    if not found:
        return Adapted(found, "no people", (picture,))
    seen = [sum(joint is not None for joint in skeleton.joints) for skeleton in skeletons]
    counts = ", ".join(f"{quantity(joints, 'joint')} seen" for joints in seen)
    return Adapted(found, f"{quantity(len(found), 'person')}: {counts}", (picture,))


def _person(row: Mapping[str, Any]) -> dict[str, Any]:
    joints = [
        {
            "label": text(joint["label"]),
            "x": round(number(joint["x"]), 1),
            "y": round(number(joint["y"]), 1),
            "score": score(joint["score"]),
        }
        for joint in require_rows(row["keypoints"], "label", "x", "y", "score")
    ]
    box = {} if row.get("box") is None else {"box": _box(row["box"])}
    return {"score": score(row["score"]), **box, "keypoints": joints}


def _edges(given: Any, joints: int) -> tuple[tuple[int, int], ...]:
    pairs = to_list(given) or ()
    if not isinstance(pairs, list | tuple) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs
    ):
        raise UnexpectedError("edges as pairs of keypoints")
    found = tuple((int(number(one)), int(number(other))) for one, other in pairs)
    if any(not 0 <= place < joints for pair in found for place in pair):
        raise UnexpectedError(f"edges between the {joints} keypoints")
    return found


def _box(given: Any) -> dict[str, int]:
    if not isinstance(given, Mapping) or not all(side in given for side in _SIDES):
        raise UnexpectedError("a box {xmin, ymin, xmax, ymax} for each object")
    return {side: round(number(given[side])) for side in _SIDES}


def _input_image(call: Call) -> Image:
    image: Image = call.inputs["image"].to_pil()
    return image
