"""Boxes in an image, as people, language models and detectors write them.

    read_box([10, 20, 200, 220], 640, 480)                # ((10, 20, 200, 220), [])
    read_box("left half", 640, 480)                       # ((0, 0, 320, 480), [])
    read_box({"box_2d": [0, 500, 1000, 1000]}, 640, 480)  # ((320, 0, 640, 480), []): Gemini
    read_box([0.5, 0, 1, 1], 640, 480)                    # … ["the box was taken as shares of the image …"]

The unit follows from the numbers: shares if none is above 1; pixels if they fit into the image; else
thousandths of its sides, as Qwen and Gemini count, if none is above 1000. A box of {xmin, ymin, xmax, ymax},
which detectors give, is never one of thousandths, and `box_2d` is never one of pixels.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from jarvis_agent.core.errors import BadInputError
from jarvis_agent.core.text import read_literal

Box = tuple[float, float, float, float]
"""Left, top, right and bottom."""

_FORMS = (
    "[xmin, ymin, xmax, ymax] or {x, y, width, height} in pixels or in shares of the image (0 to 1), "
    'a detection that has a box, or a part such as "left half"'
)

_EDGES = (
    ("xmin", "ymin", "xmax", "ymax"),
    ("left", "top", "right", "bottom"),
    ("x0", "y0", "x1", "y1"),
    ("x1", "y1", "x2", "y2"),
)
_SIZES = (("x", "y", "width", "height"), ("x", "y", "w", "h"), ("left", "top", "width", "height"))
_NESTED = ("box", "bbox", "bbox2d", "box2d", "boundingbox")
_OVERSHOOT = 1.02
"""Detectors and language models draw boxes a little beyond the image."""

_SIDES = {
    **dict.fromkeys(("left", "左"), (0, 0.0)),
    **dict.fromkeys(("right", "右"), (0, 1.0)),
    **dict.fromkeys(("top", "upper", "上"), (1, 0.0)),
    **dict.fromkeys(("bottom", "lower", "下"), (1, 1.0)),
}
"""Axis and place of the sides in the name of a part."""

_MIDDLE = frozenset({"centre", "center", "central", "middle", "中"})
_SHARES = {"third": 1 / 3, "三分之一": 1 / 3, "quarter": 1 / 4, "四分之一": 1 / 4}
_FILLERS = ("the", "of", "half", "side", "part", "corner", "hand", "image", "picture", "photo")
_CHINESE_FILLERS = "半边部分角侧面间央的图片像"
_WORDS = re.compile(r"[a-z]+|[三四]分之一|[^\W_]")


def _part(name: str, width: int, height: int) -> Box | None:
    """The box of a named part in pixels; None if the name has other words or no side.

    One side means its half, third or quarter; two sides mean a corner, with half of each side.
    """
    words = _WORDS.findall(name[:100].lower())
    places = dict(_SIDES[word] for word in words if word in _SIDES)
    shares = [_SHARES[word] for word in words if word in _SHARES]
    is_centred = not _MIDDLE.isdisjoint(words)
    known = {*_SIDES, *_MIDDLE, *_SHARES, *_FILLERS, *_CHINESE_FILLERS}
    sides = sum(word in _SIDES for word in words)
    if not known.issuperset(words) or sides != len(places) or len(shares) > 1 or not (places or is_centred):
        return None
    if is_centred:  # The middle third is as high as the image; the centre is away from all sides.
        places = {0: 0.5} if shares and not places else {0: 0.5, 1: 0.5, **places}
    share = shares[0] if shares and len(places) == 1 else 1 / 2
    left, top, right, bottom = 0.0, 0.0, float(width), float(height)
    if 0 in places:
        left = places[0] * (1 - share) * width
        right = left + share * width
    if 1 in places:
        top = places[1] * (1 - share) * height
        bottom = top + share * height
    return round(left), round(top), round(right), round(bottom)


def read_box(value: Any, width: int, height: int) -> tuple[Box, list[str]]:
    """A box in pixels, and notes on what was assumed. Of several detections it is that with the best score.

    Raises:
        BadInputError: it has none of the forms, or several meanings.
    """
    if isinstance(value, str):
        if part := _part(value, width, height):
            return part, []
        value = _parsed(value)
    notes: list[str] = []
    rows = value if isinstance(value, list | tuple) else []
    if any(isinstance(row, Mapping) for row in rows) and not _point(rows[0]):
        value = _best(rows, notes)
    numbers, form = _numbers(value)
    if numbers is None or not all(map(math.isfinite, numbers)):
        raise BadInputError(f"{str(value)[:80]!r} is not a box; give {_FORMS}")
    if form == "box2d":
        numbers = (numbers[1], numbers[0], numbers[3], numbers[2])
    if numbers[0] >= numbers[2] or numbers[1] >= numbers[3]:  # Reversed, it may be [x, y, width, height].
        raise BadInputError(f"the box {str(value)[:80]} ends before it begins, or is empty; give {_FORMS}")
    fits = numbers[2] <= width * _OVERSHOOT and numbers[3] <= height * _OVERSHOOT
    unit, across, down = _unit(numbers, form, fits, width, height)
    if form != "box2d" and (unit != "pixels" or form == "bbox2d"):
        notes.append(f"the box was taken as {unit}")
    elif unit == "pixels" and not fits:
        notes.append("the box reaches beyond the image, and was cut off at its sides")
    left, top, right, bottom = numbers
    return (
        round(left * across, 3),
        round(top * down, 3),
        round(right * across, 3),
        round(bottom * down, 3),
    ), notes


def _unit(numbers: Box, form: str, fits: bool, width: int, height: int) -> tuple[str, float, float]:
    """The unit of a box, and its size in pixels across and down."""
    left, top, right, bottom = numbers
    has_fractions = not all(number.is_integer() for number in numbers)
    if max(numbers) <= 1 or (max(numbers) < 2 and has_fractions):
        return "shares of the image", width, height
    may_count = form != "xmin" and min(numbers) >= 0 and max(numbers) <= 1000
    # What would be a single pixel is rather a box outside the image.
    is_visible = (right - left) * width >= 2000 and (bottom - top) * height >= 2000
    if form == "box2d" or (may_count and is_visible and not fits):
        return "thousandths of the sides of the image", width / 1000, height / 1000
    return "pixels", 1, 1


def _parsed(text: str) -> Any:
    """The JSON in a text, or its bare numbers: "10, 20, 200, 220", "<box>(10,20),(200,220)</box>"."""
    if found := re.search(r"[\[{].*[\]}]", text[:10_000], re.DOTALL):
        value = read_literal(found[0])
        if value is not None:
            return value
    bare = re.sub(r"<[^<>]*>|px|[()<>|,;\s]", " ", text[:1000])
    try:
        return [float(number) for number in bare.split()]
    except ValueError:
        return text


def _best(rows: Any, notes: list[str]) -> Any:
    boxed = [row for row in rows if isinstance(row, Mapping) and _numbers(row)[0]]
    if not boxed:
        raise BadInputError(f"none of the {len(rows)} detections has a box; give {_FORMS}")
    if len(boxed) > 1 and not any("score" in row for row in boxed):
        notes.append(f"the first of {len(boxed)} boxes was taken")
    return max(boxed, key=_score)


def _score(row: Mapping[str, Any]) -> float:
    score = row.get("score")
    return float(score) if isinstance(score, int | float) else 0.0


def _numbers(value: Any, form: str = "") -> tuple[Box | None, str]:
    """The four numbers of a box, and its form: the name of its field or of its first number."""
    if isinstance(value, Mapping):
        fields = {re.sub(r"[\W_]", "", str(name)).lower(): part for name, part in value.items()}
        if nested := next((name for name in _NESTED if fields.get(name)), ""):
            return _numbers(fields[nested], nested)
        for names in (*_EDGES, *_SIZES):
            if fields.keys() >= set(names) and (box := _four([fields[name] for name in names])):
                left, top, right, bottom = box
                if names in _SIZES:
                    return (left, top, left + right, top + bottom), "x"
                return _sorted(box), names[0]
        return None, form
    if not isinstance(value, list | tuple):
        return None, form
    points = [_point(item) for item in value]
    if len(points) > 1 and all(points):
        across, down = zip(*filter(None, points), strict=True)
        return (min(across), min(down), max(across), max(down)), "points"
    if len(value) == 1:
        return _numbers(value[0], form)
    return _four(value), form


def _sorted(box: Box) -> Box:
    return min(box[0], box[2]), min(box[1], box[3]), max(box[0], box[2]), max(box[1], box[3])


def _four(numbers: Any) -> Box | None:
    try:
        left, top, right, bottom = (float(number) for number in numbers)
    except (TypeError, ValueError, OverflowError):
        return None
    return left, top, right, bottom


def _point(value: Any) -> tuple[float, float] | None:
    """A point, written [x, y] or {x, y}."""
    if isinstance(value, Mapping) and value.keys() == {"x", "y"}:
        value = [value["x"], value["y"]]
    try:
        across, down = (float(number) for number in value)
    except (TypeError, ValueError, OverflowError):
        return None
    return across, down
