"""Joints of people and other points in an image, with transformers: ViTPose, SuperPoint.

ViTPose looks at one person at a time, so the people are found first, by a detector: the one that the
candidate's metadata names ("detector": an id or a path), or DETECTOR for models of the Hub. Where that one is
not to be had, and for a model in a directory without such a name, the whole image is taken for one person.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.hub.snapshot import model_folder
from jarvis_agent.backends.transformers.loading import Loaded, PipelineSpec, load_model
from jarvis_agent.backends.transformers.vision import LEAST_SCORE, detect, picture
from jarvis_agent.core.errors import ExpertError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Candidate

if TYPE_CHECKING:
    from PIL.Image import Image

logger = logging.getLogger(__name__)

DETECTOR = "PekingU/rtdetr_r50vd"
"""The model that finds people where none is named: 172 MB, Apache 2.0."""

MOST_POINTS = 500
"""How many of the points of a model without people are given, the best ones."""

_DETECTION = PipelineSpec("AutoModelForObjectDetection", ("image_processor",), detect, "object-detection", exact=True)


def detector_of(candidate: Candidate, settings: Settings) -> Mapping[str, Any]:
    """{"detector": a pipeline that finds people}, or nothing, which the log tells.

    Raises:
        ExpertError: the detector that the candidate names is not to be had.
    """
    named = candidate.metadata.get("detector")
    if named is None and candidate.path is not None:
        return {}
    finder = _detector(str(named or DETECTOR), candidate, settings)
    try:
        folder = model_folder(finder, settings)
    except ExpertError as error:
        if named is not None:
            raise
        logger.warning(
            "%s takes each image for one person, as no people can be found: %s", candidate.id, error
        )
        return {}
    return {"detector": load_model(_DETECTION, folder, finder, settings).pipe}


def _detector(named: str, candidate: Candidate, settings: Settings) -> Candidate:
    path = Path(named).expanduser()
    return Candidate(
        id=named,
        task="object-detection",
        local=settings.offline or candidate.local,
        path=path if path.exists() else None,
    )


def find_joints(loaded: Loaded, call: Call) -> list[dict[str, Any]]:
    """For each person {score, box, keypoints: [{label, x, y, score}], edges: [[i, j], …]} (ViTPose)."""
    import torch

    image = picture(call)
    people = _people(loaded, image)
    if not people:
        return []
    boxes = [[[x1, y1, x2 - x1, y2 - y1] for x1, y1, x2, y2 in people]]
    processor, config = loaded.parts["image_processor"], loaded.model.config
    batch = dict(processor(image, boxes=boxes, return_tensors="pt"))
    if getattr(config.backbone_config, "num_experts", 1) > 1:
        batch["dataset_index"] = torch.zeros(len(people), dtype=torch.int64)  # the expert for COCO's joints
    with torch.inference_mode():
        seen = loaded.model(**loaded.inputs(batch))
    found = processor.post_process_pose_estimation(seen, boxes=boxes)[0]
    edges = [list(edge) for edge in getattr(config, "edges", None) or ()]
    return [
        _person(pose, box, edges, config.id2label, image.size)
        for pose, box in zip(found, people, strict=True)
    ]


def _people(loaded: Loaded, image: Image) -> list[tuple[float, float, float, float]]:
    """The people's boxes; the whole image where nothing looks for people."""
    detector = loaded.extras.get("detector")
    if detector is None:
        return [(0.0, 0.0, float(image.width), float(image.height))]
    return [
        (box["xmin"], box["ymin"], box["xmax"], box["ymax"])
        for box in (
            found["box"] for found in detector(image, threshold=LEAST_SCORE) if found["label"] == "person"
        )
    ]


def _person(
    pose: Mapping[str, Any],
    box: tuple[float, float, float, float],
    edges: list[list[int]],
    names: Mapping[int, str],
    size: tuple[int, int],
) -> dict[str, Any]:
    import numpy as np

    # A joint that the model does not see may be told far outside, or nowhere at all.
    places = np.nan_to_num(pose["keypoints"].numpy()).clip(0, np.array(size) - 1).tolist()
    scores = np.nan_to_num(pose["scores"].numpy()).clip(0, 1).tolist()
    points = [
        {"label": names.get(n, str(n)), "x": x, "y": y, "score": score}
        for n, ((x, y), score) in enumerate(zip(places, scores, strict=True))
    ]
    return {
        "score": sum(scores) / len(scores),
        "box": dict(zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)),
        "keypoints": points,
        "edges": edges,
    }


def find_points(loaded: Loaded, call: Call) -> list[dict[str, Any]]:
    """[{score, keypoints, edges: []}] with the points that stand out; none has a name (SuperPoint)."""
    import torch

    image = picture(call)
    processor = loaded.parts["image_processor"]
    with torch.inference_mode():
        seen = loaded.model(**loaded.inputs(processor(image, return_tensors="pt")))
    found = processor.post_process_keypoint_detection(seen, [image.size[::-1]])[0]
    best = found["scores"].float().cpu().sort(descending=True)
    places = found["keypoints"].cpu()[best.indices[:MOST_POINTS]].tolist()
    scores = best.values[:MOST_POINTS].tolist()
    if not scores:
        return []
    points = [
        {"label": "", "x": float(x), "y": float(y), "score": score}
        for (x, y), score in zip(places, scores, strict=True)
    ]
    return [{"score": scores[0], "keypoints": points, "edges": []}]
