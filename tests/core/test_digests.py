"""Digests of files: read once, and again when a file changes."""

import hashlib
import os
from pathlib import Path

import pytest

from jarvis_agent.core.digests import file_sha256


def test_a_file_is_read_once_and_again_when_its_size_or_one_of_its_times_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, reads = hashlib.file_digest, list[str]()
    monkeypatch.setattr(hashlib, "file_digest", lambda file, name: reads.append(name) or digest(file, name))
    file = tmp_path / "file"
    for content in (b"weights", b"Weights"):
        file.write_bytes(content)
        os.utime(file, ns=(0, 0))  # who hides a change can set this time
        for _ in range(2):
            assert file_sha256(file) == hashlib.sha256(content).hexdigest()
    assert len(reads) == 2
