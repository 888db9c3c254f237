"""The file of selection: a small SQLite database that all processes of a user share.

It has embeddings of model cards by digest, counts of calls by model and result, and ratings: nothing of a
request. Counts that did not change for a month are dropped, so that a model gets another chance. A file that
cannot be used is reported once in the log, and selection goes on without it.
"""

from __future__ import annotations

import logging
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from jarvis_agent.core.environment import user_cache
from jarvis_agent.core.forks import kept_in_forks

T = TypeVar("T")

logger = logging.getLogger(__name__)

_SQLITE = kept_in_forks(threading.Lock())

_WAIT_S = 5.0
"""Longest wait for another writer."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS vectors (digest BLOB PRIMARY KEY, vector BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS outcomes (
    model TEXT, task TEXT, error TEXT, calls INTEGER, seconds REAL, day INTEGER,
    PRIMARY KEY (model, task, error)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rated_results (
    model TEXT, task TEXT, owner TEXT, result TEXT, good INTEGER, day INTEGER,
    PRIMARY KEY (model, task, owner, result)) WITHOUT ROWID;
"""

_KEPT_DAYS = 30

_NOT_OF_THE_MODEL = {
    "BadInputError", "BudgetError", "ConfigError", "DeadlineError", "ForbiddenError",
    "InputError", "MissingExtraError", "RateLimitedError", "UnsupportedError",
}  # fmt: skip
"""Errors that say nothing about a model."""


class Outcome(NamedTuple):
    """One attempt of a model. `error` is the name of its class."""

    model: str
    task: str
    error: str | None
    seconds: float


class Experience(NamedTuple):
    """What happened to a model: its calls, those that succeeded, their mean time, and ratings."""

    calls: int = 0
    ok: int = 0
    seconds: float = 0.0
    good: int = 0
    bad: int = 0

    def __str__(self) -> str:
        """As in "12 calls, 92 % ok, 1.3 s, +3"."""
        parts = []
        if self.calls:
            parts = [f"{self.calls} call{'s' * (self.calls > 1)}", f"{100 * self.ok / self.calls:.0f} % ok"]
        parts += [f"{self.seconds:.1f} s"] if self.ok else []
        return ", ".join(parts + ([f"{self.good - self.bad:+d}"] if self.good or self.bad else []))


def _today() -> int:
    return int(time.time() // 86_400)


def open_store() -> SelectionStore:
    """Return the store of this user, one a process."""
    try:
        return _open(user_cache() / "selection.sqlite")
    except RuntimeError:  # this user has no home directory
        return SelectionStore(None)


@lru_cache(maxsize=8)
def _open(path: Path) -> SelectionStore:
    return SelectionStore(path)


class SelectionStore:
    """The database; None as the path: nothing is kept. Each call opens it, so that threads may share it."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def vectors(self, digests: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return the embeddings that are known, by digest."""
        query = "SELECT digest, vector FROM vectors WHERE digest = ?"
        rows = self._run(lambda database: [database.execute(query, (key,)).fetchone() for key in digests])
        return dict(filter(None, rows or ()))

    def add_vectors(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Keep embeddings by digest."""
        self._run(lambda database: database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows))

    def record(self, outcomes: Sequence[Outcome]) -> None:
        """Count attempts."""
        add = (
            "INSERT INTO outcomes VALUES (?, ?, ?, 1, ?, ?) ON CONFLICT DO UPDATE "
            "SET calls = calls + 1, seconds = seconds + excluded.seconds, day = excluded.day"
        )

        def write(database: sqlite3.Connection) -> None:
            database.execute("DELETE FROM outcomes WHERE day < ?", (_today() - _KEPT_DAYS,))
            for call in outcomes:
                row = (call.model, call.task, call.error or "", call.seconds, _today())
                database.execute(add, row)

        self._run(write)

    def rate(self, model: str, task: str, good: bool, owner: str = "", result: str = "") -> bool:
        """Keep a rating of a result of a model. Returns whether it is kept.

        It replaces the owner's earlier rating of the same `result`; "" is another one each time.
        """
        result = result or secrets.token_hex(8)
        row = (model, task, owner, result, good, _today())
        write = (
            "INSERT OR REPLACE INTO rated_results (model, task, owner, result, good, day) "
            "VALUES (?, ?, ?, ?, ?, ?)"
        )
        return self._run(lambda database: database.execute(write, row)) is not None

    def experience(self, task: str) -> dict[str, Experience]:
        """Return what happened to each model of a task, of all owners together."""

        def read(database: sqlite3.Connection) -> dict[str, Experience]:
            models: dict[str, Experience] = {}
            query = "SELECT model, error, sum(calls), sum(seconds) FROM outcomes WHERE task = ? GROUP BY 1, 2"
            for model, error, calls, seconds in database.execute(query, (task,)):
                if error not in _NOT_OF_THE_MODEL:
                    seen = models.get(model, Experience())
                    seen = seen._replace(calls=seen.calls + calls)
                    models[model] = seen if error else seen._replace(ok=calls, seconds=seconds / calls)
            query = "SELECT model, sum(good), sum(1 - good) FROM rated_results WHERE task = ? GROUP BY 1"
            for model, good, bad in database.execute(query, (task,)):
                models[model] = models.get(model, Experience())._replace(good=good, bad=bad)
            return models

        return self._run(read) or {}

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Return the result of work in a transaction; None without a usable file."""
        if self.path is None:
            return None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _SQLITE, closing(sqlite3.connect(self.path, timeout=_WAIT_S)) as database, database:
                database.executescript(_SCHEMA)
                return work(database)
        except (OSError, sqlite3.Error) as error:
            logger.warning("%s cannot be used, and selection goes on without it: %s", self.path, error)
            if not isinstance(error, sqlite3.OperationalError) or "locked" not in str(error):
                self.path = None
            return None
