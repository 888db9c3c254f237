"""Control maps by algorithm, on a real photo and on drawn pictures."""

from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.backends.algorithms import opencv
from jarvis_agent.backends.algorithms.opencv import CONTROL_MAPS, OpenCVBackend
from jarvis_agent.backends.base import Call
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.errors import BadInputError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Resource
from jarvis_agent.selection.sources.starter import StarterSource

np = pytest.importorskip("numpy")
pytest.importorskip("cv2")

CAT = Path(__file__).parents[2] / "examples" / "cat.jpg"


async def draw(task: str, path: Path) -> Any:
    """The control map of an image, as the agent makes it."""
    (candidate,) = await StarterSource(Settings(offline=True)).candidates(TASKS[task], limit=1)
    pool = ModelPool(limit_bytes=1_000_000)
    backend = OpenCVBackend(pool)
    assert backend.unsupported_reason(TASKS[task], candidate) is None
    inputs = {"image": Resource(kind="image", path=path)}
    drawn = await backend.run(Call(TASKS[task], candidate, inputs, Path, Settings()))
    await pool.close()
    return drawn


def square(path: Path, mode: str = "RGB") -> Path:
    """A white square on black."""
    from PIL import Image

    picture = Image.new("RGB", (200, 120))
    picture.paste("white", (60, 20, 140, 100))
    picture.convert(mode).save(path)
    return path


@pytest.mark.parametrize("task", CONTROL_MAPS)
async def test_a_control_map_draws_the_edges(task: str, tmp_path: Path) -> None:
    from PIL import Image

    photo = await draw(task, CAT)
    white = float((np.asarray(photo) > 127).mean())
    assert (photo.mode, photo.size) == ("L", Image.open(CAT).size)
    assert 0.001 < white < 0.4
    drawn = np.asarray(await draw(task, square(tmp_path / "square.png"))) > 127
    assert drawn[:, 50:70].any()
    assert drawn[:, 130:150].any()
    assert not drawn[:, :40].any()
    assert not drawn[50:70, 85:115].any()
    for mode in ("L", "P", "RGBA"):
        assert np.asarray(await draw(task, square(tmp_path / "square.png", mode))).any(), mode
    Image.new("RGB", (64, 48), "gray").save(tmp_path / "gray.png")
    assert not np.asarray(await draw(task, tmp_path / "gray.png")).any()


async def test_a_file_that_is_no_image_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("not an image")
    with pytest.raises(BadInputError, match=r"a\.png"):
        await draw("canny-control", tmp_path / "a.png")


def test_only_the_algorithm_of_the_task_is_taken() -> None:
    backend = OpenCVBackend(ModelPool(limit_bytes=1))
    canny = Candidate(id="opencv/canny", task="canny-control")
    assert backend.unsupported_reason(TASKS["canny-control"], canny) is None
    assert "not an OpenCV algorithm" in str(backend.unsupported_reason(TASKS["hed-control"], canny))
    assert "not an OpenCV algorithm" in str(backend.unsupported_reason(TASKS["depth-control"], canny))


def test_without_opencv_the_command_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencv, "find_spec", lambda name: None)
    backend = OpenCVBackend(ModelPool(limit_bytes=1))
    told = backend.unsupported_reason(
        TASKS["canny-control"], Candidate(id="opencv/canny", task="canny-control")
    )
    assert "[starter]" in str(told)


def test_every_task_that_needs_no_model_has_its_algorithm() -> None:
    without = {spec.name for spec in TASKS.values() if spec.category == "control" and not spec.needs_model}
    assert without == CONTROL_MAPS.keys()
