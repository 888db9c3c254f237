"""Every callable task type runs through `hf_tools()` on a local model, and its result survives JSON."""

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

from task_cases import CASES, Case

pytestmark = pytest.mark.slow

Built = Callable[[str], Path]


def marked(case: Case) -> Any:
    """Cases without a tiny model run a starter model, and so does OCR, which reads the page."""
    starter = not case.model or case.args.get("image") == "@page"
    return pytest.param(case, marks=pytest.mark.starter if starter else (), id=case.label)


def test_every_task_type_has_a_case() -> None:
    assert {case.task for case in CASES} == TASKS.keys()


@pytest.mark.parametrize("case", map(marked, CASES))
def test_the_task_runs_on_a_local_model(
    case: Case, media: dict[str, Path], built: Built, tmp_path: Path
) -> None:
    run(case, media, built, tmp_path)


@pytest.mark.parametrize(
    "task", ["feature-extraction", "depth-estimation", "text-to-image", "automatic-speech-recognition"]
)
def test_results_in_half_precision_are_converted(
    task: str, media: dict[str, Path], built: Built, tmp_path: Path
) -> None:
    """numpy does not know bfloat16, the default on a GPU: vectors, maps, images and sounds are converted."""
    case = next(case for case in CASES if case.task == task and case.model)
    run(case, media, built, tmp_path, dtype="bfloat16")


def run(case: Case, media: dict[str, Path], built: Built, folder: Path, **options: Any) -> None:
    settings = Settings(output_dir=folder / "made", offline=True, device="cpu", retries=0, **options)
    source: Any = StarterSource(settings)
    if case.model:
        described = {"id": f"tiny/{case.model}", "task": case.task, "path": str(built(case.model))}
        source = RegisteredSource({**described, "library": case.library, "metadata": case.metadata})
    paths = [str(path) for path in media.values()]
    tools: Any = hf_tools(tasks=[case.task], sources=[source], settings=settings, files=paths)
    args = {name: _filled(value, media) for name, value in case.args.items()}
    with tools[0]:
        message = tools[0].invoke({"type": "tool_call", "id": "1", "name": case.task, "args": args})
    if case.needs and find_spec(case.needs) is None:
        assert message.status == "error"
        assert case.needs in message.content
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
