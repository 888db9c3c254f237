"""Fixtures of the tests of backends."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def copied(built: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a tiny model's folder, to be damaged."""
    return lambda name: Path(shutil.copytree(built(name), tmp_path / "copied"))


@pytest.fixture(autouse=True, scope="module")
def _quick_collections() -> None:
    """Exempt the objects of imported libraries from garbage collections, which each unloaded model causes."""
    gc.collect()
    gc.freeze()
