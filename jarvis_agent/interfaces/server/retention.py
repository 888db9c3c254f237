"""What a server keeps for a time: uploads, and what runs wrote, in a folder each. The oldest goes first.

sweep(Path("outputs/served"), seconds=86_400, total=20_000_000_000, busy=900)
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

MOST = 50_000
"""How many folders are kept at most, however little is in them."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of files: when one of them was written last, in seconds since the epoch, and their bytes."""

    path: Path
    since: float
    size: int


def folders_in(directory: Path) -> list[Folder]:
    """The folders in a directory, the oldest first. One that does not exist is empty."""
    try:
        with os.scandir(directory) as run_with_timeout:
            entries = [entry for entry in run_with_timeout if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    found = []
    for entry in entries:
        try:
            with os.scandir(entry) as run_with_timeout:
                files = [file.stat(follow_symlinks=False) for file in run_with_timeout]
            since = max([entry.stat().st_mtime, *(file.st_mtime for file in files)])
        except OSError:
            # It is going away, or somebody is at work in it.
            continue
        found.append(Folder(Path(entry), since, sum(file.st_size for file in files)))
    return sorted(found, key=lambda folder: folder.since)


def drop_oldest(
    folders: Collection[Folder], surplus: int, *, seconds: float, now: float, busy: float = 0.0
) -> int:
    """Delete the first of `folders`, as far as they are too old, too much or too many; returns how many.

    Args:
        folders: the oldest first.
        surplus: bytes that they have too much.
        seconds: how long they are kept.
        now: seconds since the epoch.
        busy: seconds for which they may still be needed, whatever they weigh.
    """
    dropped = 0
    for folder in folders:
        age = now - folder.since
        if age < busy or (age < seconds and surplus <= 0 and len(folders) - dropped <= MOST):
            break
        shutil.rmtree(folder.path, ignore_errors=True)
        surplus -= folder.size
        dropped += 1
    return dropped


def sweep(
    directory: Path, *, seconds: float, busy: float, total: int = 20_000_000_000, now: float | None = None
) -> None:
    """Delete what is too old in a directory, and what is too much for `total` bytes; see `drop_oldest`."""
    folders = folders_in(directory)
    surplus = sum(folder.size for folder in folders) - total
    drop_oldest(folders, surplus, seconds=seconds, now=time.time() if now is None else now, busy=busy)
