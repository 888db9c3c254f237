"""Calls that transformers computes in one batch give what they give one by one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Resource

pytest.importorskip("torch")
pytest.importorskip("transformers")

import tiny_text
import tiny_vision

from jarvis_agent.backends.transformers.backend import TransformersBackend

TEXTS = [{"text": text} for text in ("Ada wrote the first program.", "Ada", "the program of Ada wrote it")]


@pytest.fixture
def images(tmp_path: Path) -> list[dict[str, Any]]:
    from PIL import Image

    made = []
    for n, color in enumerate(("red", "green", "blue")):
        path = tmp_path / f"{n}.png"
        Image.new("RGB", (40 + 8 * n, 32), color).save(path)
        made.append({"image": Resource(kind="image", path=path)})
    return made


def flat(raw: Any) -> list[Any]:
    """Labels as they are, and numbers to some digits."""
    if isinstance(raw, dict):
        return [part for key in sorted(raw) for part in flat(raw[key])]
    if isinstance(raw, list):
        return [part for item in raw for part in flat(item)]
    return [raw if isinstance(raw, str) else pytest.approx(raw, abs=1e-4)]


@pytest.mark.parametrize(
    ("task", "build"),
    [
        ("text-classification", tiny_text.bert_classifier),
        ("feature-extraction", tiny_text.bert_base),
        ("image-classification", tiny_vision.vit),
    ],
)
def test_a_batch_gives_what_the_calls_give_one_by_one(
    task: str, build: Callable[[Path], None], tmp_path: Path, images: list[dict[str, Any]]
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    build(folder)
    candidate = Candidate(id="org/m", task=task, path=folder, local=True)
    inputs = images if "image" in task else TEXTS
    calls = [Call(TASKS[task], candidate, given, Path, Settings(device="cpu")) for given in inputs]
    expert: Any = TransformersBackend(ModelPool(10**9)).load(TASKS[task], candidate, calls[0].settings)
    assert expert.batch is not None
    for together, alone in zip(expert.batch(calls), [expert(call) for call in calls], strict=True):
        assert flat(together) == flat(alone)


def test_a_task_that_is_not_batched_has_no_batch(tmp_path: Path) -> None:
    tiny_text.bert_reader(tmp_path)
    candidate = Candidate(id="org/m", task="question-answering", path=tmp_path, local=True)
    expert: Any = TransformersBackend(ModelPool(10**9)).load(
        TASKS["question-answering"], candidate, Settings(device="cpu")
    )
    assert expert.batch is None
