"""What the runs of a server have written: their own files, attachments and downloads. It is kept for a time.

sweep_runs(Path("outputs/served"), seconds=86_400, total=20_000_000_000, busy=900)
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


def sweep_runs(directory: Path, *, seconds: float, total: int, busy: float, now: float | None = None) -> None:
    """Delete what runs have left, as far as it is too old or too much; the oldest goes first.

    Args:
        directory: holds a directory for each run. One that does not exist is empty.
        seconds: how long a run's files are kept after it last wrote one.
        total: bytes of all runs together.
        busy: seconds since it last wrote for which a run may still need its files, whatever they weigh.
        now: seconds since the epoch.
    """
    runs = sorted(_found(directory), key=lambda run: run.since)
    surplus = sum(run.size for run in runs) - total
    for run in runs:
        age = (time.time() if now is None else now) - run.since
        if age < busy or (age < seconds and surplus <= 0):
            return
        surplus -= run.size
        shutil.rmtree(run.folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class _Run:
    folder: Path
    since: float
    size: int


def _found(directory: Path) -> Iterator[_Run]:
    try:
        folders = [entry for entry in os.scandir(directory) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for folder in folders:
        try:
            files = [entry.stat(follow_symlinks=False) for entry in os.scandir(folder)]
            since = max([folder.stat().st_mtime, *(file.st_mtime for file in files)])
        except OSError:
            # It is going away, or a run is at work in it.
            continue
        yield _Run(Path(folder), since, sum(file.st_size for file in files))
