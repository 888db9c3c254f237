"""The file in which the command line keeps its runs: runs.sqlite in the output directory.

    async with opened(settings, "talk") as saver:      # a LangGraph checkpointer
        …                                              # a run of the name "talk"
        await tidied(saver, "talk", is_over)

One process at a time works on a run. Of a run that is over only the last state is kept, and of all runs the
hundred that were used last; those that are unfinished stay.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from jarvis_agent.core.errors import ConfigError, MissingExtraError
from jarvis_agent.media.store import ResourceStore
from jarvis_agent.core.settings import Settings

if TYPE_CHECKING:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

FILE, LOCKS = "runs.sqlite", "runs.lock"

KEPT = 100
"""How many runs are kept after they are over."""

logger = logging.getLogger(__name__)

_LAST_STATE = "SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = ?"
_LONGEST_UNUSED = (
    "SELECT thread_id FROM checkpoints GROUP BY thread_id ORDER BY max(checkpoint_id) DESC LIMIT -1 OFFSET ?"
)


@asynccontextmanager
async def opened(settings: Settings, name: str) -> AsyncIterator[AsyncSqliteSaver]:
    """The checkpointer of the file, for the run of a name; the file is made if it is not there.

    Raises:
        ConfigError: another process works on that run, or the file can not be read or written, now or in
            the block.
        InputError: the output directory can not be made.
        MissingExtraError: the checkpointer is not installed.
    """
    try:
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
    except ImportError as error:
        raise MissingExtraError("--resume", "durable") from error

    folder = settings.output_dir
    await asyncio.to_thread(ResourceStore(settings, directory=folder).prepare)
    try:
        with _alone(folder, name):
            async with AsyncSqliteSaver.from_conn_string(str(folder / FILE)) as saver:
                yield saver
    except sqlite3.Error as error:
        raise ConfigError(
            f"the runs in {folder / FILE} can not be read or written ({error}); {_advice(error)}"
        ) from error


def _advice(error: sqlite3.Error) -> str:
    """What helps against an error of the file."""
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
        return "free some space, or choose another directory with --out or JARVIS_OUTPUT_DIR"
    return "wait for who else uses the file, or move it away to begin with a new one"


@contextmanager
def _alone(folder: Path, name: str) -> Iterator[None]:
    """A block in which no other process works on the run of a name; it ends with the process, too.

    Not on Windows, nor where the file system knows no locks.

    Raises:
        ConfigError: another process does, or nothing can be written in the folder.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    place = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    try:
        file = (folder / LOCKS).open("ab")
    except OSError as error:
        raise ConfigError(
            f"nothing can be written in {folder} ({error.strerror}); choose another directory with --out or "
            "JARVIS_OUTPUT_DIR"
        ) from error
    with file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise ConfigError(
                    f"another process works on the run {name}; wait for it, or take another name"
                ) from error
            logger.info("%s can not be locked: %s", folder / LOCKS, error)
        yield


async def tidied(saver: AsyncSqliteSaver, name: str, is_over: Callable[[str], Awaitable[bool]]) -> None:
    """Forget how the run of this name, which is over, came to its last state, and the runs longest unused.

    Args:
        is_over: whether the run of another name is.
    """
    try:
        for table in ("writes", "checkpoints"):
            older = f"DELETE FROM {table} WHERE thread_id = ? AND checkpoint_id < ({_LAST_STATE})"  # noqa: S608
            await saver.conn.execute(older, (name, name))
        await saver.conn.commit()
        for (unused,) in await saver.conn.execute_fetchall(_LONGEST_UNUSED, (KEPT,)):
            if await is_over(unused):
                await saver.adelete_thread(unused)
    except sqlite3.Error as error:
        logger.warning("runs that are over could not be forgotten: %s", error)
