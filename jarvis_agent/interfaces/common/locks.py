"""Locks that tell whether work goes on: the kernel frees them when their process ends, however it does.

    async with FileThreads(Path("outputs/threads")).open("talk") as saver: ...    # its checkpointer

A process that stands still, for a debugger or a full machine, keeps its locks.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import AsyncFileLock, Timeout

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

WAIT_S = 5.0
"""Longest wait for another writer of a file of SQLite."""

LOOK_S = 0.3
"""Longest wait for a lock: work that has just ended frees it a moment later, and a look takes it."""


class BusyError(Exception):
    """The lock is held, by another process or by other work of this one."""


@asynccontextmanager
async def hold(path: Path, wait_s: float = LOOK_S) -> AsyncIterator[None]:
    """Hold the lock of a file within the block. Raises BusyError, or OSError if it cannot be written."""
    # A soft lock would outlive its process. In the loop's own thread, since the executor may be busy.
    lock = AsyncFileLock(path, fallback_to_soft=False, run_in_executor=False)
    try:
        held = await lock.acquire(timeout=wait_s)
    except Timeout as error:
        raise BusyError(path.name) from error
    async with held:
        yield


def digest(name: str) -> str:
    """A name without characters that files and databases cannot have."""
    return hashlib.sha256(name.encode()).hexdigest()


class _Connection(sqlite3.Connection):
    """Ends the transaction of a cancelled write when it is closed. Else that lasts while a cursor does."""

    def close(self) -> None:
        self.rollback()
        super().close()


@dataclass(frozen=True, slots=True)
class FileThreads:
    """Threads of one machine: a file of SQLite for each, and a lock beside it. `folder` is made if needed.

    A file has one writer, so that work which is cancelled in a transaction leaves nothing locked.
    """

    folder: Path

    @asynccontextmanager
    async def open(self, name: str) -> AsyncIterator[BaseCheckpointSaver[Any]]:
        """Work on a thread with its checkpointer.

        BusyError: it is open already. sqlite3.Error: its file cannot be read or written.
        """
        import aiosqlite
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        path = self.folder / f"{digest(name)}.sqlite"
        async with AsyncExitStack() as opened:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                await opened.enter_async_context(hold(path.with_suffix(".lock")))
            except OSError as error:
                raise sqlite3.OperationalError(f"{self.folder} cannot be written: {error}") from error
            connecting = aiosqlite.connect(path, timeout=WAIT_S, factory=_Connection)
            connection = await opened.enter_async_context(connecting)
            # Without a wait for the disk: a killed process loses nothing.
            await connection.execute("PRAGMA synchronous = NORMAL")
            yield AsyncSqliteSaver(connection)

    async def is_held(self, name: str) -> bool:
        """Whether a living process works on the thread."""
        lock = self.folder / f"{digest(name)}.lock"
        try:
            if lock.exists():
                async with hold(lock, wait_s=0):
                    pass
        except BusyError:
            return True
        return False

    async def delete(self, name: str) -> None:
        """Delete a thread. Raises BusyError as `open`."""
        async with hold(self.folder / f"{digest(name)}.lock"):
            for file in self.folder.glob(f"{digest(name)}.*"):
                with suppress(PermissionError):  # Windows keeps the lock, which is open.
                    file.unlink()
