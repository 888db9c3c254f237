"""Keypoints with transformers (ViTPose), and control maps drawn from the output of other tasks.

ViTPose needs the box of each person, so a detector runs first: the one in the candidate's metadata
("detector": an id or a path), or DETECTOR for models of the Hub. For a model in a folder that names none, the
whole image counts as one person. A new control map is a function and a row of CONTROL_MAPS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.algorithms import control_maps
from jarvis_agent.backends.base import Call
from jarvis_agent.backends.hub.snapshot import model_folder
from jarvis_agent.backends.transformers.loading import LoadedModel, PipelineSpec, load_model
from jarvis_agent.backends.transformers.vision import MIN_SCORE, detect, image_of
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Candidate

if TYPE_CHECKING:
    from PIL.Image import Image

DETECTOR = "PekingU/rtdetr_r50vd"
"""Default detector of people: 172 MB, Apache 2.0."""

_SIDES = ("xmin", "ymin", "xmax", "ymax")
_DETECTION = PipelineSpec("ObjectDetection", ("image_processor",), detect, "object-detection", exact=True)


def load_detector(candidate: Candidate, settings: Settings) -> Mapping[str, Any]:
    """Return {"detector": pipeline}, or {} for a model in a folder that names none.

    Raises:
        ExpertError: the detector is not available.
    """
    named = candidate.metadata.get("detector") or (None if candidate.path else DETECTOR)
    if named is None:
        return {}
    path = Path(named).expanduser()
    detector = Candidate(
        id=str(named),
        task="object-detection",
        local=settings.offline or candidate.local,
        path=path if path.exists() else None,
    )
    folder = model_folder(detector, settings)
    return {"detector": load_model(_DETECTION, folder, detector, settings).pipe}


def find_poses(loaded: LoadedModel, call: Call) -> list[dict[str, Any]]:
    """Return {score, box, keypoints: [{label, x, y, score}], edges: [[i, j]]} for each person (ViTPose)."""
    import torch

    image = image_of(call)
    people = _people(loaded, image)
    if not people:
        return []
    boxes = [[[x1, y1, x2 - x1, y2 - y1] for x1, y1, x2, y2 in people]]
    processor, config = loaded.parts["image_processor"], loaded.model.config
    batch = dict(processor(image, boxes=boxes, return_tensors="pt"))
    if getattr(config.backbone_config, "num_experts", 1) > 1:
        batch["dataset_index"] = torch.zeros(len(people), dtype=torch.int64)  # the expert for COCO joints
    poses = processor.post_process_pose_estimation(loaded.forward(batch), boxes=boxes)[0]
    edges = [list(edge) for edge in getattr(config, "edges", None) or ()]
    return [
        {
            **_person(pose, config.id2label, image.size),
            "box": dict(zip(_SIDES, box, strict=True)),
            "edges": edges,
        }
        for pose, box in zip(poses, people, strict=True)
    ]


def _people(loaded: LoadedModel, image: Image) -> list[tuple[float, ...]]:
    """Return the people's boxes; without a detector, one box of the whole image."""
    detector = loaded.extras.get("detector")
    if detector is None:
        return [(0.0, 0.0, float(image.width), float(image.height))]
    found = [row for row in detector(image, threshold=MIN_SCORE) if row["label"] == "person"]
    return [tuple(row["box"][side] for side in _SIDES) for row in found]


def _person(pose: Mapping[str, Any], names: Mapping[int, str], size: tuple[int, int]) -> dict[str, Any]:
    """Return {score, keypoints} of a pose, with joints within the image."""
    import numpy as np

    # Positions of invisible joints may lie far outside the image, or be NaN.
    places = np.nan_to_num(pose["keypoints"].numpy()).clip(0, np.array(size) - 1).tolist()
    scores = np.nan_to_num(pose["scores"].numpy()).clip(0, 1).tolist()
    joints = [
        {"label": names.get(n, str(n)), "x": x, "y": y, "score": score}
        for n, ((x, y), score) in enumerate(zip(places, scores, strict=True))
    ]
    return {"score": sum(scores) / len(scores), "keypoints": joints}


def _draw_depth(raw: Any, loaded: LoadedModel, call: Call) -> Image:
    return _resize(control_maps.depth_map(_nearness(raw)), call)


def _draw_normals(raw: Any, loaded: LoadedModel, call: Call) -> Image:
    return _resize(control_maps.normal_map(_nearness(raw)), call)


def _draw_pose(raw: Any, loaded: LoadedModel, call: Call) -> Image:
    names = loaded.model.config.id2label
    if "nose" not in names.get(0, "").lower() or "shoulder" not in names.get(5, "").lower():
        raise UnsupportedError(f"{loaded.id} does not find the joints of people (COCO's 17) of a pose map")
    return control_maps.pose_map(raw, image_of(call).size)


def _draw_segments(raw: Any, loaded: LoadedModel, call: Call) -> Image:
    segments = [(str(row["label"]), row["mask"]) for row in raw]
    return control_maps.segment_map(segments, image_of(call).size)


def _nearness(raw: Any) -> Any:
    return control_maps.nearness(raw["predicted_depth"].float().cpu(), distance=raw["metric"])


def _resize(drawing: Image, call: Call) -> Image:
    size = image_of(call).size
    return drawing if drawing.size == size else drawing.resize(size)


CONTROL_MAPS: dict[str, Callable[[Any, LoadedModel, Call], Image]] = {
    "depth-control": _draw_depth,
    "normal-control": _draw_normals,
    "openpose-control": _draw_pose,
    "seg-control": _draw_segments,
}
"""Task type → function that draws the map from the raw output of the task in `TaskSpec.models_of`."""
