"""Labels given with the call, found in images with transformers: CLIP, SigLIP, OWL-ViT, Grounding DINO."""

from __future__ import annotations

import re
from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.transformers.loading import LoadedModel
from jarvis_agent.backends.transformers.vision import image_of, non_max_suppression
from jarvis_agent.core.errors import BadInputError

MIN_OWL_SCORE = 0.1
MIN_GROUNDING_SCORE = 0.3
"""Lowest scores of detections; those of OWL-ViT are low in general."""

OVERLAP = 0.5
"""Intersection over union above which only the better of two boxes with one label is kept."""


def labels_of(call: Call) -> list[str]:
    """Return the labels argument, a list or a comma-separated text.

    Raises:
        BadInputError: it is empty.
    """
    given = call.inputs["labels"]
    named = re.split(r"[,;\n]", given) if isinstance(given, str) else [str(label) for label in given]
    labels = list(dict.fromkeys(label.strip() for label in named if label.strip()))
    if not labels:
        raise BadInputError(f"{call.spec.name} needs labels to choose from (labels: cat, dog)")
    return labels


def classify(loaded: LoadedModel, call: Call) -> Any:
    """Return [{label, score}] with one row for each label."""
    return loaded.pipe(image_of(call), candidate_labels=labels_of(call))


def detect(loaded: LoadedModel, call: Call) -> list[dict[str, Any]]:
    """Return [{label, score, box}] from a model that compares regions with labels (OWL-ViT, OWLv2)."""
    image, labels = image_of(call), labels_of(call)
    prompts = [f"a photo of a {label}" for label in labels]
    batch = loaded.processor(text=[prompts], images=image, truncation=True, return_tensors="pt")
    found = loaded.processor.post_process_grounded_object_detection(
        loaded.forward(batch), threshold=MIN_OWL_SCORE, target_sizes=[image.size[::-1]], text_labels=[labels]
    )[0]
    return _detections(found["text_labels"], found["scores"], found["boxes"], image.size)


def detect_phrases(loaded: LoadedModel, call: Call) -> list[dict[str, Any]]:
    """Return [{label, score, box}] from a model that reads all labels as one sentence (Grounding DINO)."""
    import torch

    image, labels = image_of(call), labels_of(call)
    sentence = " ".join(f"{label.lower().rstrip('.')}." for label in labels)
    batch = loaded.processor(images=image, text=sentence, truncation=True, return_tensors="pt")
    output = loaded.forward(batch)
    tokens = _label_tokens(labels, sentence, loaded.processor.tokenizer)
    chances = output.logits[0].float().sigmoid().cpu()
    columns = [chances[:, places].amax(1) if places else chances[:, 0] * 0 for places in tokens]
    scores, best = torch.stack(columns, 1).max(1)
    found = scores > MIN_GROUNDING_SCORE
    centres, sizes = output.pred_boxes[0].float().cpu()[found].split(2, dim=1)
    scale = torch.tensor([*image.size, *image.size])
    boxes = torch.cat([centres - sizes / 2, centres + sizes / 2], 1) * scale
    return _detections([labels[n] for n in best[found].tolist()], scores[found], boxes, image.size)


def _label_tokens(labels: list[str], sentence: str, tokenizer: Any) -> list[list[int]]:
    """Return the indices of each label's tokens in the sentence."""
    spans = tokenizer(sentence, truncation=True, return_offsets_mapping=True)["offset_mapping"]
    found, start = [], 0
    for label in labels:
        end = start + len(label.lower().rstrip("."))
        found.append([n for n, (a, b) in enumerate(spans) if a < b and a >= start and b <= end])
        start = end + 2
    return found


def _detections(labels: Any, scores: Any, boxes: Any, size: tuple[int, int]) -> list[dict[str, Any]]:
    """Return the detections without duplicates, boxes within the image, best first."""
    import numpy as np

    labels = list(labels)
    scores, boxes = scores.float().cpu().numpy(), boxes.float().cpu().numpy()
    boxes = boxes.clip(0, np.array([*size, *size]))
    kept = []
    for label in set(labels):
        own = [n for n, name in enumerate(labels) if name == label]
        kept += [own[n] for n in non_max_suppression(boxes[own], scores[own], OVERLAP)]
    return [
        {
            "label": labels[n],
            "score": float(scores[n]),
            "box": dict(zip(("xmin", "ymin", "xmax", "ymax"), boxes[n].tolist(), strict=True)),
        }
        for n in sorted(kept, key=lambda n: -scores[n])
    ]
