"""The database of a server: threads in LangGraph's checkpointer, and what is known of runs in its store.

    async with open_database("postgresql://ada@db/jarvis", Path("outputs"), retention=86_400) as database:
        agent = agent.with_checkpointer(database.saver)
        await database.put(("runs", "local"), "8f0c…", {"status": "running"})
        await database.get(("runs", "local"), "8f0c…")               # an Item with that value, or None

SQLite serves the processes of one machine, PostgreSQL (extra "postgres") those of several.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite
from filelock import AsyncFileLock
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.store.base import BaseStore, Item, SearchItem
from langgraph.store.sqlite.aio import AsyncSqliteStore

from jarvis_agent.core.errors import ConfigError, MissingExtraError

FILE = "server.sqlite"
"""The database in the output directory, unless another one is set."""

DATABASE_ERRORS: tuple[type[Exception], ...] = (sqlite3.OperationalError,)
"""What is raised while the database cannot be reached or written."""


class DatabaseFileError(sqlite3.OperationalError):
    """The file of the database was deleted or replaced. SQLite would go on in a file without a name."""


_OPENING_ERRORS: tuple[type[Exception], ...] = (OSError, sqlite3.Error)

with suppress(ImportError):
    import psycopg

    DATABASE_ERRORS += (psycopg.OperationalError, psycopg.InterfaceError)
    _OPENING_ERRORS += (psycopg.Error,)

Namespace = tuple[str, ...]
Parts = tuple[BaseCheckpointSaver[Any], BaseStore, BaseStore]
T = TypeVar("T")

_WAIT_S = 5.0
"""Longest wait for a connection, or for a lock of SQLite."""

_MAX_CONNECTIONS = 10
_PAGE_ROWS = 10_000
_SETUP_LOCK = 0x6A617276


class Writes:
    """Operations that end even if their callers are cancelled, which would leave SQLite locked."""

    def __init__(self, check: Callable[[], None] = lambda: None) -> None:
        """`check` raises an error if what is written would be lost."""
        self.check = check
        self._tasks: set[asyncio.Task[Any]] = set()

    async def finish(self, operation: Coroutine[Any, Any, T]) -> T:
        """Return the result of an operation. A cancelled caller leaves after the end of its operation.

        Otherwise a later write of the same row could be overtaken by this one.
        """
        try:
            self.check()
        except BaseException:
            operation.close()
            raise
        task = asyncio.create_task(operation)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            raise

    async def join(self) -> None:
        """Wait for the end of all operations."""
        await asyncio.gather(*self._tasks, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class Database:
    """An open database.

    Attributes:
        saver: keeps the threads.
        reader, writer: rows of JSON. They may expire `retention` seconds after they were last written. Each
            store gathers operations while it is busy, and executes them in one transaction. In SQLite one
            that reads first could not write.
    """

    saver: BaseCheckpointSaver[Any]
    reader: BaseStore
    writer: BaseStore
    retention: float
    writes: Writes

    async def check(self) -> None:
        """Raise one of DATABASE_ERRORS if the database cannot be reached, or its file was deleted."""
        await self.get(("check",), "")

    async def get(self, namespace: Namespace, key: str) -> Item | None:
        """Return a row."""
        self.writes.check()
        return await self.reader.aget(namespace, key, refresh_ttl=False)

    async def search(self, namespace: Namespace, **fields: Any) -> list[SearchItem]:
        """Return the rows of a namespace whose values have these fields, the newest first."""
        self.writes.check()
        items: list[SearchItem] = []
        while len(items) % _PAGE_ROWS == 0:
            page = await self.reader.asearch(
                namespace, filter=fields or None, limit=_PAGE_ROWS, offset=len(items), refresh_ttl=False
            )
            if not page:
                break
            items += page
        return items

    async def put(
        self, namespace: Namespace, key: str, value: dict[str, Any] | None, *, expires: bool = True
    ) -> None:
        """Write a row, or delete it for None."""
        if value is None:
            operation = self.writer.adelete(namespace, key)
        else:
            minutes = self.retention / 60 if expires else None
            operation = self.writer.aput(namespace, key, value, ttl=minutes)
        await self.writes.finish(operation)

    async def delete_expired(self) -> None:
        """Delete the rows that have expired."""
        await self.writes.finish(self.writer.sweep_ttl())  # type: ignore[attr-defined]


@asynccontextmanager
async def open_database(address: str | None, directory: Path, retention: float) -> AsyncIterator[Database]:
    """Open the database and make its tables.

    Args:
        address: a URL of PostgreSQL, or the path of a file; None: FILE in `directory`.
        directory: is made if it does not exist.
        retention: seconds.

    Raises:
        ConfigError: it cannot be opened.
        MissingExtraError: the extra "postgres" is not installed.
    """
    is_postgres = address is not None and address.startswith(("postgresql://", "postgres://"))
    place, writes = address or str(directory / FILE), Writes()
    async with AsyncExitStack() as opened:
        try:
            parts = _open_postgres(place) if is_postgres else _open_sqlite(Path(place), writes)
            saver, reader, writer = await opened.enter_async_context(parts)
        except _OPENING_ERRORS as error:
            raise ConfigError(
                f"the database {place} (JARVIS_CHECKPOINTS) cannot be opened: {error}"
            ) from None
        opened.push_async_callback(writes.join)
        yield Database(saver, reader, writer, retention, writes)


def _check_file(path: Path, opened: os.stat_result) -> None:
    with suppress(OSError):
        if os.path.samestat(path.stat(), opened):
            return
    raise DatabaseFileError(f"{path} was deleted or replaced; restart the server")


@asynccontextmanager
async def _open_sqlite(path: Path, writes: Writes) -> AsyncIterator[Parts]:
    path.parent.mkdir(parents=True, exist_ok=True)
    async with (
        aiosqlite.connect(path, timeout=_WAIT_S) as threads,
        aiosqlite.connect(path, timeout=_WAIT_S, isolation_level=None) as reads,
        aiosqlite.connect(path, timeout=_WAIT_S, isolation_level=None) as rows,
    ):
        saver, reader, writer = _SqliteSaver(threads, writes), AsyncSqliteStore(reads), AsyncSqliteStore(rows)
        for connection in (threads, rows):  # Without a wait for the disk: a killed process loses nothing.
            await connection.execute("PRAGMA synchronous = NORMAL")
        async with AsyncFileLock(f"{path}.lock"):  # several processes may start at once
            await saver.setup()
            await writer.setup()
            await reader.setup()
        writes.check = partial(_check_file, path, await asyncio.to_thread(path.stat))
        yield saver, reader, writer


@asynccontextmanager
async def _open_postgres(url: str) -> AsyncIterator[Parts]:
    try:
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
        from langgraph.store.postgres.aio import AsyncPostgresStore
        from psycopg import AsyncConnection
        from psycopg.rows import dict_row
        from psycopg_pool import AsyncConnectionPool
    except ImportError as error:
        raise MissingExtraError("a database of PostgreSQL", "postgres") from error
    options: dict[str, Any] = {
        "autocommit": True,
        "prepare_threshold": 0,
        "row_factory": dict_row,
        "tcp_user_timeout": round(2_000 * _WAIT_S),  # milliseconds until a silent server counts as gone
    }
    async with await AsyncConnection.connect(url, connect_timeout=round(_WAIT_S), **options) as connection:
        await _lock_setup(connection)
        await AsyncPostgresSaver(connection).setup()
        await AsyncPostgresStore(connection).setup()
    pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
        url,
        min_size=1,
        max_size=_MAX_CONNECTIONS,
        kwargs=options,
        check=AsyncConnectionPool.check_connection,
        timeout=_WAIT_S,
        reconnect_timeout=_WAIT_S,  # The next request tries again.
        open=False,
    )
    async with pool:
        yield AsyncPostgresSaver(pool), AsyncPostgresStore(pool), AsyncPostgresStore(pool)


async def _lock_setup(connection: Any) -> None:
    """Wait until no other process makes the tables. The lock ends with the connection.

    Waiting inside PostgreSQL would be a deadlock with the other's CREATE INDEX CONCURRENTLY.
    """
    while True:
        cursor = await connection.execute("SELECT pg_try_advisory_lock(%s) AS locked", [_SETUP_LOCK])
        if (await cursor.fetchone())["locked"]:
            return
        await asyncio.sleep(0.1)


class _SqliteSaver(AsyncSqliteSaver):
    """A write of a run that is cancelled is still committed."""

    def __init__(self, connection: aiosqlite.Connection, writes: Writes) -> None:
        super().__init__(connection)
        self._writes = writes

    async def aput(self, *arguments: Any) -> RunnableConfig:
        return await self._writes.finish(super().aput(*arguments))

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        await self._writes.finish(super().aput_writes(config, writes, task_id, task_path))

    async def adelete_thread(self, thread_id: str) -> None:
        await self._writes.finish(super().adelete_thread(thread_id))
