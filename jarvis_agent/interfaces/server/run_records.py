"""What the database knows of the runs of clients: a row for each run, and its events.

records = RunRecords(database)
await records.save("local", RunInfo(id="8f0c…", thread="chat-1", input="Describe it"))
run = await records.record("8f0c…", agent.events("Describe it"), on_stored)
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import uuid4

import orjson
from pydantic import Field

from jarvis_agent.core.request import Request
from jarvis_agent.core.types import Frozen
from jarvis_agent.execution.run import Event, Run
from jarvis_agent.interfaces.server.database import Database, Namespace
from jarvis_agent.interfaces.server.errors import RunSerializer

RunStatus = Literal["queued", "running", "waiting for approval", "done", "failed", "cancelled", "interrupted"]
ACTIVE: frozenset[RunStatus] = frozenset({"queued", "running"})
OVER: frozenset[RunStatus] = frozenset({"done", "failed", "cancelled"})

_BATCH_S = 0.3
"""Seconds during which events are gathered, to be stored together."""

_ID = re.compile("[0-9a-f]{32}")
_RESULTS: Namespace = ("results",)
_CANCELLATIONS: Namespace = ("cancellations",)


class RunRequest(Frozen):
    """A run to start.

    Attributes:
        input: the request in words.
        files: names of uploads, or URLs.
        thread: id of the chat; None: a new one.
        approve: stop when the plan is made, until it is approved; None: as the server is set up.
    """

    input: Annotated[str, Field(min_length=1)]
    files: list[str] = Field(default_factory=list, fail_fast=True)
    thread: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]+$")] | None = None
    approve: bool | None = None


class RunInfo(Frozen):
    """A run, as its owner sees it.

    Attributes:
        status: "interrupted" if the process that worked on it has died; it can be resumed.
        error: why it failed.
        plan: what waits for approval, {"request", "plan", "notes"}; after a decision that cannot be used also
            its "problem".
        run: the Run as JSON, when it is done.
    """

    id: str = Field(default_factory=lambda: uuid4().hex)
    thread: str = Field(default_factory=lambda: uuid4().hex)
    status: RunStatus = "queued"
    created: datetime = Field(default_factory=lambda: datetime.now(UTC))
    input: str
    files: list[str] = Field(default_factory=list)
    approve: bool = False
    error: str | None = None
    plan: dict[str, Any] | None = None
    run: Any = None

    @property
    def request(self) -> Request:
        """What the agent is asked."""
        return Request.of({"input": self.input, "files": self.files})

    def altered(self, status: RunStatus, **fields: Any) -> RunInfo:
        """The run with another status."""
        return self.model_copy(update={"status": status, "plan": None, **fields})


class RunRecords:
    """JSON is stored as text, since PostgreSQL's JSON cannot hold every character."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(self, owner: str, info: RunInfo) -> None:
        """Store a run, without its Run."""
        is_over = info.status in OVER
        row = {"thread": info.thread, "over": is_over, "json": info.model_dump_json(exclude={"run"})}
        await self._database.put(("runs", owner), info.id, row)

    async def find(self, owner: str, run: str) -> RunInfo | None:
        """A run, without its Run."""
        if not _ID.fullmatch(run):  # PostgreSQL's error on some characters would also fail others' look-ups.
            return None
        row = await self._database.get(("runs", owner), run)
        return RunInfo.model_validate_json(row.value["json"]) if row else None

    async def search(self, owner: str, **fields: Any) -> list[RunInfo]:
        """The runs of an owner with these fields ("thread", "over"), the newest first."""
        rows = await self._database.search(("runs", owner), **fields)
        found = [RunInfo.model_validate_json(row.value["json"]) for row in rows]
        return sorted(found, key=lambda info: info.created, reverse=True)

    async def save_result(self, run: str, result: Run) -> None:
        """Store the Run of a run, as clients see it."""
        await self._database.put(_RESULTS, run, {"json": _to_json(result)})

    async def to_json(self, info: RunInfo) -> bytes:
        """A run with its Run, if it is done."""
        row = await self._database.get(_RESULTS, info.id) if info.status == "done" else None
        run = orjson.Fragment(row.value["json"] if row else "null")
        return orjson.dumps({**info.model_dump(mode="json"), "run": run})

    async def record(
        self, run: str, events: AsyncGenerator[Event, None], on_stored: Callable[[], None]
    ) -> Run | None:
        """Store the events of a run as they come, and return the Run of the last one.

        Those that come before a cancellation are stored too.
        """
        place, result = 0, None
        while earlier := await self.events(run, place):
            place += len(earlier)
        gathered: list[Event] = []

        async def read() -> None:
            async with aclosing(events):
                async for event in events:
                    gathered.append(event)  # noqa: PERF401 - each as it comes

        async def store() -> None:
            nonlocal place, result
            if batch := gathered[:]:
                gathered.clear()
                result = batch[-1].run
                if rows := [[event.kind, _to_json(event)] for event in batch if event.run is None]:
                    await self._database.put(("events", run), str(place), {"events": rows})
                    place += len(rows)
                on_stored()

        reading = asyncio.create_task(read())
        try:
            while not reading.done():
                await asyncio.wait([reading], timeout=_BATCH_S)
                await store()
            await reading
        finally:
            reading.cancel()
            await asyncio.wait([reading])
            await store()
        return result

    async def events(self, run: str, place: int) -> list[tuple[str, str]]:
        """The kinds of the events that were stored together from a place on, and their JSON."""
        row = await self._database.get(("events", run), str(place))
        return [(kind, text) for kind, text in row.value["events"]] if row else []

    async def wish_cancelled(self, run: str) -> None:
        """Ask the process that works on a run to cancel it."""
        await self._database.put(_CANCELLATIONS, run, {})

    async def cancellations(self) -> set[str]:
        """The runs that are to be cancelled."""
        return {row.key for row in await self._database.search(_CANCELLATIONS)}

    async def forget_cancellation(self, run: str) -> None:
        """Let a run go on, or it has ended."""
        await self._database.put(_CANCELLATIONS, run, None)


def _to_json(value: Event | Run) -> str:
    return RunSerializer().dumps(value).decode()
