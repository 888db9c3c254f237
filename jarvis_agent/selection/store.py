"""The file of selection: a small SQLite database that all processes of a user share.

    store = open_store(settings)            # ~/.cache/jarvis_agent/selection.sqlite
    store.vectors([b"digest"])              # {b"digest": b"..."}

It has embeddings of model cards by digest. A file that cannot be used is reported once in the log, and
selection goes on without it.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from jarvis_agent.core.settings import Settings

T = TypeVar("T")

logger = logging.getLogger(__name__)

_WAIT_S = 5.0
"""Longest wait for another writer."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS vectors (digest BLOB PRIMARY KEY, vector BLOB NOT NULL) WITHOUT ROWID;
"""


def open_store(settings: Settings) -> SelectionStore:
    """Return the store that the settings name, one a process for each file."""
    if settings.selection_file == "off":
        return SelectionStore(None)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return _open(settings.selection_file or cache / "jarvis_agent" / "selection.sqlite")


@lru_cache(maxsize=8)
def _open(path: Path) -> SelectionStore:
    return SelectionStore(path)


class SelectionStore:
    """The database; None as the path: nothing is kept. Each call opens it, so that threads may share it."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def vectors(self, digests: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return the embeddings that are known, by digest."""

        def read(database: sqlite3.Connection) -> dict[bytes, bytes]:
            query = "SELECT digest, vector FROM vectors WHERE digest = ?"
            rows = (database.execute(query, (digest,)).fetchone() for digest in digests)
            return dict(filter(None, rows))

        return self._run(read) or {}

    def add_vectors(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Keep embeddings by digest."""
        self._run(lambda database: database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows))

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Return the result of work in a transaction; None without a usable file."""
        if self.path is None:
            return None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=_WAIT_S)) as database, database:
                database.executescript(f"PRAGMA journal_mode=WAL; {_SCHEMA}")
                return work(database)
        except (OSError, sqlite3.Error) as error:
            logger.warning("%s cannot be used, and selection goes on without it: %s", self.path, error)
            self.path = None
            return None
