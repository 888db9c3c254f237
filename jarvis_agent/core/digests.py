"""SHA-256 of files, with which weights from elsewhere are checked before they are loaded.

file_sha256(path)      # reads a file once in a process, and again when its size or one of its times changes
"""

from __future__ import annotations

import hashlib
import threading
from functools import lru_cache
from pathlib import Path

from jarvis_agent.core.forks import fork_safe

_ONE_AT_A_TIME = fork_safe(threading.Lock())


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, in hex. Raises OSError if it cannot be read."""
    path = path.resolve()
    stat = path.stat()
    with _ONE_AT_A_TIME:  # the others find it known
        return _digest(path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


@lru_cache(maxsize=64)
def _digest(path: Path, *version: int) -> str:
    """`version`: size in bytes, and times in nanoseconds; a program may set one of the times, not both."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
