"""Files inside installed packages: found without importing, checked before use."""

import hashlib
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.core.errors import ConfigError
from jarvis_agent.backends.hub.packaged import packaged_file


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that must not be imported, on sys.path; returns its weights file."""
    root = tmp_path / "carries_weights"
    (root / "model").mkdir(parents=True)
    (root / "__init__.py").write_text("raise RuntimeError('imported')")
    weights = root / "model" / "weights.bin"
    weights.write_bytes(b"weights")
    monkeypatch.syspath_prepend(tmp_path)
    return weights


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def test_a_file_is_found_without_importing_its_package(package: Path) -> None:
    assert packaged_file("carries_weights", "model/weights.bin", _sum(b"weights")) == package
    assert "carries_weights" not in sys.modules


def test_a_file_whose_sum_differs_is_refused(package: Path) -> None:
    with pytest.raises(ConfigError, match=r"weights\.bin is not the file that is expected"):
        packaged_file("carries_weights", "model/weights.bin", "0" * 16)


def test_a_file_that_changes_after_its_check_is_checked_again(package: Path) -> None:
    good = _sum(b"weights")
    assert packaged_file("carries_weights", "model/weights.bin", good)
    package.write_bytes(b"changed")
    os.utime(package, ns=(1, 1))
    with pytest.raises(ConfigError):
        packaged_file("carries_weights", "model/weights.bin", good)


def test_those_who_need_a_file_at_once_have_it_checked_once(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(file: Any, name: str) -> Any:
        read.append(file.name)
        time.sleep(0.05)
        return summed(file, name)

    read: list[str] = []
    summed = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", slowly)
    asked = ["carries_weights"] * 4, ["model/weights.bin"] * 4, [_sum(b"weights")] * 4
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(packaged_file, *asked)) == [package] * 4
    assert list(map(str, read)) == [str(package)]


def test_no_sum_means_no_check(package: Path) -> None:
    assert packaged_file("carries_weights", "model/weights.bin", None) == package


def test_what_is_not_installed_is_none(package: Path) -> None:
    assert packaged_file("a_package_that_is_not_there", "model/weights.bin", None) is None
    assert packaged_file("carries_weights", "model/other.bin", None) is None


def test_a_subpackage_is_refused_since_locating_it_would_import_its_parent(package: Path) -> None:
    with pytest.raises(ValueError, match="top-level"):
        packaged_file("carries_weights.model", "weights.bin", None)
