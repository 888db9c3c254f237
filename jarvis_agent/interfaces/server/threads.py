"""Which process of a server works on which thread. Two at once would mix their steps.

    threads = Threads(database)
    await threads.beat()                                       # every second: this process lives
    async with threads.claim("local/chat-1", "8f0c…"): ...     # or 409

A process that was killed cannot release its claims. They end when it has not beaten for STALE_S.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import uuid4

from fastapi import HTTPException

from jarvis_agent.interfaces.server.database import DATABASE_ERRORS, Database, Namespace

STALE_S = 15.0
"""Seconds without a heartbeat after which a process counts as dead."""

_PROCESSES: Namespace = ("processes",)
_THREADS: Namespace = ("threads",)
_BUSY = "another request works on this thread; wait for its end, or use another thread"


class Threads:
    """The threads of a server, which all its processes share."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._process = uuid4().hex
        self._claimed: dict[str, str | None] = {}
        self._to_release: list[tuple[Namespace, str]] = []

    async def beat(self) -> None:
        """Tell the other processes that this one lives, and release what could not be released before."""
        await self._database.put(_PROCESSES, self._process, {})
        while self._to_release:
            await self._database.put(*self._to_release[-1], None)
            self._to_release.pop()

    async def leave(self) -> None:
        """Tell the other processes that this one ends, and its claims with it."""
        await self._database.put(_PROCESSES, self._process, None)

    @asynccontextmanager
    async def claim(self, thread: str, run: str | None = None) -> AsyncIterator[None]:
        """Work on a thread; `run` is the id of the run that does.

        Raises:
            HTTPException: 409, another run works on it.
        """
        if thread in self._claimed:
            raise HTTPException(409, _BUSY)
        self._claimed[thread] = run
        namespace, key = _claims(thread), uuid4().hex
        try:
            await self._database.put(_THREADS, _digest(thread), {"thread": thread}, expires=False)
            await self._database.put(namespace, key, {"process": self._process, "run": run})
            # Of two processes that write at the same time, each sees the other's claim, and both give up.
            if len(await self._living_claims(thread)) > 1:
                raise HTTPException(409, _BUSY)
            yield
        finally:
            del self._claimed[thread]
            try:
                await self._database.put(namespace, key, None)
            except DATABASE_ERRORS:
                self._to_release.append((namespace, key))

    async def lost(self) -> list[str]:
        """The runs of this process that another one has resumed, since it took this one for dead."""
        claimed = [(thread, run) for thread, run in self._claimed.items() if run is not None]
        return [run for thread, run in claimed if len(await self._living_claims(thread)) > 1]

    async def is_running(self, thread: str, run: str) -> bool:
        """Whether a living process has claimed the thread for this run."""
        return any(claim["run"] == run for claim in await self._living_claims(thread))

    async def delete_expired(self) -> None:
        """Delete the threads unused for the time of retention."""
        await self.beat()
        newest = max(row.updated_at for row in await self._database.search(_PROCESSES))
        for row in await self._database.search(_THREADS):
            if newest - row.updated_at > timedelta(seconds=self._database.retention):
                await self._database.saver.adelete_thread(row.value["thread"])
                await self._database.put(_THREADS, row.key, None)

    async def _living_claims(self, thread: str) -> list[dict[str, str | None]]:
        processes = await self._database.search(_PROCESSES)
        # The clock is the database's: this process has just written its row.
        dead = max(row.updated_at for row in processes) - timedelta(seconds=STALE_S)
        living = {row.key for row in processes if row.updated_at > dead}
        claims = [row.value for row in await self._database.search(_claims(thread))]
        return [claim for claim in claims if claim["process"] in living]


def _claims(thread: str) -> Namespace:
    return ("claims", _digest(thread))


def _digest(thread: str) -> str:
    """A name without the characters that a namespace cannot have."""
    return hashlib.sha256(thread.encode()).hexdigest()
