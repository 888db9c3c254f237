"""16 calls of one local model at once over the same calls one after the other. Needs the extra "local".

Both are done in turns in the same run and compared by their medians. The models are of real architectures and
sizes, with random weights, and are loaded from a directory by the code that loads those of the Hub.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from figures import Figure

from jarvis_agent import Settings
from jarvis_agent.backends.base import Call
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.backends.transformers.backend import TransformersBackend
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Resource

CALLS = 16
SETTINGS = Settings(device="cpu", offline=True)


def save_vit(folder: Path) -> None:
    """A classifier of images of the size of ViT-S/16 (22 million parameters, 224 × 224 pixels)."""
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    config = ViTConfig(hidden_size=384, num_hidden_layers=12, num_attention_heads=6, intermediate_size=1536)
    ViTForImageClassification(config).save_pretrained(folder)
    ViTImageProcessor(size={"height": 224, "width": 224}).save_pretrained(folder)


def save_bert(folder: Path) -> None:
    """A classifier of texts of the size of DistilBERT's small kin (6 layers of 384)."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", *(f"w{n}" for n in range(998))]
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=128
    ).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=6,
        intermediate_size=1536,
    )
    BertForSequenceClassification(config).save_pretrained(folder)


def save_images(folder: Path) -> list[dict[str, Any]]:
    """Arguments for calls on images."""
    import numpy as np
    from PIL import Image

    made = []
    for n in range(CALLS):
        path = folder / f"{n}.png"
        pixels = np.random.default_rng(n).integers(0, 255, (240, 320, 3), np.uint8)
        Image.fromarray(pixels).save(path)
        made.append({"image": Resource(kind="image", path=path)})
    return made


def texts() -> list[dict[str, Any]]:
    """Arguments for calls on texts of 30 words."""
    return [{"text": " ".join(f"w{(n * 37 + k * 11) % 998}" for k in range(30))} for n in range(CALLS)]


def calls_of(task: str, folder: Path, inputs: Sequence[dict[str, Any]]) -> list[Call]:
    candidate = Candidate(id=folder.name, task=task, path=folder, local=True)
    return [Call(TASKS[task], candidate, given, folder.joinpath, SETTINGS) for given in inputs]


async def in_turns(*works: Callable[[], Awaitable[Any]], rounds: int) -> list[float]:
    """The median seconds of each work; they take turns, and who begins changes."""
    times: list[list[float]] = [[] for _ in works]
    for number in range(rounds):
        turn = number % len(works)
        for index in (*range(turn, len(works)), *range(turn)):
            gc.collect()
            began = perf_counter()
            await works[index]()
            times[index].append(perf_counter() - began)
    return [median(taken) for taken in times]


async def parallel(task: str, folder: Path, inputs: Sequence[dict[str, Any]], rounds: int) -> list[Figure]:
    """16 calls at once over the same 16 one after the other, and how many of the results differ."""
    backend = TransformersBackend(SETTINGS, ModelPool(10**10))
    calls = calls_of(task, folder, inputs)
    results: dict[str, list[Any]] = {}

    async def at_once() -> None:
        results["at once"] = await asyncio.gather(*map(backend.run, calls))

    async def in_a_row() -> None:
        results["in a row"] = [await backend.run(call) for call in calls]

    for warm in (in_a_row, at_once):
        await warm()
    together, apart = await in_turns(at_once, in_a_row, rounds=rounds)
    await backend.pool.close()
    wrong = sum(map(_differ, results["at once"], results["in a row"]))
    return [
        Figure(f"{CALLS} calls of {task} at once / in a row", together / apart, 1.0, "x"),
        Figure("of those, results that differ", wrong, 0, ""),
    ]


def _differ(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> bool:
    """Whether two classifications differ by more than rounding."""
    scores = {row["label"]: row["score"] for row in other}
    return any(abs(row["score"] - scores.get(row["label"], 2)) > 1e-4 for row in one)


async def figures() -> list[Figure]:
    """The ratios of two classifiers, one of texts and one of images."""
    import torch
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        vit, bert = Path(name) / "vit", Path(name) / "bert"
        save_vit(vit)
        save_bert(bert)
        found = await parallel("text-classification", bert, texts(), rounds=9)
        return found + await parallel("image-classification", vit, save_images(vit), rounds=5)
