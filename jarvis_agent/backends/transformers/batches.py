"""Several calls of one model computed at once with transformers: the `batch` of a Way.

    classify_texts(loaded, calls)       # [[{label, score}, …], …]: for each call what `classify` would give

A text or image that can not be read makes the whole batch fail; the pool then runs its calls one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.transformers import text as text
from jarvis_agent.backends.transformers import vision as vision
from jarvis_agent.backends.transformers.loading import Loaded


def classify_texts(loaded: Loaded, calls: Sequence[Call]) -> list[Any]:
    """[{label, score}] for each text."""
    texts = [text.text_of(call) for call in calls]
    return list(loaded.pipe(texts, truncation=True, top_k=text.BEST, batch_size=len(texts)))


def embed_texts(loaded: Loaded, calls: Sequence[Call]) -> list[Any]:
    """[[vector]] for each text: the mean of the vectors of its tokens."""
    import torch

    texts = [text.text_of(call) for call in calls]
    batch = loaded.tokenizer(texts, truncation=True, padding=True, return_tensors="pt")
    with torch.inference_mode():
        states = loaded.model(**loaded.inputs(batch)).last_hidden_state.float()
    there = batch["attention_mask"].to(states.device).unsqueeze(-1)
    means = (states * there).sum(dim=1) / there.sum(dim=1)
    return [[[vector]] for vector in means.tolist()]


def classify_images(loaded: Loaded, calls: Sequence[Call]) -> list[Any]:
    """[{label, score}] for each image."""
    images = [vision.picture(call) for call in calls]
    most = min(text.BEST, loaded.model.config.num_labels)
    return list(loaded.pipe(images, top_k=most, batch_size=len(images)))
