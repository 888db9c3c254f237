"""Control maps by algorithms of OpenCV: edges, straight lines, scribbles, in white on black."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.base import Call

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

    Pixels = NDArray[np.uint8]


def control_map(draw: Callable[[Pixels], Any]) -> Callable[[Call], Image]:
    """Turn a function of RGB pixels (height, width, 3) into one of a Call that returns an image in mode L."""

    def run(call: Call) -> Image:
        import numpy as np
        from PIL import Image as Images

        rgb = np.asarray(call.inputs["image"].to_pil().convert("RGB"))
        return Images.fromarray(np.asarray(draw(rgb)).astype(np.uint8))

    return run


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

    found = cv2.createLineSegmentDetector().detect(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY))[0]
    ends = np.empty((0, 4)) if found is None else found.reshape(-1, 4)
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
