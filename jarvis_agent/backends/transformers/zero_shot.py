"""Images and labels that come with the call, with transformers: CLIP, SigLIP, OWL-ViT, Grounding DINO."""

from __future__ import annotations

import re
from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.transformers.boxes import best_apart
from jarvis_agent.backends.transformers.loading import Loaded
from jarvis_agent.backends.transformers.vision import picture
from jarvis_agent.core.errors import BadInputError

LEAST_SCORE = 0.1
"""Score below which OWL-ViT's finds do not count; its scores are low."""

LEAST_PHRASE_SCORE = 0.3
"""The same for Grounding DINO."""

OVERLAP = 0.5
"""Of two boxes for one label that share more than this (intersection over union), the better one is kept."""


def labels_of(call: Call) -> list[str]:
    """The labels argument: a list, or a text with commas.

    Raises:
        BadInputError: it names nothing.
    """
    given = call.inputs["labels"]
    named = re.split(r"[,;\n]", given) if isinstance(given, str) else [str(label) for label in given]
    labels = list(dict.fromkeys(label.strip() for label in named if label.strip()))
    if not labels:
        raise BadInputError(f"{call.spec.name} needs labels to choose from (labels: cat, dog)")
    return labels


def classify(loaded: Loaded, call: Call) -> Any:
    """[{label, score}], one for each label."""
    return loaded.pipe(picture(call), candidate_labels=labels_of(call))


def detect(loaded: Loaded, call: Call) -> list[dict[str, Any]]:
    """[{label, score, box}] of a model that compares each region with each label (OWL-ViT, OWLv2)."""
    import torch

    image, labels = picture(call), labels_of(call)
    prompts = [f"a photo of a {label}" for label in labels]
    batch = loaded.processor(text=[prompts], images=image, truncation=True, return_tensors="pt")
    with torch.inference_mode():
        seen = loaded.model(**loaded.inputs(batch))
    found = loaded.processor.post_process_grounded_object_detection(
        seen, threshold=LEAST_SCORE, target_sizes=[image.size[::-1]], text_labels=[labels]
    )[0]
    return _apart(found["text_labels"], found["scores"], found["boxes"], image.size)


def detect_by_phrases(loaded: Loaded, call: Call) -> list[dict[str, Any]]:
    """[{label, score, box}] of a model that is told all labels as one sentence (Grounding DINO)."""
    import torch

    image, labels = picture(call), labels_of(call)
    sentence = " ".join(f"{label.lower().rstrip('.')}." for label in labels)
    batch = loaded.processor(images=image, text=sentence, truncation=True, return_tensors="pt")
    with torch.inference_mode():
        seen = loaded.model(**loaded.inputs(batch))
    words = _tokens_of(labels, sentence, loaded.processor.tokenizer)
    chances = seen.logits[0].float().sigmoid().cpu()
    by_label = torch.stack(
        [chances[:, places].amax(1) if places else chances[:, 0] * 0 for places in words], 1
    )
    scores, best = by_label.max(1)
    sure = scores > LEAST_PHRASE_SCORE
    middles, sizes = seen.pred_boxes[0].float().cpu()[sure].split(2, dim=1)
    boxes = torch.cat([middles - sizes / 2, middles + sizes / 2], 1) * torch.tensor(
        [*image.size, *image.size]
    )
    return _apart([labels[place] for place in best[sure].tolist()], scores[sure], boxes, image.size)


def _tokens_of(labels: list[str], sentence: str, tokenizer: Any) -> list[list[int]]:
    """For each label, the places of its tokens in the sentence."""
    spans = tokenizer(sentence, truncation=True, return_offsets_mapping=True)["offset_mapping"]
    found, start = [], 0
    for label in labels:
        end = start + len(label.lower().rstrip("."))
        found.append([n for n, (a, b) in enumerate(spans) if a < b and a >= start and b <= end])
        start = end + 2
    return found


def _apart(labels: Any, scores: Any, boxes: Any, size: tuple[int, int]) -> list[dict[str, Any]]:
    """The finds without those that stand for the same thing: as detections, within the image, best first."""
    import numpy as np

    labels = list(labels)
    scores, boxes = scores.float().cpu().numpy(), boxes.float().cpu().numpy()
    boxes = boxes.clip(0, np.array([*size, *size]))
    kept = []
    for label in set(labels):
        own = [n for n, name in enumerate(labels) if name == label]
        kept += [own[n] for n in best_apart(boxes[own], scores[own], OVERLAP)]
    return [
        {
            "label": labels[n],
            "score": float(scores[n]),
            "box": dict(zip(("xmin", "ymin", "xmax", "ymax"), boxes[n].tolist(), strict=True)),
        }
        for n in sorted(kept, key=lambda n: -scores[n])
    ]
