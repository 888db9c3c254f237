"""Digests of files: read once, and again when a file changes."""

import hashlib
import os
from pathlib import Path

import pytest

from jarvis_agent.core import digests
from jarvis_agent.core.digests import file_sha256


@pytest.fixture
def reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were read for their digest; an empty cache of a user."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(digests, "LARGE", 5)
    digest, names = hashlib.file_digest, list[str]()
    monkeypatch.setattr(
        hashlib, "file_digest", lambda file, name: names.append(Path(file.name).name) or digest(file, name)
    )
    digests._digest.cache_clear()
    return names


def another_process() -> None:
    digests._digest.cache_clear()


def test_large_files_are_read_once_and_small_ones_once_in_a_process(tmp_path: Path, reads: list[str]) -> None:
    large, small = tmp_path / "large", tmp_path / "small"
    large.write_bytes(b"weights")
    small.write_bytes(b"rate")
    for _ in range(2):
        for file in (large, small):
            assert file_sha256(file) == hashlib.sha256(file.read_bytes()).hexdigest()
            assert file_sha256(file) == file_sha256(file)
        another_process()
    assert reads == ["large", "small", "small"]


def test_a_file_is_read_again_when_its_size_or_a_time_changes(tmp_path: Path, reads: list[str]) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"weights")
    before = file.stat()
    first = file_sha256(file)
    file.write_bytes(b"Weights")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # who hides a change can set this time
    for is_another in (False, True):
        if is_another:
            another_process()
        assert file_sha256(file) == hashlib.sha256(b"Weights").hexdigest() != first
    assert len(reads) == 2
    assert len(list((tmp_path / "cache" / "jarvis_agent" / "digests").iterdir())) == 1


def test_a_store_that_is_damaged_or_cannot_be_written_does_no_harm(
    tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, folder = tmp_path / "file", tmp_path / "cache" / "jarvis_agent" / "digests"
    file.write_bytes(b"weights")
    expected = file_sha256(file)
    (store,) = folder.iterdir()
    stored = store.read_bytes()
    for content in (b"", b"\xff", stored[:-1], stored + b"\n", stored.upper()):
        store.write_bytes(content)
        another_process()
        assert file_sha256(file) == expected
        assert [kept.read_bytes() for kept in folder.iterdir()] == [stored]
    assert len(reads) == 6
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    another_process()
    assert file_sha256(file) == expected
