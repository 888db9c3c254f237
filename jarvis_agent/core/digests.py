"""SHA-256 of files, with which weights from elsewhere are checked before they are loaded.

That of a large file is kept in ~/.cache/jarvis_agent/digests, so that a run reads none for this.
"""

import hashlib
import os
import re
import threading
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from jarvis_agent.core.environment import user_cache
from jarvis_agent.core.forks import fork_safe

LARGE = 1_000_000
"""Bytes from which a digest is kept for other processes."""

_ONE_AT_A_TIME = fork_safe(threading.Lock())


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, in hex. Raises OSError if it cannot be read."""
    path = path.resolve()
    stat = path.stat()
    with _ONE_AT_A_TIME:  # the others find it known
        return _digest(path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


@lru_cache(maxsize=64)
def _digest(path: Path, *version: int) -> str:
    """`version`: size in bytes, and times in nanoseconds; a program may set one of the times, not both.

    On Windows it may set both, so that nothing is kept there.
    """
    is_kept = version[0] >= LARGE and os.name != "nt"
    name, state = hashlib.sha256(os.fsencode(path)).hexdigest(), " ".join(map(str, version))
    with suppress(OSError, RuntimeError, ValueError):
        kept = (user_cache() / "digests" / name).read_text("ascii") if is_kept else ""
        if match := re.fullmatch(f"{state} ([0-9a-f]{{64}})", kept):
            return match[1]
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with suppress(OSError, RuntimeError):
        if is_kept:
            store = user_cache() / "digests" / name
            store.parent.mkdir(parents=True, exist_ok=True)
            draft = store.with_suffix(f".{os.getpid()}")
            draft.write_text(f"{state} {digest}", "ascii")
            draft.replace(store)
    return digest
