"""Boxes in an image, as people, language models and detectors write them.

The unit follows from the numbers: shares if none is above 1; pixels if they fit into the image; else
thousandths of its sides, as Qwen and Gemini count, if none is above 1000. A box of {xmin, ymin, xmax, ymax},
which detectors give, is never one of thousandths, and `box_2d` is never one of pixels.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from jarvis_agent.core.errors import BadInputError
from jarvis_agent.core.notes import Note
from jarvis_agent.core.text import read_literal

_HINT = (
    "give [xmin, ymin, xmax, ymax] or {x, y, width, height} in pixels or in shares of the image (0 to 1), "
    'a detection that has a box, or a part such as "left half" or "square"'
)
_HOLDERS = ("box", "bbox", "bbox2d", "box2d", "boundingbox")
_CORNERS = ("xmin ymin xmax ymax", "left top right bottom", "x0 y0 x1 y1", "x1 y1 x2 y2")
_SIZES = ("x y width height", "x y w h", "left top width height")
_FIELDS = (*_HOLDERS, *_CORNERS, *_SIZES, "x y")
"""The fields of what holds a box, of boxes and of points; the first that fit count."""
_OVERSHOOT = 1.02
"""Detectors and language models draw boxes a little beyond the image."""

_SIDES = {
    **dict.fromkeys(("left", "左"), (0, 0.0)),
    **dict.fromkeys(("right", "右"), (0, 1.0)),
    **dict.fromkeys(("top", "upper", "上"), (1, 0.0)),
    **dict.fromkeys(("bottom", "lower", "下"), (1, 1.0)),
}
"""Axis and place of the sides in the name of a part."""
_MIDDLE = frozenset({"centre", "center", "middle", "中"})
_SHARES = {"third": 1 / 3, "三分之一": 1 / 3, "quarter": 1 / 4, "四分之一": 1 / 4}
_SQUARE = frozenset({"square", *"正方形"})
_FILLERS = {"the", "of", "half", "side", "part", "corner", "image", "picture", "photo"}
_KNOWN = {*_SIDES, *_MIDDLE, *_SHARES, *_SQUARE, *_FILLERS, *"半边部分角侧面间央的图片像"}
_WORDS = re.compile(r"[a-z]+|[三四]分之一|[^\W_]")


def read_box(value: Any, width: int, height: int) -> tuple[list[float], list[str]]:
    """A box as left, top, right and bottom in pixels, and notes on what was assumed.

    Of several detections it is the best. BadInputError: the value has no known form, or several meanings.
    """
    notes: list[str] = []
    numbers, form = _part(value, width / height) if isinstance(value, str) else [], "part"
    if not numbers:
        numbers, form = _numbers(_best(_parsed(value) if isinstance(value, str) else value, notes))
    if len(numbers) != 4 or not all(map(math.isfinite, numbers)):
        raise BadInputError(f"{str(value)[:80]!r} is not a box; {_HINT}")
    left, top, right, bottom = numbers
    if left >= right or top >= bottom:  # Reversed, it may be [x, y, width, height].
        raise BadInputError(f"the box {str(value)[:80]} ends before it begins, or is empty; {_HINT}")
    fits = right <= width * _OVERSHOOT and bottom <= height * _OVERSHOOT
    is_inside = fits and min(left / width, top / height) >= 1 - _OVERSHOOT
    # What would be a single pixel is rather a box outside the image.
    is_visible = (right - left) * width >= 2000 and (bottom - top) * height >= 2000
    may_count = form != "xmin" and is_visible and min(numbers) >= 0 and max(numbers) <= 1000
    unit, across, down = "pixels", 1.0, 1.0
    if form == "box2d" or (may_count and not fits):
        unit, across, down = "thousandths of the sides of the image", width / 1000, height / 1000
    elif max(numbers) < 2:
        unit, across, down = "shares of the image", width, height
    if form == "bbox2d" or (unit != "pixels" and form not in ("part", "box2d")):
        notes.append(Note("the box was taken as {unit}", unit=Note(unit)))
    elif unit == "pixels" and not is_inside:
        notes.append(Note("the box reaches beyond the image, and was cut off at its sides"))
    sides = [n * size for n, size in zip(numbers, (across, down) * 2, strict=True)]
    # Halves go down at both sides, so that a square stays one.
    return [round(side - 0.001) if form == "part" else round(side, 3) for side in sides], notes


def _part(name: str, aspect: float) -> list[float]:
    """The box of a named part in shares of the image; [] if the name has other words or no part.

    One side means its half, third or quarter; two sides mean a corner, with half of each side. A square is
    the largest one in the middle of an image with this ratio of width and height.
    """
    words = _WORDS.findall(name[:100].lower())
    sides = [_SIDES[word] for word in words if word in _SIDES]
    shares = [_SHARES[word] for word in words if word in _SHARES]
    places, is_centred = dict(sides), not _MIDDLE.isdisjoint(words)
    is_clear = _KNOWN.issuperset(words) and len(sides) == len(places) and len(shares) <= 1
    is_square = not _SQUARE.isdisjoint(words)
    if is_clear and is_square and not (places or shares):
        across, down = (1 - 1 / max(aspect, 1)) / 2, (1 - min(aspect, 1)) / 2
        return [across, down, 1 - across, 1 - down]
    if not is_clear or is_square or not (places or is_centred):
        return []
    if is_centred:  # The middle third is as high as the image; the centre is away from all sides.
        places = {0: 0.5} if shares and not places else {0: 0.5, 1: 0.5, **places}
    share = shares[0] if shares and len(places) == 1 else 1 / 2
    box = [0.0, 0.0, 1.0, 1.0]
    for axis, place in places.items():
        box[axis] = place * (1 - share)
        box[axis + 2] = box[axis] + share
    return box


def _parsed(text: str) -> Any:
    """The JSON in a text, or its bare parts: "10, 20, 200, 220", "<box>(10,20),(200,220)</box>"."""
    match = re.search(r"[\[{].*[\]}]", text[:10_000], re.DOTALL)
    value = read_literal(match[0]) if match else None
    return value if value is not None else re.sub(r"<[^<>]*>|px|[(),;]", " ", text[:1000]).split()


def _best(value: Any, notes: list[str]) -> Any:
    """Of a list of detections the best one, else the value."""
    rows = [row for row in value if isinstance(row, Mapping)] if isinstance(value, list | tuple) else []
    boxed = [row for row in rows if len(_numbers(row)[0]) == 4]
    scores = [row.get("score") for row in boxed]
    if len(boxed) > 1 and scores == [None] * len(boxed):
        notes.append(Note("the first of {number} boxes was taken", number=len(boxed)))
    return max(boxed, key=lambda row: _numbers(row.get("score", 0))[0], default=value)


def _numbers(value: Any, form: str = "") -> tuple[list[float], str]:
    """The numbers of a box or point, NaN for others, and its form: the name of the field that tells it."""
    if isinstance(value, Mapping):
        fields = {re.sub(r"[\W_]", "", str(name)).lower(): part for name, part in value.items()}
        names = next((names for names in map(str.split, _FIELDS) if fields.keys() >= {*names}), [])
        if len(names) == 1:
            return _numbers(fields[names[0]], names[0])
        numbers, _ = _numbers([fields[name] for name in names])
        if len(numbers) == 4 and " ".join(names) in _SIZES:
            numbers[2:] = numbers[0] + numbers[2], numbers[1] + numbers[3]
        return numbers, names[0] if names else form
    if isinstance(value, list | tuple):
        if len(value) == 1:
            return _numbers(value[0], form)
        parts = [_numbers(part)[0] for part in value]
        if len(parts) > 1 and all(len(part) == 2 for part in parts):
            across, down = zip(*parts, strict=True)
            parts, form = [[min(across), min(down), max(across), max(down)]], "points"
        numbers = [number for part in parts for number in part]
        if form == "box2d" and len(numbers) == 4:  # Gemini's begins at the top
            numbers = [numbers[1], numbers[0], numbers[3], numbers[2]]
        return numbers, form
    try:
        return [float(value)], form
    except (TypeError, ValueError, OverflowError):
        return [math.nan], form
