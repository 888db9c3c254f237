"""Control maps from models of other tasks: depth-control is drawn from what a depth-estimation model found.

    draw = CONTROL_MAPS["depth-control"]
    draw(raw, loaded, call)               # a PIL image of the size of the call's image

A new map is a function and a row; which task's models make it is `models_of` of its TaskSpec.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.algorithms import control_maps as maps
from jarvis_agent.backends.transformers.loading import Loaded
from jarvis_agent.backends.transformers.vision import picture
from jarvis_agent.core.errors import UnsupportedError

if TYPE_CHECKING:
    from PIL.Image import Image

Draw = Callable[[Any, Loaded, Call], "Image"]
"""From a task's raw output, the model that made it, and the call, to the map."""


def _near(raw: Any) -> Any:
    return maps.nearness(raw["predicted_depth"].float().cpu(), distance=raw["metric"])


def _depth(raw: Any, loaded: Loaded, call: Call) -> Image:
    return _sized(maps.depth_map(_near(raw)), call)


def _normals(raw: Any, loaded: Loaded, call: Call) -> Image:
    return _sized(maps.normal_map(_near(raw)), call)


def _pose(raw: Any, loaded: Loaded, call: Call) -> Image:
    names = loaded.model.config.id2label
    if "nose" not in names.get(0, "").lower() or "shoulder" not in names.get(5, "").lower():
        raise UnsupportedError(
            f"{loaded.id} does not find the joints of people (COCO's 17), of which a pose is drawn"
        )
    return maps.pose_map(raw, picture(call).size)


def _segments(raw: Any, loaded: Loaded, call: Call) -> Image:
    return maps.segment_map([(str(row["label"]), row["mask"]) for row in raw], picture(call).size)


def _sized(drawing: Image, call: Call) -> Image:
    size = picture(call).size
    return drawing if drawing.size == size else drawing.resize(size)


CONTROL_MAPS: dict[str, Draw] = {
    "depth-control": _depth,
    "normal-control": _normals,
    "openpose-control": _pose,
    "seg-control": _segments,
}
