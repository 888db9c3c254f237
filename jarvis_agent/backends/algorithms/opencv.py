"""Control maps by algorithms of OpenCV, without a model: `canny-control` and similar tasks of the paper.

    CONTROL_MAPS["canny-control"].draw(rgb)   # uint8 (height, width, 3) → (height, width), white on black

A new algorithm is a function and a row of CONTROL_MAPS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.core.errors import MissingExtraError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate
from jarvis_agent.media.image import open_image

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class ControlMap:
    """One algorithm: from an RGB image to a drawing in white on black of the same size."""

    id: str
    description: str
    draw: Callable[[Pixels], Pixels]


def canny(rgb: Pixels) -> Pixels:
    """Canny edges, with thresholds relative to the median brightness, so that dark photos have edges too."""
    import cv2
    import numpy as np

    gray = cv2.GaussianBlur(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), (3, 3), 0)
    middle = float(np.median(gray))
    return _pixels(cv2.Canny(gray, max(20.0, 0.66 * middle), max(60.0, min(255.0, 1.33 * middle))))


def soft_edges(rgb: Pixels) -> Pixels:
    """Soft edges like HED's: the strongest Scharr gradient of the colours, blurred."""
    import cv2
    import numpy as np

    smooth = cv2.GaussianBlur(rgb, (5, 5), 0).astype(np.float32)
    across, down = cv2.Scharr(smooth, cv2.CV_32F, 1, 0), cv2.Scharr(smooth, cv2.CV_32F, 0, 1)
    strength = cv2.GaussianBlur(np.hypot(across, down).max(axis=2), (3, 3), 0)
    brightest = max(float(np.percentile(strength, 99)), 1.0)
    return _pixels((strength / brightest).clip(0, 1) ** 0.8 * 255)


def line_segments(rgb: Pixels) -> Pixels:
    """Straight line segments like MLSD's: the long ones of the LSD detector (von Gioi, 2010)."""
    import cv2
    import numpy as np

    found = cv2.createLineSegmentDetector().detect(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY))[0]
    lines = np.empty((0, 4)) if found is None else found.reshape(-1, 4)
    lengths = np.hypot(lines[:, 0] - lines[:, 2], lines[:, 1] - lines[:, 3])
    drawing = np.zeros(rgb.shape[:2], np.uint8)
    for x1, y1, x2, y2 in lines[lengths > min(rgb.shape[:2]) / 16].round().astype(int).tolist():
        cv2.line(drawing, (x1, y1), (x2, y2), 255, 1, cv2.LINE_AA)
    return drawing


def scribble(rgb: Pixels) -> Pixels:
    """Bold strokes: the long ridges of strong soft edges, drawn thick."""
    import cv2
    import numpy as np

    short_side = min(rgb.shape[:2])
    soft = cv2.GaussianBlur(soft_edges(rgb), (0, 0), max(short_side / 150, 1.0))
    # A ridge point is the highest of three in a row, in any of four directions.
    slope, across = np.eye(3, dtype=np.uint8), np.zeros((3, 3), np.uint8)
    across[1] = 1
    rows = (across, across.T, slope, slope[::-1])
    ridge = np.any([cv2.dilate(soft, np.ascontiguousarray(row)) == soft for row in rows], axis=0)
    strong = ridge & (soft > max(float(np.percentile(soft, 85)), 16.0))
    _, marks, facts, _ = cv2.connectedComponentsWithStats(_pixels(strong), connectivity=8)
    long_ones = facts[:, cv2.CC_STAT_AREA] > short_side / 8
    long_ones[0] = False  # the background
    drawing = _pixels(long_ones[marks] * 255)
    return _pixels(cv2.dilate(drawing, cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (3, 3))))


def _pixels(values: Any) -> Pixels:
    import numpy as np

    return np.asarray(values).astype(np.uint8)


CONTROL_MAPS: dict[str, ControlMap] = {
    "canny-control": ControlMap("opencv/canny", "Canny edge detection (an algorithm, no model).", canny),
    "hed-control": ControlMap("opencv/soft-edge", "Soft edges like HED's, by Scharr gradients.", soft_edges),
    "mlsd-control": ControlMap(
        "opencv/lines", "Straight lines like MLSD's, by the LSD detector.", line_segments
    ),
    "scribble-control": ControlMap("opencv/scribble", "Bold strokes along the main edges.", scribble),
}
"""The control maps without a model, by task. Depth, normals, pose and segmentation need one."""


class OpenCVBackend(LocalBackend):
    """Draws control maps with OpenCV. The raw output is a PIL image in mode L, of the size of its input."""

    name = "opencv"

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """Return None if the candidate is the algorithm of this task and OpenCV is installed, else the
        reason."""
        control_map = CONTROL_MAPS.get(spec.name)
        if control_map is None or control_map.id != candidate.id:
            return f"{candidate.id} is not an OpenCV algorithm for {spec.name}"
        if find_spec("cv2") is None:
            return str(MissingExtraError(candidate.id, "starter"))
        return None

    def load(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        """The algorithm, as an expert."""
        draw = CONTROL_MAPS[spec.name].draw

        def expert(call: Call) -> Any:
            import numpy as np
            from PIL import Image

            rgb = np.asarray(open_image(call.inputs["image"]).convert("RGB"))
            return Image.fromarray(draw(rgb))

        return expert
