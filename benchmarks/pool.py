"""The pool of local models, and what the Hub is asked, as one command: python benchmarks/pool.py

It prints each figure beside its limit and ends with status 1 if one is not met. Every ratio is of two things
that were done in turns in the same run, by their medians, so that the machine's load falls on both alike. The
models are of real architectures and sizes, with random weights, and are loaded from a directory by the code
that loads those of the Hub.
"""

from __future__ import annotations

import asyncio
import gc
import sys
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
from jarvis_agent.selection.sources.hub import HubSource, is_of_the_hub
from jarvis_agent.testing import HubDouble
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


async def in_blocks(*works: Callable[[], Awaitable[Any]], blocks: int, calls: int) -> list[float]:
    """The least seconds of each work, as timeit takes them; blocks of calls take turns."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(blocks):
        for work, taken in zip(works, times, strict=True):
            for _ in range(calls):
                began = perf_counter()
                await work()
                taken.append(perf_counter() - began)
    return [min(taken) for taken in times]


async def overhead(folder: Path) -> list[Figure]:
    """A call on a loaded model, over the same call of its transformers pipeline.

    They are measured in blocks: right after a call from another thread, the helpers that computed for that
    one still spin, and take time from this one's.
    """
    backend = TransformersBackend(ModelPool(10**10), SETTINGS)
    [call, *_] = calls_of("image-classification", folder, save_images(folder))
    expert: Any = backend.load(call.spec, call.candidate, SETTINGS)
    key = ("benchmark", call.candidate.id)
    file = str(call.inputs["image"].path)

    async def pooled() -> None:
        await backend.pool.run(key, lambda: expert, call)

    async def direct() -> None:
        expert.loaded.pipe(file, top_k=2)

    for warm in (pooled, direct, pooled, direct):
        await warm()
    through, alone = await in_blocks(pooled, direct, blocks=4, calls=12)
    await backend.close()
    await backend.pool.close()
    print(f"     baseline: the pipeline itself takes {alone * 1_000:.1f} ms")
    return [Figure("second call through the pool / calling the pipeline", through / alone, 1.02, "x")]


async def parallel(task: str, folder: Path, inputs: Sequence[dict[str, Any]], rounds: int) -> list[Figure]:
    """16 calls at once over the same 16 one after the other, and how many of the results differ."""
    backend = TransformersBackend(ModelPool(10**10), SETTINGS)
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
    print(f"     baseline: {CALLS} calls one after the other take {apart * 1_000:.0f} ms")
    return [
        Figure(f"{CALLS} calls of {task} at once / in a row", together / apart, 1.0, "x"),
        Figure("of those, results that differ", wrong, 0, ""),
    ]


def _differ(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> bool:
    """Whether two classifications differ by more than rounding."""
    scores = {row["label"]: row["score"] for row in other}
    return any(abs(row["score"] - scores.get(row["label"], 2)) > 1e-4 for row in one)


async def budget() -> list[Figure]:
    """How far the pool goes over its budget, in models, while 12 of them are asked for at once."""
    import torch

    size = 4 * 500 * 500
    most = 0
    pool = ModelPool(limit_bytes=2 * size)

    def load() -> Any:
        layer = torch.nn.Linear(500, 500, bias=False)

        def use(call: Call) -> None:
            nonlocal most
            layer(torch.ones(500))
            most = max(most, pool.nbytes)

        return use

    def asked(number: int, known: int | None) -> Awaitable[Any]:
        candidate = Candidate(id=str(number), task="text-generation", size=known)
        call = Call(TASKS["text-generation"], candidate, {}, Path, SETTINGS)
        return pool.run((str(number), str(known)), load, call)

    for known in (None, size):
        await asyncio.gather(*(asked(number % 12, known) for number in range(48)))
    await pool.close()
    return [Figure("bytes over the pool's budget / bytes of a model", (most - 2 * size) / size, 1.0, "x")]


async def requests(folder: Path) -> list[Figure]:
    """Requests that the Hub gets for all of its task types, each looked up five times at once."""
    tasks = [spec for spec in TASKS.values() if is_of_the_hub(spec)]
    with HubDouble() as hub, hub.redirected():
        source = HubSource(Settings(offline=False), cache_dir=folder)
        await asyncio.gather(*(source.candidates(spec, 5) for spec in tasks for _ in range(5)))
        asked = sum(request.path.startswith("/api/models") for request in hub.requests)
    return [Figure(f"list requests a task ({len(tasks)} tasks)", asked / len(tasks), 1.0, "")]


def main() -> int:
    """Print every figure; 1 if one misses its limit."""
    import torch
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.manual_seed(0)
    print(f"Python {sys.version.split()[0]}; torch {torch.__version__}, {torch.get_num_threads()} threads")
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as name:
        vit, bert = Path(name) / "vit", Path(name) / "bert"
        save_vit(vit)
        save_bert(bert)
        parts: list[Callable[[], Awaitable[list[Figure]]]] = [
            lambda: overhead(vit),
            lambda: parallel("text-classification", bert, texts(), rounds=9),
            lambda: parallel("image-classification", vit, save_images(vit), rounds=5),
            budget,
            lambda: requests(Path(name) / "lists"),
        ]
        for part in parts:
            for figure in asyncio.run(_awaited(part)):
                print(figure, flush=True)
                figures.append(figure)
    return 0 if all(figure.met for figure in figures) else 1


async def _awaited(part: Callable[[], Awaitable[list[Figure]]]) -> list[Figure]:
    return await part()


if __name__ == "__main__":
    sys.exit(main())
