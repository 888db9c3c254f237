"""Image and video tasks with transformers: functions of a loaded model and a call that return the raw output.

SAM makes masks of everything. Masks are filtered at the model's resolution and only the remaining ones are
resized; transformers' own pipeline resizes all, which takes many times as long, and needs torchvision.
ViTPose needs the box of each person, so a detector runs first: the one in the candidate's metadata
("detector"), or DETECTOR for models of the Hub; else the whole image counts as one person.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.algorithms import control_maps
from jarvis_agent.backends.base import Call, labels_of
from jarvis_agent.backends.hub.snapshot import model_folder
from jarvis_agent.backends.transformers.loading import LoadedModel, PipelineSpec, by_pipeline, load_model
from jarvis_agent.backends.transformers.text import top_labels
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Candidate

if TYPE_CHECKING:
    from PIL.Image import Image


MIN_SCORE = 0.5
"""Lowest score of a detected object."""

MIN_OWL_SCORE = 0.1
MIN_GROUNDING_SCORE = 0.3
"""Lowest scores of objects with labels of the call; those of OWL-ViT are low in general."""

OVERLAP = 0.5
"""Intersection over union above which only the better of two boxes with one label is kept."""

_SIDES = ("xmin", "ymin", "xmax", "ymax")
Detection = dict[str, Any]
"""A row {label, score, box: {xmin, ymin, xmax, ymax}}."""

MAX_UPSCALED_PIXELS = 1_000_000
"""Pixels of an image that is enlarged; each needs several kilobytes of memory."""


def classify_video(loaded: LoadedModel, call: Call) -> list[dict[str, Any]]:
    """Return [{label, score}] from evenly spread frames, as many as the model reads."""
    config, count = loaded.model.config, loaded.model.config.num_frames
    frames = [image for _, image in call.frames(count)]
    frames = [frames[n * len(frames) // count] for n in range(count)]  # a short video repeats some
    logits = loaded.forward(loaded.parts["image_processor"](frames, return_tensors="pt")).logits[0]
    return top_labels(logits.float().softmax(-1).cpu(), config)


def detect_zero_shot(loaded: LoadedModel, call: Call) -> list[Detection]:
    """Return [{label, score, box}] from a model that compares regions with labels (OWL-ViT, OWLv2)."""
    image, labels = call.image(), labels_of(call)
    prompts = [f"a photo of a {label}" for label in labels]
    loaded.note_cut(call, prompts)
    batch = loaded.processor(text=[prompts], images=image, truncation=True, return_tensors="pt")
    detections = loaded.processor.post_process_grounded_object_detection(
        loaded.forward(batch), threshold=MIN_OWL_SCORE, target_sizes=[image.size[::-1]], text_labels=[labels]
    )[0]
    labels, scores, boxes = detections["text_labels"], detections["scores"], detections["boxes"]
    return _detections(labels, scores.tolist(), boxes.tolist(), image.size)


def detect_phrases(loaded: LoadedModel, call: Call) -> list[Detection]:
    """Return [{label, score, box}] from a model that grounds one phrase at a time (Grounding DINO)."""
    image = call.image()
    labels = {f"{label.lower().rstrip('.')}.": label for label in loaded.labels(call)}
    rows = loaded.pipe(image, candidate_labels=list(labels), threshold=MIN_GROUNDING_SCORE)
    boxes = [[*row["box"].values()] for row in rows]
    return _detections(
        [labels[row["label"]] for row in rows], [row["score"] for row in rows], boxes, image.size
    )


def _detections(
    labels: Sequence[str], scores: Sequence[float], boxes: Any, size: tuple[int, int]
) -> list[Detection]:
    """Return rows best first, cut to the image, without boxes that overlap a better one of the same label."""
    import numpy as np

    inside = np.clip(np.reshape(boxes, (-1, 4)), 0.0, (*size, *size)).tolist()
    classes = [labels.index(label) for label in labels]
    return [
        {"label": labels[n], "score": scores[n], "box": dict(zip(_SIDES, inside[n], strict=True))}
        for n in non_max_suppression(inside, scores, OVERLAP, classes)
    ]


def estimate_depth(loaded: LoadedModel, call: Call) -> Any:
    """Return {predicted_depth, depth, metric}."""
    return {**loaded.pipe(call.image()), "metric": predicts_distance(loaded.model.config)}


def predicts_distance(config: Any) -> bool:
    """Return whether a model's depth is a distance in metres, and not an inverse distance as in MiDaS."""
    if config.model_type in ("glpn", "zoedepth", "depth_pro"):
        return True
    if config.model_type == "dpt":  # those with DINOv2 were trained on metres (NYU, KITTI)
        return bool(getattr(config.backbone_config, "model_type", "") == "dinov2")
    return bool(getattr(config, "depth_estimation_type", "relative") == "metric")


def embed(loaded: LoadedModel, call: Call) -> Any:
    """Return a vector, float (n,): CLIP's image features, the class token, or the mean over positions."""
    import torch

    model = loaded.model
    batch = loaded.parts["image_processor"](call.image(), return_tensors="pt")
    if hasattr(model, "get_image_features"):
        with torch.inference_mode():
            vector = model.get_image_features(**loaded.inputs(batch)).pooler_output
    else:
        states = loaded.forward(batch).last_hidden_state
        class_tokens = ("cls_token", "class_embedding")
        if states.ndim == 4:  # batch, n, height, width; else batch, tokens, n
            vector = states.mean((2, 3))
        elif any(name.endswith(class_tokens) for name, _ in model.named_parameters()):
            vector = states[:, 0]
        else:
            vector = states.mean(1)
    return vector[0].float().cpu()


def upscale(loaded: LoadedModel, call: Call) -> Image:
    """Return the image enlarged by the factor in the model's config (Swin2SR)."""
    from PIL import Image

    if any(call.inputs.get(name) for name in ("text", "mask")):
        raise UnsupportedError(f"{loaded.id} only makes images larger: it follows neither a text nor a mask")
    image, factor = call.image(), loaded.model.config.upscale
    if image.width * image.height > MAX_UPSCALED_PIXELS:
        raise UnsupportedError(
            f"{loaded.id} enlarges images of at most {MAX_UPSCALED_PIXELS:,} pixels here, and this one is "
            f"{image.width} x {image.height}; make it smaller first (resize-image)"
        )
    enlarged = loaded.forward(loaded.parts["image_processor"](image, return_tensors="pt")).reconstruction[0]
    pixels = enlarged[:, : image.height * factor, : image.width * factor].float().clamp(0, 1).mul(255).round()
    return Image.fromarray(pixels.byte().permute(1, 2, 0).cpu().numpy())


def non_max_suppression(
    boxes: Any, scores: Any, overlap: float, classes: Sequence[int] | None = None
) -> list[int]:
    """Return the indices of the boxes (n, 4) to keep, best first; those of other classes do not compete.

    `overlap` is the intersection over union above which the lower-scored of two boxes is dropped.
    """
    import cv2
    import numpy as np

    corners = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
    areas = np.hstack([corners[:, :2], corners[:, 2:] - corners[:, :2]]).tolist()  # x, y, width, height
    rated = [float(score) for score in scores]
    kept = cv2.dnn.NMSBoxesBatched(areas, rated, classes or [0] * len(rated), 0.0, overlap)
    return [int(place) for place in kept]


_PROMPTS = ("input_points", "input_labels", "image_embeddings")
"""What SAM is given of a batch of its pipeline, which prompts it at each point of a grid."""

BATCH = 64
"""Points per forward pass."""

MIN_MASK_SCORE = 0.88
"""Lowest predicted quality of a mask (SAM, Kirillov et al., 2023)."""

MIN_STABILITY = 0.95
"""Lowest share of a mask that stays when the threshold moves by one logit either way (the same paper)."""

MASK_OVERLAP = 0.7
"""Intersection over union of boxes above which only the better of two masks is kept."""


def mask_everything(loaded: LoadedModel, call: Call) -> list[dict[str, Any]]:
    """Return [{mask: PIL image in mode L of the image's size, score}], best first."""
    import torch
    from PIL import Image

    image, batches = call.image(), list[tuple[Any, Any]]()
    for batch in loaded.pipe.preprocess(image, points_per_batch=BATCH):
        height, width = batch["reshaped_input_sizes"][0].tolist()
        output = loaded.forward({name: batch[name] for name in _PROMPTS})
        # Three masks a point, from a part to the whole object.
        logits, rated = output.pred_masks[0].flatten(0, 1), output.iou_scores[0].flatten()
        batches.append((logits.float().cpu(), rated.float().cpu()))
    masks, scores = (torch.cat(part) for part in zip(*batches, strict=True))
    # The image lies in the top left corner of what the model sees; the rest is padding.
    padded, (mask_height, mask_width) = loaded.parts["image_processor"].pad_size, masks.shape[-2:]
    rows = max(round(mask_height * height / padded["height"]), 1)
    columns = max(round(mask_width * width / padded["width"]), 1)
    masks = masks[:, :rows, :columns]
    smaller, larger = (masks > 1).sum((1, 2)), (masks > -1).sum((1, 2))
    is_stable = (smaller > 0) & (smaller / larger.clamp(min=1) > MIN_STABILITY)
    good = is_stable & (scores > MIN_MASK_SCORE)
    masks, scores = masks[good], scores[good]
    made = []
    for n in non_max_suppression([_box(mask > 0) for mask in masks], scores, MASK_OVERLAP):
        logits = torch.nn.functional.interpolate(
            masks[n][None, None], image.size[::-1], mode="bilinear", align_corners=False
        )
        mask = Image.fromarray(((logits[0, 0] > 0) * 255).to(torch.uint8).numpy())
        made.append({"mask": mask, "score": min(float(scores[n]), 1.0)})
    return made


def _box(mask: Any) -> list[int]:
    rows, columns = mask.any(1).nonzero(), mask.any(0).nonzero()
    return [int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1]


def mask_by_pipeline(loaded: LoadedModel, call: Call) -> list[dict[str, Any]]:
    """Return the result of `mask_everything` for models whose image processor needs torchvision (SAM 2)."""
    masks = loaded.pipe(call.image())
    return [
        {"mask": mask, "score": min(float(score), 1.0)}
        for mask, score in zip(masks["masks"], masks["scores"], strict=True)
    ]


DETECTOR = "PekingU/rtdetr_r50vd"
"""Default detector of people: 172 MB, Apache 2.0."""

DETECTION = PipelineSpec(
    "ObjectDetection",
    ("image_processor",),
    by_pipeline(Call.image, threshold=MIN_SCORE),
    "object-detection",
    exact=True,
)


def load_detector(candidate: Candidate, settings: Settings) -> Mapping[str, Any]:
    """Return {"detector": pipeline}, or {} for a model in a folder that names none."""
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
    return {"detector": load_model(DETECTION, folder, detector, settings).pipe}


def find_poses(loaded: LoadedModel, call: Call) -> list[dict[str, Any]]:
    """Return {score, box, keypoints: [{label, x, y, score}], edges: [[i, j]]} for each person (ViTPose)."""
    import torch

    image, detector = call.image(), loaded.extras.get("detector")
    people = [{"xmin": 0, "ymin": 0, "xmax": image.width, "ymax": image.height}]
    if detector is not None:
        people = [row["box"] for row in detector(image, threshold=MIN_SCORE) if row["label"] == "person"]
    if not people:
        return []
    corners = [[float(box[side]) for side in _SIDES] for box in people]
    boxes = [[[x1, y1, x2 - x1, y2 - y1] for x1, y1, x2, y2 in corners]]
    processor, config = loaded.parts["image_processor"], loaded.model.config
    batch = dict(processor(image, boxes=boxes, return_tensors="pt"))
    if getattr(config.backbone_config, "num_experts", 1) > 1:
        batch["dataset_index"] = torch.zeros(len(people), dtype=torch.int64)  # the expert for COCO joints
    poses = processor.post_process_pose_estimation(loaded.forward(batch), boxes=boxes)[0]
    edges = [list(edge) for edge in getattr(config, "edges", None) or ()]
    return [
        {**_person(pose, config.id2label, image.size), "box": box, "edges": edges}
        for pose, box in zip(poses, people, strict=True)
    ]


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


def _relief(draw: Callable[[Any], Image]) -> Callable[[Any, tuple[int, int]], Image]:
    """The map that `draw` makes of how near each pixel is, float (h, w), in the size of the image."""

    def run(raw: Any, size: tuple[int, int]) -> Image:
        near = control_maps.nearness(raw["predicted_depth"].float().cpu(), distance=raw["metric"])
        return draw(near).resize(size)

    return run


CONTROL_MAPS: dict[str, Callable[[Any, tuple[int, int]], Image]] = {
    "depth-control": _relief(control_maps.depth_map),
    "normal-control": _relief(control_maps.normal_map),
    "openpose-control": control_maps.pose_map,
    "seg-control": control_maps.segment_map,
}
"""Task type → the function that draws its map from the output of the task in `TaskSpec.models_of`."""
