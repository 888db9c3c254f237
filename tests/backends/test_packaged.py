"""Files inside installed packages: found without an import, and checked before use."""

import hashlib
import os
import sys
from pathlib import Path

import pytest

from jarvis_agent.backends.starter.backend import packaged_file
from jarvis_agent.core.errors import ConfigError

FILE = ("carries_weights", "model/weights.bin")
GOOD = hashlib.sha256(b"weights").hexdigest()[:16]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package on sys.path whose import fails; returns its weights file."""
    root = tmp_path / "carries_weights"
    (root / "model").mkdir(parents=True)
    (root / "__init__.py").write_text("raise RuntimeError('imported')")
    weights = root / "model" / "weights.bin"
    weights.write_bytes(b"weights")
    monkeypatch.syspath_prepend(tmp_path)
    return weights


def test_a_file_is_found_without_importing_its_package(package: Path) -> None:
    for checksum in (GOOD, None):
        assert packaged_file(*FILE, checksum) == package
    assert "carries_weights" not in sys.modules
    assert packaged_file("a_package_that_is_not_there", "model/weights.bin", None) is None
    assert packaged_file("carries_weights", "model/other.bin", None) is None
    with pytest.raises(ValueError, match="top-level"):  # locating it would import its parent
        packaged_file("carries_weights.model", "weights.bin", None)


def test_a_file_is_read_for_its_checksum_once_and_again_if_it_changes(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    digest = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda file, name: read.append(name) or digest(file, name))
    for _ in range(2):
        assert packaged_file(*FILE, GOOD) == package
    assert len(read) == 1
    package.write_bytes(b"changed")
    os.utime(package, ns=(1, 1))
    with pytest.raises(ConfigError, match=r"weights\.bin is not the expected file"):
        packaged_file(*FILE, GOOD)
