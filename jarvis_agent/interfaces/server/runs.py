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
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from time import monotonic
from typing import Any, Self

from fastapi import HTTPException
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command

from jarvis_agent.agent.agent import JarvisAgent
from jarvis_agent.core.concurrency import repeating
from jarvis_agent.core.request import Request
from jarvis_agent.interfaces.common.access import thread_of
from jarvis_agent.interfaces.common.files import SWEEP_S
from jarvis_agent.interfaces.server.database import DATABASE_ERRORS, Database
from jarvis_agent.interfaces.server.errors import STATUSES
from jarvis_agent.interfaces.server.run_records import (
    ACTIVE,
    OVER,
    RunInfo,
    RunRecords,
    RunRequest,
    RunStatus,
)
from jarvis_agent.interfaces.server.threads import STALE_S, Threads
from jarvis_agent.interfaces.server.workspaces import Workspace
from jarvis_agent.media.access import AccessPolicy, name_errors

BEAT_S = 1.0
"""Seconds between two heartbeats, and between two looks at a run of another process."""

_logger = logging.getLogger(__name__)


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
            (owner, approve): workspace.agent.with_checkpointer(database.saver, approve=approve)
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
        Request(input=request.input).check_length(settings.max_text_bytes)
        policy = AccessPolicy(settings)
        for name in request.files:
            if not name.startswith(("http:", "https:", "data:")):
                with name_errors(policy.shown(name)):
                    await asyncio.to_thread(policy.open_requested, name)
        given = {"approve": self._workspaces[owner].agent.approve, **request.model_dump(exclude_none=True)}
        info = RunInfo.model_validate(given)
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
        given: Any = Command(resume=decision)
        if decision is None:
            # Its thread may still hold an earlier run, which was cancelled.
            last = await self._database.saver.aget_tuple(config)
            is_begun = last is not None and last.metadata.get("run") == info.id
            given = None if is_begun else info.request
        events = agent.events(given, config)
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
