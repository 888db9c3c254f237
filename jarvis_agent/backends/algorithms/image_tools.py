"""Tools for images with Pillow: another size, a part of it.

resize(call)     # inputs: image, width and height in pixels, of which one may be absent
crop(call)       # inputs: image, box: [xmin, ymin, xmax, ymax], {xmin, …}, a detection, or those as text
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.base import Call
from jarvis_agent.core.errors import BadInputError
from jarvis_agent.media.files import open_image

if TYPE_CHECKING:
    from PIL.Image import Image

_SIDES = ("xmin", "ymin", "xmax", "ymax")
_BOX_FORMS = "[xmin, ymin, xmax, ymax] in pixels, or a detection that has a box"


def resize(call: Call) -> Image:
    """The image in another size; with one side given, the other follows.

    Raises:
        BadInputError: no side is given, one is no whole number above 0, or there would be too many pixels.
    """
    from PIL import Image as Images

    image = open_image(call.inputs["image"])
    wide, high = whole_number(call, "width"), whole_number(call, "height")
    if wide is None and high is None:
        raise BadInputError("resize-image needs a width or a height in pixels, such as 512")
    most = call.settings.max_pixels
    if max(wide or 1, high or 1) > most:
        raise BadInputError(f"an image with a side of more than {most:,} pixels is asked for; ask for less")
    width = wide or max(1, round(image.width * (high or 0) / image.height))
    height = high or max(1, round(image.height * width / image.width))
    if width * height > most:
        raise BadInputError(
            f"an image of {width} × {height} pixels would have more than {most:,} (JARVIS_MAX_PIXELS); "
            "ask for a smaller one"
        )
    return image.resize((width, height), Images.Resampling.LANCZOS)


def crop(call: Call) -> Image:
    """The part of the image that lies in a box; of several detections the one with the best score.

    Raises:
        BadInputError: the box can not be read, or nothing of the image lies in it.
    """
    image = open_image(call.inputs["image"])
    left, top, right, bottom = _box(call.inputs.get("box"))
    part = (
        max(0, math.floor(left)),
        max(0, math.floor(top)),
        min(image.width, math.ceil(right)),
        min(image.height, math.ceil(bottom)),
    )
    if part[0] >= part[2] or part[1] >= part[3]:
        raise BadInputError(
            f"nothing of the image ({image.width} × {image.height} pixels) lies in the box "
            f"{[left, top, right, bottom]}"
        )
    return image.crop(part)


def whole_number(call: Call, name: str) -> int | None:
    """An argument of a call as a whole number above 0, also from text ("512", "512 px"); None without any.

    Raises:
        BadInputError: it is something else.
    """
    given = call.inputs.get(name)
    if given is None or given == "":
        return None
    text = str(given).strip().lower().removesuffix("pixels").removesuffix("px").strip()
    try:
        found = float("nan" if isinstance(given, bool) else text)
    except ValueError:
        found = math.nan
    if not (math.isfinite(found) and found == int(found) and found > 0):
        raise BadInputError(f"{call.spec.name} needs a whole number above 0 for {name}, not {given!r}")
    return int(found)


def _box(given: Any) -> tuple[float, float, float, float]:
    if isinstance(given, str):
        given = _from_text(given)
    if isinstance(given, list | tuple) and any(isinstance(row, Mapping) for row in given):
        given = _best(given)
    if isinstance(given, Mapping):
        given = given.get("box", given)
    if isinstance(given, Mapping):
        given = [given.get(side) for side in _SIDES]
    try:
        left, top, right, bottom = (float(side) for side in given)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadInputError(f"{str(given)[:80]!r} is no box; give {_BOX_FORMS}") from error
    if not all(map(math.isfinite, (left, top, right, bottom))):
        raise BadInputError(f"the box {str(given)[:80]} has sides that are no finite numbers")
    return min(left, right), min(top, bottom), max(left, right), max(top, bottom)


def _from_text(given: str) -> Any:
    """JSON, or four bare numbers: "10, 20, 200, 220"."""
    try:
        return json.loads(given)
    except (ValueError, RecursionError):
        return given.strip(" <>()").replace(",", " ").split()


def _best(rows: list[Any] | tuple[Any, ...]) -> Any:
    boxed = [row for row in rows if isinstance(row, Mapping) and ("box" in row or set(_SIDES) <= row.keys())]
    if not boxed:
        raise BadInputError(f"none of the {len(rows)} things found has a box; give {_BOX_FORMS}")
    return max(boxed, key=_score)


def _score(row: Mapping[str, Any]) -> float:
    score = row.get("score")
    return float(score) if isinstance(score, int | float) else 0.0
