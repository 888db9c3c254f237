"""Control images for ControlNets: by OpenCV from an image, or drawn from the outputs of models.

They follow the training images of ControlNet (Zhang et al., 2023, arXiv 2302.05543).
"""

from __future__ import annotations

import colorsys
import csv
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.base import Call
from jarvis_agent.core.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

    Pixels = NDArray[np.uint8]


def control_map(draw: Callable[[Pixels], Any], call: Call) -> Any:
    """What a function of RGB pixels (height, width, 3) draws of a call's image: grey, (height, width)."""
    import numpy as np

    return draw(np.asarray(call.image()))


def canny(rgb: Pixels) -> Any:
    """Canny edges, with thresholds relative to the median brightness, so that dark photos have edges too."""
    import cv2
    import numpy as np

    gray = cv2.GaussianBlur(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), (3, 3), 0)
    middle = float(np.median(gray))
    return cv2.Canny(gray, max(20.0, 0.66 * middle), max(60.0, min(255.0, 1.33 * middle)))


def soft_edges(rgb: Pixels) -> Any:
    """Soft edges like HED's: the strongest Scharr gradient of the colours, blurred."""
    import cv2
    import numpy as np

    smooth = cv2.GaussianBlur(rgb, (5, 5), 0).astype(np.float32)
    across, down = cv2.Scharr(smooth, cv2.CV_32F, 1, 0), cv2.Scharr(smooth, cv2.CV_32F, 0, 1)
    strength = cv2.GaussianBlur(np.hypot(across, down).max(axis=2), (3, 3), 0)
    brightest = max(float(np.percentile(strength, 99)), 1.0)
    return ((strength / brightest).clip(0, 1) ** 0.8 * 255).astype(np.uint8)


def lines(rgb: Pixels) -> Any:
    """Straight line segments like MLSD's: the long ones of the LSD detector (von Gioi, 2010)."""
    import cv2
    import numpy as np

    segments = cv2.createLineSegmentDetector().detect(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY))[0]
    ends = np.empty((0, 4)) if segments is None else segments.reshape(-1, 4)
    lengths = np.hypot(ends[:, 0] - ends[:, 2], ends[:, 1] - ends[:, 3])
    drawing = np.zeros(rgb.shape[:2], np.uint8)
    for x1, y1, x2, y2 in ends[lengths > min(rgb.shape[:2]) / 16].round().astype(int).tolist():
        cv2.line(drawing, (x1, y1), (x2, y2), 255, 1, cv2.LINE_AA)
    return drawing


def scribble(rgb: Pixels) -> Any:
    """Bold strokes: the Canny edges of a blurred image, drawn thick."""
    import cv2

    coarse = cv2.GaussianBlur(rgb, (0, 0), max(min(rgb.shape[:2]) / 300, 1.0))
    return cv2.dilate(canny(coarse), cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (5, 5)))


Colour = tuple[int, int, int]
Point = tuple[float, float]
Size = tuple[int, int]
"""Width and height in pixels."""

RELIEF = 2.0
"""Slope of a plane that rises from farthest to nearest over the shorter side."""

MIN_SCORE = 0.3
"""Joints below this score are not drawn."""

_COCO_OF = (0, None, 6, 8, 10, 5, 7, 9, 12, 14, 16, 11, 13, 15, 2, 1, 4, 3)
"""For each of OpenPose's 18 joints its index among COCO's 17; None for the neck, which COCO lacks."""

_LIMBS = (
    *((1, 2), (1, 5), (2, 3), (3, 4), (5, 6), (6, 7), (1, 8), (8, 9), (9, 10)),
    *((1, 11), (11, 12), (12, 13), (1, 0), (0, 14), (14, 16), (0, 15), (15, 17)),
)
"""Pairs of OpenPose's joints, in the order of their colours."""


def depth_map(near: Any) -> Image:
    """Grey, mode L: nearest is white, farthest black. `near` is float (h, w)."""
    import numpy as np
    from PIL import Image

    return Image.fromarray((_scaled(near) * 255).round().astype(np.uint8))


def nearness(depth: Any, *, distance: bool) -> Any:
    """Float (h, w), larger = nearer, from a model's depth: a distance, or its reciprocal as in MiDaS."""
    import numpy as np

    depth = np.nan_to_num(np.asarray(depth, dtype=np.float32))
    if not distance:
        return depth
    # Clip near points: one at distance 0 would make all others black.
    return 1 / np.maximum(depth, max(float(np.percentile(depth, 1)), 1e-3))


def normal_map(near: Any) -> Image:
    """Surface normals in RGB, from `near`, float (h, w), larger = nearer.

    (x, y, z) in -1…1 becomes (red, green, blue) in 0…255: x to the left, y up, z to the viewer, as in
    ControlNet's MiDaS and NormalBae maps. Relative depth has no scale, so the slope is set by RELIEF.
    """
    import numpy as np
    from PIL import Image

    scaled = _scaled(near)
    down, across = (
        np.gradient(scaled, axis=axis) if scaled.shape[axis] > 1 else scaled * 0 for axis in (0, 1)
    )
    steep = RELIEF * min(scaled.shape)
    facing = np.stack([steep * across, steep * down, np.ones_like(scaled)], axis=-1)
    facing /= np.linalg.norm(facing, axis=-1, keepdims=True)
    return Image.fromarray((facing * 127.5 + 127.5).round().astype(np.uint8))


def _scaled(near: Any) -> Any:
    """Float (h, w) from 0 (farthest) to 1 (nearest); all 0 where everything is equally far."""
    import numpy as np

    near = np.nan_to_num(np.asarray(near, dtype=np.float32))
    low, high = float(near.min()), float(near.max())
    return (near - low) / (high - low) if high > low else near * 0


def pose_map(people: Iterable[Mapping[str, Any]], size: Size) -> Image:
    """OpenPose's stick figures on black, in RGB, from COCO's `keypoints` {x, y, score} in pixels.

    The first 17 of each person are COCO's joints. Raises UnsupportedError: a person has others.
    """
    from PIL import Image, ImageDraw

    drawing = Image.new("RGB", size)
    pen = ImageDraw.Draw(drawing)
    thick = max(4 * min(size) / 512, 1.0)
    hues = [_hsv(n / 18, 1, 1) for n in range(18)]  # OpenPose's colours
    for person in people:
        joints = openpose_joints(person["keypoints"])
        for (start, end), (red, green, blue) in zip(_LIMBS, hues, strict=False):
            if (a := joints[start]) and (b := joints[end]):
                dimmed = (int(red * 0.6), int(green * 0.6), int(blue * 0.6))
                pen.line((a, b), fill=dimmed, width=round(2 * thick))
        for joint, hue in zip(joints, hues, strict=True):
            if joint:
                pen.circle(joint, thick, fill=hue)
    return drawing


def openpose_joints(keypoints: Sequence[Mapping[str, Any]]) -> list[Point | None]:
    """OpenPose's 18 joints from COCO's 17, the first of the keypoints; None for unseen ones."""
    names = [str(point["label"]).lower() for point in keypoints]
    if len(names) < 17 or "nose" not in names[0] or "shoulder" not in names[5]:
        raise UnsupportedError("a pose needs COCO's 17 joints of a person, which the model does not find")
    seen = [
        (float(point["x"]), float(point["y"])) if point["score"] >= MIN_SCORE else None
        for point in keypoints[:17]
    ]
    left, right = seen[5:7]  # shoulders, whose middle is the neck
    neck = ((left[0] + right[0]) / 2, (left[1] + right[1]) / 2) if left and right else None
    return [neck if place is None else seen[place] for place in _COCO_OF]


def segment_map(segments: Iterable[Mapping[str, Any]], size: Size) -> Image:
    """Each of {label, mask in mode L} in the colour of its class, small ones over large ones; RGB."""
    import numpy as np
    from PIL import Image

    masks = [(str(row["label"]), np.asarray(row["mask"]) >= 128) for row in segments]
    drawing = np.zeros((size[1], size[0], 3), np.uint8)
    for label, mask in sorted(masks, key=lambda region: -int(region[1].sum())):
        drawing[mask] = class_colour(label)
    return Image.fromarray(drawing)


def class_colour(label: str) -> Colour:
    """ADE20K's colour for a class, by any of its names; other classes get a colour from a hash of their name.

    Similar names of other data sets are mapped: COCO's "dog" is an animal, its "wall-brick" a wall.
    """
    colours = ade20k_colours()
    for name in (label, *label.split(","), label.split("-")[0]):
        if (colour := colours.get(name.strip().lower())) is not None:
            return colour
    return _hsv(zlib.crc32(label.strip().lower().encode()) % 360 / 360, 0.7, 0.9)


def _hsv(hue: float, saturation: float, brightness: float) -> Colour:
    red, green, blue = (round(255 * part) for part in colorsys.hsv_to_rgb(hue, saturation, brightness))
    return red, green, blue


@cache
def ade20k_colours() -> Mapping[str, Colour]:
    """Colours of the 150 classes of the ADE20K scene parsing benchmark (Zhou et al., 2017), by their names.

    Source: github.com/CSAILVision/sceneparsing, color150.mat and objectInfo150.txt; some names are COCO's.
    """
    text = files("jarvis_agent.backends.algorithms").joinpath("data/ade20k.csv").read_text("utf-8")
    colours: dict[str, Colour] = {}
    others: dict[str, Colour] = {}
    for row in csv.DictReader(text.splitlines()):
        red, green, blue = bytes.fromhex(row["colour"][1:])
        first, *rest = row["names"].split("|")
        colours[first] = (red, green, blue)
        others |= dict.fromkeys(rest, (red, green, blue))
    return others | colours  # a first name wins: "screen" is also another name of a blind
