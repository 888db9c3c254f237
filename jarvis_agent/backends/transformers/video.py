"""What happens in a video, with transformers: VideoMAE, TimeSformer, ViViT, V-JEPA 2."""

from __future__ import annotations

from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.transformers.loading import Loaded
from jarvis_agent.backends.transformers.text import BEST
from jarvis_agent.media.video import spread_frames

_COUNTS = ("num_frames", "frames_per_clip")
"""Names under which configs say how many frames the model looks at."""

FRAMES = 16


def classify(loaded: Loaded, call: Call) -> list[dict[str, Any]]:
    """[{label, score}] from as many frames, spread evenly over the video, as the model looks at."""
    import torch

    config = loaded.model.config
    count = next((getattr(config, name) for name in _COUNTS if hasattr(config, name)), FRAMES)
    shown = [image for _, image in spread_frames(call.inputs["video"].path, count)]
    frames = [shown[place * len(shown) // count] for place in range(count)]  # a short video repeats some
    prepare = loaded.parts.get("image_processor") or loaded.parts["video_processor"]
    with torch.inference_mode():
        logits = loaded.model(**loaded.inputs(prepare(frames, return_tensors="pt"))).logits[0]
    best = logits.float().softmax(-1).cpu().topk(min(BEST, config.num_labels))
    found = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [{"label": config.id2label[place], "score": score} for place, score in found]
