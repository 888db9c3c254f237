"""Fixtures of the tests of backends."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

Build = Callable[[Path], None]


@pytest.fixture
def copied(built: Callable[[Build], Path], tmp_path: Path) -> Callable[[Build], Path]:
    """A copy of a tiny model's folder, to be damaged."""
    return lambda build: Path(shutil.copytree(built(build), tmp_path / "copied"))


@pytest.fixture(autouse=True, scope="module")
def _quick_collections() -> None:
    """Exempt the objects of imported libraries from garbage collections, which each unloaded model causes."""
    gc.collect()
    gc.freeze()
