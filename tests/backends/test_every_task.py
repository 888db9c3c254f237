"""Every callable task type runs through `hf_tools()` on a local model, and what it returns survives JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent import RegisteredSource, Settings, hf_tools
from jarvis_agent.selection.sources.starter import StarterSource
from jarvis_agent.tools import TASKS

pytest.importorskip("torch")

import cases_audio
import cases_control
import cases_generation
import cases_media
import cases_multimodal
import cases_tabular
import cases_text
import cases_vision
from task_case import Case

MODULES = (
    cases_text,
    cases_vision,
    cases_generation,
    cases_audio,
    cases_multimodal,
    cases_tabular,
    cases_control,
    cases_media,
)
CASES: list[Case] = [case for module in MODULES for case in module.CASES]
HALVED = [
    next(case for case in CASES if case.task == task and case.model)
    for task in (
        "text-classification",
        "table-question-answering",
        "feature-extraction",
        "object-detection",
        "depth-estimation",
        "image-to-text",
        "text-to-image",
        "unconditional-image-generation",
        "text-to-audio",
        "automatic-speech-recognition",
    )
]
"""One case of each kind of output, and those that numpy and torch once disagreed about."""


def test_every_task_type_has_a_case() -> None:
    assert {case.task for case in CASES} == TASKS.keys()


@pytest.mark.parametrize("case", CASES, ids=[case.label for case in CASES])
def test_the_task_runs_on_a_local_model(
    case: Case, media: dict[str, Path], built: Callable[[Callable[[Path], None]], Path], tmp_path: Path
) -> None:
    run(case, media, built, tmp_path)


@pytest.mark.parametrize("case", HALVED, ids=[case.label for case in HALVED])
def test_the_task_runs_in_half_precision_too(
    case: Case, media: dict[str, Path], built: Callable[[Callable[[Path], None]], Path], tmp_path: Path
) -> None:
    """As on a GPU, where bfloat16 is the default: what becomes of the numbers must not mind."""
    run(case, media, built, tmp_path, dtype="bfloat16")


def run(
    case: Case,
    media: dict[str, Path],
    built: Callable[[Callable[[Path], None]], Path],
    folder: Path,
    **options: Any,
) -> None:
    settings = Settings(output_dir=folder / "made", offline=True, device="cpu", retries=0, **options)
    source: Any = StarterSource(settings)
    if case.model:
        described = {"id": f"tiny/{case.model.__name__}", "task": case.task, "path": str(built(case.model))}
        source = RegisteredSource({**described, **case.described})
    tools: Any = hf_tools(
        tasks=[case.task], sources=[source], settings=settings, files=[str(path) for path in media.values()]
    )
    args = {name: _filled(value, media) for name, value in case.args.items()}
    with tools[0]:
        message = tools[0].invoke({"type": "tool_call", "id": "1", "name": case.task, "args": args})
    lacking = [module for module in case.needs if find_spec(module) is None]
    if lacking:
        assert message.status == "error"
        assert lacking[0] in message.content
        return
    assert message.status == "success", message.content
    artifact = json.loads(json.dumps(message.artifact))
    kinds = {resource["kind"] for resource in artifact["resources"]}
    assert kinds >= set(TASKS[case.task].outputs)
    case.check(artifact)


def _filled(value: Any, media: dict[str, Path]) -> Any:
    if isinstance(value, list):
        return [_filled(item, media) for item in value]
    return str(media[value[1:]]) if isinstance(value, str) and value.startswith("@") else value
