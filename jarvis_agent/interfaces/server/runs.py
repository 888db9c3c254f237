"""Runs that outlive their request: one starts them, others follow, cancel, approve or resume them.

    async with StartedRuns(database, workspaces, limits.hold) as runs:
        info = await runs.start("local", RunRequest(input="Describe it", files=["9f0c…/cat.jpg"]))
        async for place, kind, text in runs.events("local", info.id): ...

Every process of the server answers for every run, from the database. Each event is stored before a client
sees it, so that a later connection, perhaps to another process, goes on where the first one ended. The
process that works on a run looks in the database whether it is to be cancelled.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from time import monotonic
from typing import Annotated, Any, Literal, Self
from uuid import uuid4

import orjson
from fastapi import HTTPException
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command
from pydantic import Field

from jarvis_agent.agent.agent import JarvisAgent
from jarvis_agent.core.concurrency import repeating
from jarvis_agent.core.content import is_data_url
from jarvis_agent.core.request import Request
from jarvis_agent.core.types import Frozen
from jarvis_agent.execution.run import Event, Run
from jarvis_agent.interfaces.common.access import thread_of
from jarvis_agent.interfaces.common.uploads_and_outputs import SWEEP_S
from jarvis_agent.interfaces.server.database import DATABASE_ERRORS, Database, Namespace
from jarvis_agent.interfaces.server.errors import STATUSES, RunSerializer
from jarvis_agent.interfaces.server.workspaces import Workspace
from jarvis_agent.media.access import AccessPolicy, name_errors

STALE_S = 15.0
"""Seconds without a heartbeat after which a process counts as dead."""

_PROCESSES: Namespace = ("processes",)
_THREADS: Namespace = ("threads",)
_BUSY = "another request works on this thread; wait for its end, or use another thread"

RunStatus = Literal["queued", "running", "waiting for approval", "done", "failed", "cancelled", "interrupted"]
ACTIVE: frozenset[RunStatus] = frozenset({"queued", "running"})
OVER: frozenset[RunStatus] = frozenset({"done", "failed", "cancelled"})

_BATCH_S = 0.3
"""Seconds during which events are gathered, to be stored together."""

_ID = re.compile("[0-9a-f]{32}")
_RESULTS: Namespace = ("results",)
_CANCELLATIONS: Namespace = ("cancellations",)

BEAT_S = 1.0
"""Seconds between two heartbeats, and between two looks at a run of another process."""

_logger = logging.getLogger(__name__)


class Threads:
    """Which process of a server works on which thread. Two at once would mix their steps.

        await threads.beat()                                       # every second: this process lives
        async with threads.claim("local/chat-1", "8f0c…"): ...     # or 409

    A process that was killed cannot release its claims. They end when it has not beaten for STALE_S.
    """

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
    """What the database knows of the runs of clients: a row for each run, and its events.

    JSON is stored as text, since PostgreSQL's JSON cannot hold every character.
    """

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
        infos = [RunInfo.model_validate_json(row.value["json"]) for row in rows]
        return sorted(infos, key=lambda info: info.created, reverse=True)

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


class StartedRuns:
    """The runs of a server, stored in `records`. Runs of this process end with it; they can be resumed."""

    def __init__(
        self,
        database: Database,
        workspaces: Mapping[str, Workspace],
        hold: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        """Prepare. `hold` counts a run of an owner while it goes on."""
        self._database = database
        self.records = RunRecords(database)
        self._threads = Threads(database)
        self._hold = hold
        self._workspaces = workspaces
        self._agents = {
            (owner, approve): workspace.agent.with_checkpointer(
                database.saver, approve=approve and (workspace.agent.approve or True)
            )
            for owner, workspace in workspaces.items()
            for approve in (True, False)
        }
        self._background = AsyncExitStack()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stored: dict[str, asyncio.Event] = {}
        self._cancelled: set[str] = set()

    async def __aenter__(self) -> Self:
        await self._threads.beat()
        self._beaten = monotonic()
        await self._background.enter_async_context(repeating(self._watch, BEAT_S, "the heartbeat"))
        deletion = repeating(self._delete_expired, SWEEP_S, "the deletion of threads")
        await self._background.enter_async_context(deletion)
        return self

    async def __aexit__(self, *_: object) -> None:
        ending = list(self._tasks.values())
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        await self._background.aclose()
        with suppress(*DATABASE_ERRORS):
            await self._threads.leave()

    def agent(self, owner: str, *, approve: bool) -> JarvisAgent:
        """The agent of an owner, whose threads are stored."""
        return self._agents[owner, approve]

    @asynccontextmanager
    async def claim(self, owner: str, thread: str, run: str | None = None) -> AsyncIterator[None]:
        """Work on a thread; `run` is the id of the run that does.

        Raises:
            HTTPException: 409, another run works on it, or is not over.
        """
        async with self._threads.claim(thread_of(owner, thread), run):
            for other in await self.records.search(owner, thread=thread, over=False):
                if other.id != run:
                    raise HTTPException(
                        409, f"the run {other.id} of this thread is not over: wait for it, or cancel it"
                    )
            yield

    async def find(self, owner: str, run: str) -> RunInfo:
        """A run as it is now.

        Raises:
            HTTPException: 404, the owner has no such run.
        """
        info = await self.records.find(owner, run)
        if info is None:
            raise HTTPException(404, "no such run")
        return await self._as_it_is(owner, info)

    async def search(self, owner: str) -> list[RunInfo]:
        """The runs of an owner, the newest first."""
        return [await self._as_it_is(owner, info) for info in await self.records.search(owner)]

    async def start(self, owner: str, request: RunRequest) -> RunInfo:
        """Start a run.

        Raises:
            InputError: the text is too long, or a file cannot be read.
            HTTPException: 409, its thread is busy; 429, the owner has too many runs.
        """
        settings = self._workspaces[owner].agent.settings
        Request(input=request.input).check_length()
        policy = AccessPolicy(settings)
        for name in request.files:
            if not (name.startswith(("http:", "https:")) or is_data_url(name)):
                with name_errors(policy.shown(name)):
                    await asyncio.to_thread(policy.open, name)
        asks = bool(self._workspaces[owner].agent.approve)
        values = {"approve": asks, **request.model_dump(exclude_none=True)}
        info = RunInfo.model_validate(values)
        async with AsyncExitStack() as held:
            await self._claim(held, owner, info)
            await self.records.save(owner, info)
            self._execute(owner, info, held.pop_all())
        return info

    async def resume(self, owner: str, run: str, *, decision: Any = None) -> RunInfo:
        """Continue an interrupted run, or with a `decision` one that waits for approval.

        Raises:
            HTTPException: 404, there is no such run; 409, it is not in that state; 429 as `start`.
        """
        expected: RunStatus = "interrupted" if decision is None else "waiting for approval"
        info = await self.find(owner, run)
        async with AsyncExitStack() as held:
            if info.status == expected:
                await self._claim(held, owner, info)
                info = await self.records.find(owner, run) or info  # It may have gone on before the claim.
                info = info.altered("interrupted") if info.status in ACTIVE else info
            if info.status != expected:
                raise HTTPException(409, f"the run is not {expected}, but {info.status}")
            await self.records.forget_cancellation(run)
            info = info.altered("queued")
            await self.records.save(owner, info)
            self._execute(owner, info, held.pop_all(), decision)
        return info

    async def cancel(self, owner: str, run: str) -> RunInfo:
        """Cancel a run. If another process works on it, that takes about BEAT_S.

        Raises:
            HTTPException: 404, there is no such run.
        """
        info = await self.find(owner, run)
        if info.status in ACTIVE:
            await self.records.wish_cancelled(run)
            self._cancel({run})
        elif info.status not in OVER:
            async with self.claim(owner, info.thread, run):
                info = info.altered("cancelled")
                await self.records.save(owner, info)
        return info

    async def rate(self, owner: str, run: str, task: int | None, *, good: bool, note: str) -> None:
        """Rate a run, or the result of one of its tasks.

        Raises:
            InputError: no model made a result for the task, or ratings are not kept.
            HTTPException: 404, there is no such run; 409, it is not done.
        """
        info = await self.find(owner, run)
        if info.status != "done":
            raise HTTPException(409, f"the run is not done, but {info.status}")
        done = Run.model_validate(orjson.loads(await self.records.to_json(info))["run"])
        agent = self._workspaces[owner].agent
        await asyncio.to_thread(agent.rate, done, task, good=good, note=note, owner=owner)

    async def events(self, owner: str, run: str, after: int = 0) -> AsyncIterator[tuple[int, str, str]]:
        """The number, kind and JSON of each event from the one after `after` on, until the run stops.

        Raises:
            HTTPException: 404, there is no such run.
        """
        place = 0
        while True:
            stored = self._stored.get(run)
            info = await self.find(owner, run)  # Before the events: those before its end are stored then.
            while rows := await self.records.events(run, place):
                for kind, text in rows:
                    place += 1
                    if place > after:
                        yield place, kind, text
            if info.status not in ACTIVE:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S):
                    await (stored or asyncio.Event()).wait()

    async def _as_it_is(self, owner: str, info: RunInfo) -> RunInfo:
        if info.status not in ACTIVE or info.id in self._tasks:
            return info
        is_running = await self._threads.is_running(thread_of(owner, info.thread), info.id)
        return info if is_running else info.altered("interrupted")

    async def _claim(self, held: AsyncExitStack, owner: str, info: RunInfo) -> None:
        held.enter_context(self._hold(owner))
        await held.enter_async_context(self.claim(owner, info.thread, info.id))

    def _execute(self, owner: str, info: RunInfo, held: AsyncExitStack, decision: Any = None) -> None:
        task = asyncio.create_task(self._run(owner, info, held, decision))
        self._tasks[info.id] = task
        self._stored[info.id] = asyncio.Event()
        task.add_done_callback(lambda _: self._end(info.id))

    def _wake_followers(self, run: str) -> None:
        self._stored[run].set()
        self._stored[run] = asyncio.Event()

    def _end(self, run: str) -> None:
        del self._tasks[run]
        self._stored.pop(run).set()
        self._cancelled.discard(run)

    async def _run(self, owner: str, info: RunInfo, held: AsyncExitStack, decision: Any) -> None:
        """Run the agent, and store how that ends. Without a database the run stays as it is: interrupted."""
        try:
            async with held:
                try:
                    await self.records.save(owner, info.altered("running"))
                    info = await self._ask(owner, info, decision)
                except asyncio.CancelledError:
                    if info.id not in self._cancelled:
                        raise
                    info = info.altered("cancelled")
                    await self.records.forget_cancellation(info.id)
                except tuple(STATUSES) as error:
                    info = info.altered("failed", error=str(error))
                except DATABASE_ERRORS:
                    raise
                except Exception:
                    _logger.exception("the run %s failed", info.id)
                    info = info.altered("failed", error="Internal Server Error")
                await self.records.save(owner, info)
        except DATABASE_ERRORS as error:
            _logger.warning("the run %s is interrupted: %s", info.id, error)

    async def _ask(self, owner: str, info: RunInfo, decision: Any) -> RunInfo:
        """Run the agent to its end, or until it waits for approval."""
        agent, thread = self.agent(owner, approve=info.approve), thread_of(owner, info.thread)
        config: RunnableConfig = {"configurable": {"thread_id": thread}, "metadata": {"run": info.id}}
        value: Any = Command(resume=decision)
        if decision is None:
            # Its thread may still hold an earlier run, which was cancelled.
            last = await self._database.saver.aget_tuple(config)
            is_begun = last is not None and last.metadata.get("run") == info.id
            value = None if is_begun else info.request
        events = agent.events(value, config)
        result = await self.records.record(info.id, events, partial(self._wake_followers, info.id))
        if result is None:
            return info.altered("waiting for approval", plan=await agent.waiting(config))
        await self.records.save_result(info.id, result)
        return info.altered("done")

    async def _watch(self) -> None:
        """Beat, and cancel runs that are to be cancelled, or that another process has resumed meanwhile."""
        await self._threads.beat()
        self._cancel(await self.records.cancellations())
        if monotonic() - self._beaten > STALE_S:
            for run in await self._threads.lost():
                self._tasks[run].cancel()
        self._beaten = monotonic()

    async def _delete_expired(self) -> None:
        """Delete what was unused for the database's time of retention."""
        await self._threads.delete_expired()
        await self._database.delete_expired()

    def _cancel(self, runs: set[str]) -> None:
        for run in runs & self._tasks.keys():
            self._cancelled.add(run)
            self._tasks[run].cancel()
