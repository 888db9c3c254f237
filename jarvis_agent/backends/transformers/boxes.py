"""Boxes in pixels, and which of those that overlap to keep.

kept = best_apart(boxes, scores, 0.7)      # numbers of the boxes to keep, the best first
"""

from __future__ import annotations

from typing import Any


def best_apart(boxes: Any, scores: Any, overlap: float) -> list[int]:
    """Non-maximum suppression: the best box, then the best of those that do not overlap it too much, ….

    Args:
        boxes: float (n, 4), xmin, ymin, xmax, ymax.
        scores: float (n,).
        overlap: intersection over union beyond which the lesser of two boxes is dropped.
    """
    import numpy as np

    boxes, left = np.asarray(boxes, dtype=np.float64).reshape(-1, 4), np.argsort(-np.asarray(scores))
    kept = []
    while len(left):
        best, left = left[0], left[1:]
        kept.append(int(best))
        left = left[_shared(boxes[best], boxes[left]) <= overlap]
    return kept


def _shared(box: Any, others: Any) -> Any:
    """Intersection over union of a box with each of the others."""
    import numpy as np

    top_left = np.maximum(box[:2], others[:, :2])
    bottom_right = np.minimum(box[2:], others[:, 2:])
    common = (bottom_right - top_left).clip(0).prod(axis=1)
    areas = (others[:, 2:] - others[:, :2]).prod(axis=1) + (box[2:] - box[:2]).prod() - common
    return common / np.maximum(areas, 1e-9)
