"""Fixtures of the tests of backends."""

import gc
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from model_bench import Bench
from result_bench import Adapting, a_photo, adapting_in

from jarvis_agent.core.types import Resource


@pytest.fixture
def copied(built: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a tiny model's folder, to be damaged."""
    return lambda name: Path(shutil.copytree(built(name), tmp_path / "copied" / name))


@pytest.fixture
def adapting(tmp_path: Path) -> Adapting:
    return adapting_in(tmp_path)


@pytest.fixture
def photo(tmp_path: Path) -> Resource:
    return a_photo(tmp_path)


@pytest.fixture(autouse=True, scope="module")
def _quick_collections() -> None:
    """Exempt the objects of imported libraries from garbage collections, which each unloaded model causes."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def bench(
    request: pytest.FixtureRequest,
    built: Callable[[str], Path],
    media: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Bench:
    """Calls of tiny models on the backend that the module names as `BACKEND`."""
    return Bench(request.module.BACKEND, built, media, tmp_path_factory.mktemp("made"))
