"""The database of a server: threads in LangGraph's checkpointer, and what is known of runs in its store.

SQLite serves the processes of one machine, PostgreSQL (extra "postgres") those of several.
"""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiosqlite
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore, Item, SearchItem
from langgraph.store.sqlite.aio import AsyncSqliteStore
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_fixed

from jarvis_agent.core.errors import ConfigError, MissingExtraError
from jarvis_agent.interfaces.common.locks import LOOK_S, WAIT_S, BusyError, FileThreads, digest, hold

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

_CHECK: Namespace = ("check",)

KEEPALIVE: Mapping[str, int] = {
    "tcp_keepalives_idle": 5,
    "tcp_keepalives_interval": 2,
    "tcp_keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""Settings of PostgreSQL for a connection that holds a lock: a machine that is cut off loses it after about
11 s, by default after two hours."""


class PostgresThreads:
    """Threads of several machines: each is locked by the connection that writes its checkpoints.

    Who loses the lock with the connection can write no more.
    """

    def __init__(self, url: str, options: Mapping[str, Any], pool: Any) -> None:
        self._url, self._options, self._pool = url, options, pool

    @asynccontextmanager
    async def open(self, name: str) -> AsyncIterator[BaseCheckpointSaver[Any]]:
        """As `FileThreads.open`."""
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

        async with await psycopg.AsyncConnection.connect(self._url, **self._options) as connection:
            for setting, value in KEEPALIVE.items():
                await connection.execute("SELECT set_config(%s, %s, false)", [setting, str(value)])
            wait = str(round(1_000 * LOOK_S))
            try:
                async with connection.transaction():  # the setting ends with it, the lock does not
                    await connection.execute("SELECT set_config('lock_timeout', %s, true)", [wait])
                    await connection.execute("SELECT pg_advisory_lock(%s)", [_key(name)])
            except psycopg.errors.LockNotAvailable as error:
                raise BusyError(name) from error
            try:
                yield AsyncPostgresSaver(connection)
            finally:
                with suppress(psycopg.Error):  # PostgreSQL notices the end of the connection a little later.
                    await connection.execute("SELECT pg_advisory_unlock(%s)", [_key(name)])

    async def is_held(self, name: str) -> bool:
        """As `FileThreads.is_held`."""
        # A shared lock, which lasts for this statement, is not to be had while another session has its own.
        looking = "SELECT WHERE pg_try_advisory_xact_lock_shared(%s)"
        async with self._pool.connection() as connection:
            return not (await connection.execute(looking, [_key(name)])).rowcount

    async def delete(self, name: str) -> None:
        """As `FileThreads.delete`."""
        async with self.open(name) as saver:
            await saver.adelete_thread(name)


def _key(name: str) -> int:
    """The number of an advisory lock, such as that of a thread."""
    return int(digest(name)[:16], 16) - 2**63


Threads = FileThreads | PostgresThreads


@dataclass(frozen=True, slots=True)
class Database:
    """An open database: threads, and rows of JSON, which may expire `retention` seconds after a write.

    `reader` and `writer` gather operations while they are busy, and execute them in one transaction, whether
    their callers still wait or not. In SQLite one that reads first could not write. `check_file` raises
    DatabaseFileError if what is written would be lost.
    """

    threads: Threads
    reader: BaseStore
    writer: BaseStore
    check_file: Callable[[], None]
    retention: float

    async def check(self) -> datetime:
        """Return the time by the database's clock. Raises one of DATABASE_ERRORS if it cannot be written."""
        await self.put(_CHECK, "time", {})
        written = await self.get(_CHECK, "time")
        return written.updated_at if written else datetime.now(UTC)

    async def get(self, namespace: Namespace, key: str) -> Item | None:
        """Return a row."""
        self.check_file()
        return await self.reader.aget(namespace, key, refresh_ttl=False)

    async def search(self, namespace: Namespace, limit: int = 1_000_000) -> list[SearchItem]:
        """Return the rows of a namespace, those that were written last first."""
        self.check_file()
        return await self.reader.asearch(namespace, limit=limit, refresh_ttl=False)

    async def put(
        self, namespace: Namespace, key: str, value: dict[str, Any] | None, *, expires: bool = True
    ) -> None:
        """Write a row, or delete it for None."""
        self.check_file()
        if value is None:
            await self.writer.adelete(namespace, key)
        else:
            minutes = self.retention / 60 if expires else None
            await self.writer.aput(namespace, key, value, ttl=minutes)

    async def delete_expired(self) -> None:
        """Delete the rows that have expired."""
        self.check_file()
        await self.writer.sweep_ttl()  # type: ignore[attr-defined]


@asynccontextmanager
async def open_database(address: str | None, directory: Path, retention: float) -> AsyncIterator[Database]:
    """Open the database and make its tables.

    ConfigError: it cannot be opened. MissingExtraError: PostgreSQL needs the extra "postgres".
    `address` is a URL of PostgreSQL or the path of a file; None: FILE in `directory`, which is made then.
    """
    place = address or str(directory / FILE)
    open_place = _open_postgres if place.startswith(("postgresql://", "postgres://")) else _open_sqlite
    async with AsyncExitStack() as opened:
        try:
            database = await opened.enter_async_context(open_place(place, retention))
        except _OPENING_ERRORS as error:
            why = f"the database {place} (JARVIS_CHECKPOINTS) cannot be opened: {error}"
            raise ConfigError(why) from None
        try:
            yield database
        finally:
            # A store executes its operations in a task, which can lose a cancellation: the end of the event
            # loop would wait for it. An empty operation ends it, unless it is read together with others.
            stores: tuple[Any, Any] = (database.reader, database.writer)
            for store in stores:
                for _ in range(2):
                    store._aqueue.put_nowait(None)
                store._task.cancel()
            await asyncio.wait([store._task for store in stores])


@asynccontextmanager
async def _open_sqlite(file: str, retention: float) -> AsyncIterator[Database]:
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    async with (
        aiosqlite.connect(path, timeout=WAIT_S, isolation_level=None) as reads,
        aiosqlite.connect(path, timeout=WAIT_S, isolation_level=None) as writes,
    ):
        reader, writer = AsyncSqliteStore(reads), AsyncSqliteStore(writes)
        async with hold(Path(f"{path}.lock"), wait_s=-1):  # several processes may start at once
            # While another process closes the file, SQLite waits for no lock.
            async for attempt in AsyncRetrying(
                retry=retry_if_exception_type(sqlite3.OperationalError),
                stop=stop_after_delay(WAIT_S),
                wait=wait_fixed(0.05),
                reraise=True,
            ):
                with attempt:
                    await writes.execute("PRAGMA journal_mode = WAL")
                    await writes.execute("PRAGMA synchronous = NORMAL")
                    await writer.setup()
                    await reader.setup()
        opened = await asyncio.to_thread(path.stat)

        def check_file() -> None:
            with suppress(OSError):
                if os.path.samestat(path.stat(), opened):
                    return
            raise DatabaseFileError(f"{path} was deleted or replaced; restart the server")

        threads = FileThreads(path.with_name(f"{path.stem}-threads"))
        yield Database(threads, reader, writer, check_file, retention)


@asynccontextmanager
async def _open_postgres(url: str, retention: float) -> AsyncIterator[Database]:
    try:
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
        from langgraph.store.postgres.aio import AsyncPostgresStore
        from psycopg.rows import dict_row
        from psycopg_pool import AsyncConnectionPool
    except ImportError as error:
        raise MissingExtraError("a database of PostgreSQL", "postgres") from error
    options: dict[str, Any] = {
        "autocommit": True,
        "prepare_threshold": 0,
        "row_factory": dict_row,
        "connect_timeout": round(WAIT_S),
        "tcp_user_timeout": round(2_000 * WAIT_S),  # milliseconds until a silent server counts as gone
    }
    async with await psycopg.AsyncConnection.connect(url, **options) as connection:
        # Waiting inside PostgreSQL would be a deadlock with another process's CREATE INDEX CONCURRENTLY.
        taking = "SELECT WHERE pg_try_advisory_lock(%s)"
        while not (await connection.execute(taking, [_key("setup")])).rowcount:  # noqa: ASYNC110 - it is another's
            await asyncio.sleep(0.1)
        await AsyncPostgresSaver(connection).setup()
        await AsyncPostgresStore(connection).setup()
    pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
        url,
        min_size=1,
        max_size=4,  # one for each store, and two for looks at locks
        kwargs=options,
        check=AsyncConnectionPool.check_connection,
        timeout=WAIT_S,
        reconnect_timeout=WAIT_S,  # The next request tries again.
        open=False,
    )
    async with pool:
        threads = PostgresThreads(url, options, pool)
        yield Database(threads, AsyncPostgresStore(pool), AsyncPostgresStore(pool), lambda: None, retention)
