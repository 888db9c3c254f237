"""The algorithms: which tasks they do, and the control maps that OpenCV draws of a photo and of shapes."""

from pathlib import Path

import pytest
from PIL import Image

from jarvis_agent.backends.algorithms import backend as algorithms
from jarvis_agent.backends.algorithms.backend import ALGORITHMS, AlgorithmsBackend
from jarvis_agent.backends.base import Call
from jarvis_agent.backends.outputs.media import to_image
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Resource
from jarvis_agent.selection.sources.starter import StarterSource

np = pytest.importorskip("numpy")
pytest.importorskip("cv2")

CAT = Path(__file__).parents[2] / "examples" / "cat.jpg"


async def draw(pool: ModelPool, task: str, path: Path) -> Image.Image:
    """The control map of an image, as an agent makes it."""
    (candidate,) = await StarterSource(Settings(offline=True)).candidates(TASKS[task], limit=1)
    backend = AlgorithmsBackend(Settings(), pool)
    assert backend.unsupported_reason(TASKS[task], candidate) is None
    inputs = {"image": Resource(kind="image", path=path)}
    return to_image(await backend.run(Call(TASKS[task], candidate, inputs, Path, Settings())))


async def test_control_maps_draw_edges(pool: ModelPool, tmp_path: Path, subtests: pytest.Subtests) -> None:
    path = tmp_path / "square.png"
    square = Image.new("RGB", (200, 120))
    square.paste("white", (60, 20, 140, 100))
    for task in (task for task in ALGORITHMS if task.endswith("-control")):
        with subtests.test(task):
            photo = await draw(pool, task, CAT)
            assert (photo.mode, photo.size) == ("L", Image.open(CAT).size)
            assert 0.001 < float((np.asarray(photo) > 127).mean()) < 0.4
            square.save(path)
            drawn = np.asarray(await draw(pool, task, path)) > 127
            assert drawn[:, 50:70].any()
            assert drawn[:, 130:150].any()
            assert not drawn[:, :40].any()
            assert not drawn[50:70, 85:115].any()
            Image.new("RGB", (64, 48), "gray").save(path)
            assert not np.asarray(await draw(pool, task, path)).any()


def test_each_algorithm_runs_for_its_own_task_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = AlgorithmsBackend(Settings(), ModelPool(0))
    needless = {task for task, spec in TASKS.items() if not spec.needs_model}
    assert needless == ALGORITHMS.keys()
    for task, algorithm in ALGORITHMS.items():
        candidate = Candidate(id=algorithm.id, task=task)
        assert backend.unsupported_reason(TASKS[task], candidate) is None
        assert "not an algorithm" in str(backend.unsupported_reason(TASKS["depth-control"], candidate))
    monkeypatch.setattr(algorithms, "find_spec", lambda name: None)
    for task, extra in (("canny-control", "[starter]"), ("extract-audio", "[local]")):
        candidate = Candidate(id=ALGORITHMS[task].id, task=task)
        assert extra in str(backend.unsupported_reason(TASKS[task], candidate))
