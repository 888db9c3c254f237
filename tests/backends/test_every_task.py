"""Task types run through `hf_tools()` on a local model, and their results survive JSON.

The cases are rows of tests/data/task_cases.yaml, and their checks are functions of task_checks.py.
`make task-report` lists task types without a case.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partialmethod
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import task_checks
import yaml
from libraries import needs

from jarvis_agent import RegisteredSource, Settings, hf_tools
from jarvis_agent.selection.sources.starter import StarterSource
from jarvis_agent.tools import TASKS

torch = needs("torch")

pytestmark = pytest.mark.slow

TABLE = Path(__file__).parents[1] / "data" / "task_cases.yaml"


class Case(NamedTuple):
    """A task type on one tiny model; without a model, on a starter model or an algorithm."""

    task: str
    model: str | None
    args: Mapping[str, Any]
    check: Mapping[str, Any]
    metadata: Mapping[str, Any]
    library: str | None
    needs: str | None


def cases_of(
    task: str,
    *,
    args: Mapping[str, Any],
    check: Mapping[str, Any],
    models: Sequence[str | None] = (None,),
    steps: int = 0,
    options: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    needs: str | None = None,
) -> list[Case]:
    """The cases of a row of the table, one for each model."""
    options = {**({"num_inference_steps": steps} if steps else {}), **(options or {})}
    described = {"options": options, **(metadata or {})}
    library = "diffusers" if steps else None
    return [Case(task, model, args, check, described, library, needs) for model in models]


ROWS = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
del ROWS["shared"]
CASES = [case for task, rows in ROWS.items() for row in rows for case in cases_of(task, **row)]


def marked(case: Case) -> Any:
    """Cases without a tiny model run a starter model, and so does OCR, which reads the page."""
    starter = not case.model or case.args.get("image") == "@page"
    marks = pytest.mark.starter if starter else ()
    return pytest.param(case, marks=marks, id=f"{case.task}-{case.model}" if case.model else case.task)


@pytest.mark.parametrize("case", list(map(marked, CASES)))
def test_the_task_runs_on_a_local_model(
    case: Case,
    media: dict[str, Path],
    built: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if str(case.model).startswith("shap_e"):  # 16³ points of a shape are as good as 128³
        renderer: Any = pytest.importorskip("diffusers.pipelines.shap_e.renderer").ShapERenderer
        coarse = partialmethod(renderer.decode_to_mesh, grid_size=16)
        monkeypatch.setattr(renderer, "decode_to_mesh", coarse)
    run(case, media, built, tmp_path)


@pytest.mark.parametrize(
    "task", ["feature-extraction", "depth-estimation", "text-to-image", "automatic-speech-recognition"]
)
def test_results_in_half_precision_are_converted(
    task: str,
    media: dict[str, Path],
    built: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """numpy does not know bfloat16, that of models on a GPU: vectors, maps, images, sounds are converted."""
    for backend in ("transformers.loading", "diffusers", "sentence_transformers"):
        half = f"jarvis_agent.backends.{backend}.pick_dtype"
        monkeypatch.setattr(half, lambda device, exact=False: torch.float32 if exact else torch.bfloat16)
    case = next(case for case in CASES if case.task == task and case.model)
    run(case, media, built, tmp_path)


def run(case: Case, media: dict[str, Path], built: Callable[[str], Path], folder: Path) -> None:
    settings = Settings(output_dir=folder / "made", offline=True, device="cpu")
    source: Any = StarterSource(settings)
    if case.model:
        described = {"id": f"tiny/{case.model}", "task": case.task, "path": str(built(case.model))}
        source = RegisteredSource({**described, "library": case.library, "metadata": case.metadata})
    paths = [str(path) for path in media.values()]
    tools: Any = hf_tools(tasks=[case.task], sources=[source], settings=settings, files=paths)
    args = {name: filled(value, media) for name, value in case.args.items()}
    with tools[0]:
        message = tools[0].invoke({"type": "tool_call", "id": "1", "name": case.task, "args": args})
    if case.needs and find_spec(case.needs) is None:
        assert message.status == "error"
        assert case.needs in message.content
        return
    assert message.status == "success", message.content
    artifact = json.loads(json.dumps(message.artifact))
    assert {resource["kind"] for resource in artifact["resources"]} >= set(TASKS[case.task].outputs)
    for name, given in case.check.items():
        args, options = ([], given) if isinstance(given, dict) else (given, {})
        getattr(task_checks, name)(artifact, *args, **options)


def filled(value: Any, media: dict[str, Path]) -> Any:
    """An argument, in which "@name" is the path of a media file."""
    if isinstance(value, list):
        return [filled(item, media) for item in value]
    return str(media[value[1:]]) if isinstance(value, str) and value.startswith("@") else value
