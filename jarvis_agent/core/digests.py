"""SHA-256 of files, with which weights from elsewhere are checked before they are loaded.

What is known of large files is kept in ~/.cache/jarvis_agent/digests.json, so that a run reads none for this.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from jarvis_agent.core.environment import user_cache
from jarvis_agent.core.forks import fork_safe

LARGE = 1_000_000
"""Bytes from which a digest is kept for other processes."""

_FILE = "digests.json"
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
    known = _known() if is_kept else {}
    match known.get(str(path)):
        case [*kept, str(digest)] if kept == list(version):
            return digest
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if is_kept:
        # Of an odd name, Path.exists would raise.
        there = {name: row for name, row in known.items() if os.path.exists(name)}  # noqa: PTH110
        _keep(there | {str(path): [*version, digest]})
    return digest


def _known() -> dict[str, list[object]]:
    with suppress(OSError, ValueError, RuntimeError):
        rows = json.loads((user_cache() / _FILE).read_text(encoding="utf-8"))
        return rows if isinstance(rows, dict) else {}
    return {}


def _keep(rows: dict[str, list[object]]) -> None:
    """Replace the store. Of two processes that write at once, one's digest is computed again later."""
    with suppress(OSError, RuntimeError):
        store = user_cache() / _FILE
        store.parent.mkdir(parents=True, exist_ok=True)
        draft = store.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(rows), encoding="utf-8")
        draft.replace(store)
