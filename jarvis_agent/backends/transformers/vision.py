"""Image and video tasks with transformers: functions of a loaded model and a call that return the raw output.

kept = non_max_suppression(boxes, scores, 0.7)      # indices of the boxes to keep, best first
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.transformers.loading import LoadedModel
from jarvis_agent.backends.transformers.text import MAX_LABELS, labels_of, top_labels
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.media.video import spread_frames

if TYPE_CHECKING:
    from PIL.Image import Image

MIN_SCORE = 0.5
"""Lowest score of a detected object."""

MIN_OWL_SCORE = 0.1
MIN_GROUNDING_SCORE = 0.3
"""Lowest scores of objects with labels of the call; those of OWL-ViT are low in general."""

OVERLAP = 0.5
"""Intersection over union above which only the better of two boxes with one label is kept."""

Detection = dict[str, Any]
"""A row {label, score, box: {xmin, ymin, xmax, ymax}}."""

METRIC_DEPTH_TYPES = frozenset({"glpn", "zoedepth", "depth_pro"})
"""Model types that predict depth as a distance."""

_FRAME_COUNTS = ("num_frames", "frames_per_clip")
"""Config fields for the number of frames that a video model reads."""

FRAMES = 16

MAX_UPSCALED_PIXELS = 1_000_000
"""Pixels of an image that is enlarged; each needs several kilobytes of memory."""


def image_of(call: Call) -> Image:
    """Return the image argument in RGB."""
    return call.inputs["image"].to_pil().convert("RGB")  # type: ignore[no-any-return]


def classify(loaded: LoadedModel, call: Call) -> Any:
    """Return [{label, score}]."""
    return classify_batch(loaded, [call])[0]


def classify_batch(loaded: LoadedModel, calls: Sequence[Call]) -> list[Any]:
    """Return the result of `classify` for each call."""
    images = [image_of(call) for call in calls]
    most = min(MAX_LABELS, loaded.model.config.num_labels)
    return list(loaded.pipe(images, top_k=most, batch_size=len(images)))


def classify_video(loaded: LoadedModel, call: Call) -> list[dict[str, Any]]:
    """Return [{label, score}] from evenly spread frames, as many as the model reads."""
    config = loaded.model.config
    count = next((getattr(config, name) for name in _FRAME_COUNTS if hasattr(config, name)), FRAMES)
    found = [image for _, image in spread_frames(call.inputs["video"].path, count)]
    frames = [found[n * len(found) // count] for n in range(count)]  # a short video repeats some
    logits = loaded.forward(loaded.parts["image_processor"](frames, return_tensors="pt")).logits[0]
    return top_labels(logits.float().softmax(-1).cpu(), config)


def detect(loaded: LoadedModel, call: Call) -> Any:
    """Return [{label, score, box}]."""
    return loaded.pipe(image_of(call), threshold=MIN_SCORE)


def classify_zero_shot(loaded: LoadedModel, call: Call) -> Any:
    """Return [{label, score}] with one row for each label of the call (CLIP, SigLIP)."""
    return loaded.pipe(image_of(call), candidate_labels=labels_of(call))


def detect_zero_shot(loaded: LoadedModel, call: Call) -> list[Detection]:
    """Return [{label, score, box}] from a model that compares regions with labels (OWL-ViT, OWLv2)."""
    image, labels = image_of(call), labels_of(call)
    prompts = [f"a photo of a {label}" for label in labels]
    batch = loaded.processor(text=[prompts], images=image, truncation=True, return_tensors="pt")
    found = loaded.processor.post_process_grounded_object_detection(
        loaded.forward(batch), threshold=MIN_OWL_SCORE, target_sizes=[image.size[::-1]], text_labels=[labels]
    )[0]
    rows = zip(found["text_labels"], found["scores"].tolist(), found["boxes"].tolist(), strict=True)
    return _distinct([_detection(label, score, box, image.size) for label, score, box in rows])


def detect_phrases(loaded: LoadedModel, call: Call) -> list[Detection]:
    """Return [{label, score, box}] from a model that grounds one phrase at a time (Grounding DINO)."""
    image = image_of(call)
    labels = {f"{label.lower().rstrip('.')}.": label for label in labels_of(call)}
    found = loaded.pipe(image, candidate_labels=list(labels), threshold=MIN_GROUNDING_SCORE)
    rows = ((labels[row["label"]], row["score"], row["box"].values()) for row in found)
    return _distinct([_detection(label, score, box, image.size) for label, score, box in rows])


def _detection(label: str, score: float, box: Iterable[float], size: tuple[int, int]) -> Detection:
    """Return a row with the box cut to the image."""
    sides = zip(("xmin", "ymin", "xmax", "ymax"), box, (*size, *size), strict=True)
    return {
        "label": label,
        "score": score,
        "box": {side: min(max(float(place), 0.0), float(most)) for side, place, most in sides},
    }


def _distinct(rows: list[Detection]) -> list[Detection]:
    """Return the rows best first, without boxes that overlap a better one of the same label."""
    kept = []
    for label in {row["label"] for row in rows}:
        own = [row for row in rows if row["label"] == label]
        boxes, scores = [list(row["box"].values()) for row in own], [row["score"] for row in own]
        kept += [own[n] for n in non_max_suppression(boxes, scores, OVERLAP)]
    return sorted(kept, key=lambda row: -row["score"])


def segment(loaded: LoadedModel, call: Call) -> Any:
    """Return [{label, score or None, mask}]."""
    return loaded.pipe(image_of(call))


def estimate_depth(loaded: LoadedModel, call: Call) -> Any:
    """Return {predicted_depth, depth, metric}."""
    return {**loaded.pipe(image_of(call)), "metric": predicts_distance(loaded.model.config)}


def predicts_distance(config: Any) -> bool:
    """Return whether a model's depth is a distance in metres, and not an inverse distance as in MiDaS."""
    if config.model_type in METRIC_DEPTH_TYPES:
        return True
    if config.model_type == "dpt":  # those with DINOv2 were trained on metres (NYU, KITTI)
        return bool(getattr(config.backbone_config, "model_type", "") == "dinov2")
    return bool(getattr(config, "depth_estimation_type", "relative") == "metric")


def embed(loaded: LoadedModel, call: Call) -> Any:
    """Return a vector, float (n,): CLIP's image features, the class token, or the mean over positions."""
    import torch

    model = loaded.model
    batch = loaded.parts["image_processor"](image_of(call), return_tensors="pt")
    if hasattr(model, "get_image_features"):
        with torch.inference_mode():
            vector = model.get_image_features(**loaded.inputs(batch)).pooler_output
    else:
        vector = _pool(model, loaded.forward(batch).last_hidden_state)
    return vector[0].float().cpu()


def _pool(model: Any, states: Any) -> Any:
    """Return (batch, n) from last states of shape (batch, tokens, n) or (batch, n, height, width)."""
    if states.ndim == 4:
        return states.mean((2, 3))
    class_tokens = ("cls_token", "class_embedding")
    has_class = any(name.endswith(class_tokens) for name, _ in model.named_parameters())
    return states[:, 0] if has_class else states.mean(1)


def upscale(loaded: LoadedModel, call: Call) -> Image:
    """Return the image enlarged by the factor in the model's config (Swin2SR)."""
    from PIL import Image

    if any(call.inputs.get(name) for name in ("text", "mask")):
        raise UnsupportedError(f"{loaded.id} only makes images larger: it follows neither a text nor a mask")
    image, factor = image_of(call), loaded.model.config.upscale
    if image.width * image.height > MAX_UPSCALED_PIXELS:
        raise UnsupportedError(
            f"{loaded.id} enlarges images of at most {MAX_UPSCALED_PIXELS:,} pixels here, and this one is "
            f"{image.width} x {image.height}; make it smaller first (resize-image)"
        )
    made = loaded.forward(loaded.parts["image_processor"](image, return_tensors="pt")).reconstruction[0]
    pixels = made[:, : image.height * factor, : image.width * factor].float().clamp(0, 1).mul(255).round()
    return Image.fromarray(pixels.byte().permute(1, 2, 0).cpu().numpy())


def non_max_suppression(boxes: Any, scores: Any, overlap: float) -> list[int]:
    """Return the indices of the boxes to keep, best first.

    Args:
        boxes: float (n, 4): xmin, ymin, xmax, ymax.
        scores: float (n,), above 0.
        overlap: intersection over union above which the lower-scored of two boxes is dropped.
    """
    import cv2
    import numpy as np

    corners = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
    areas = np.hstack([corners[:, :2], corners[:, 2:] - corners[:, :2]])  # x, y, width, height
    kept = cv2.dnn.NMSBoxes(areas.tolist(), [float(score) for score in scores], 0.0, overlap)
    return [int(place) for place in kept]
