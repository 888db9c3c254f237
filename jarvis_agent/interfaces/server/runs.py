"""Runs that outlive their request, and their routes: one starts them, others follow, approve or resume them.

Every process of the server answers for every run, from the database. Each event is stored before a client
sees it, and has an id: a client that reconnects sends the last one as `Last-Event-ID`, as browsers do, and
gets those after it; 204 tells it that there are no more. A process works on a run while it holds the lock of
its thread. It looks whether it is to cancel the run, and resumes runs whose process has ended.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, Self, cast
from uuid import uuid4

import orjson
from fastapi import APIRouter, Depends, Header, HTTPException, Query, Request, Response
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command
from pydantic import BaseModel, BeforeValidator, Field, Json, StrictBool
from sse_starlette import EventSourceResponse

from jarvis_agent.agent.agent import JarvisAgent
from jarvis_agent.agent.approval import decision_of
from jarvis_agent.core.concurrency import batches, repeating
from jarvis_agent.core.content import is_data_url
from jarvis_agent.core.request import Request as AgentRequest
from jarvis_agent.core.types import Frozen
from jarvis_agent.execution.run import Event, Run
from jarvis_agent.interfaces.common.access import thread_of
from jarvis_agent.interfaces.common.locks import BusyError, digest
from jarvis_agent.interfaces.common.uploads_and_outputs import SWEEP_S, PublicNames
from jarvis_agent.interfaces.server.database import DATABASE_ERRORS, Database, Namespace
from jarvis_agent.interfaces.server.errors import RunSerializer, http_error_of
from jarvis_agent.interfaces.server.workspaces import THREAD_HEADER, Workspace, public_names
from jarvis_agent.media.access import AccessPolicy, name_errors

RunStatus = Literal["queued", "running", "waiting for approval", "done", "failed", "cancelled", "interrupted"]
ACTIVE: frozenset[RunStatus] = frozenset({"queued", "running"})
OVER: frozenset[RunStatus] = frozenset({"done", "failed", "cancelled"})

BEAT_S = 1.0
"""Seconds between two looks at the runs of all processes."""

MAX_RESUMPTIONS = 2
"""How often a run is resumed by itself. It may be what ends its process."""

_ID = re.compile("[0-9a-f]{32}")
_THREADS: Namespace = ("threads",)
_RESULTS: Namespace = ("results",)
_AT_WORK: Namespace = ("at work",)

_logger = logging.getLogger(__name__)


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
        status: "interrupted" if the process that worked on it has ended; it can be resumed.
        resumptions: how often it was resumed by itself after its process had ended.
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
    resumptions: int = 0
    error: str | None = None
    plan: dict[str, Any] | None = None
    run: Any = None

    def altered(self, status: RunStatus, **fields: Any) -> RunInfo:
        """The run with another status."""
        return self.model_copy(update={"status": status, "plan": None, **fields})


class AtWork(Frozen):
    """A run that has begun and not ended: whose it is, and whether it is to be cancelled."""

    owner: str
    thread: str
    cancel: bool = False


class RunRecords:
    """What the database knows of the runs of clients: a row for each run, and its events.

    JSON is stored as text, since PostgreSQL's JSON cannot hold every character.
    """

    def __init__(self, database: Database, names: PublicNames | None = None) -> None:
        """`names` are what clients see in place of paths."""
        self._database = database
        self._to_json = RunSerializer(names or PublicNames({})).dumps

    async def save(self, owner: str, info: RunInfo) -> None:
        """Store a run, without its Run."""
        await self._database.put(("runs", owner), info.id, {"json": info.model_dump_json(exclude={"run"})})

    async def find(self, owner: str, run: str) -> RunInfo | None:
        """A run, without its Run."""
        if not _ID.fullmatch(run):  # PostgreSQL's error on some characters would also fail others' look-ups.
            return None
        row = await self._database.get(("runs", owner), run)
        return RunInfo.model_validate_json(row.value["json"]) if row else None

    async def search(self, owner: str, limit: int) -> list[RunInfo]:
        """The runs of an owner that changed last, the newest first."""
        rows = await self._database.search(("runs", owner), limit)
        infos = [RunInfo.model_validate_json(row.value["json"]) for row in rows]
        return sorted(infos, key=lambda info: info.created, reverse=True)

    async def to_json(self, info: RunInfo) -> bytes:
        """A run with its Run, if it is done."""
        row = await self._database.get(_RESULTS, info.id) if info.status == "done" else None
        run = orjson.Fragment(row.value["json"] if row else "null")
        return self._to_json({**info.model_dump(mode="json"), "run": run})

    async def record(
        self, run: str, events: AsyncGenerator[Event, None], on_stored: Callable[[], None]
    ) -> Run | None:
        """Store the events of a run as they come, and its Run, which is returned."""
        place, result = 0, None
        while earlier := await self.events(run, place):
            place += len(earlier)
        async with aclosing(batches(events, 0.1)) as gathered:
            async for batch in gathered:
                unfinished = [event for event in batch if event.run is None]
                if rows := [[event.kind, self._to_json(event).decode()] for event in unfinished]:
                    await self._database.put(("events", run), str(place), {"events": rows})
                    place += len(rows)
                    on_stored()
                result = batch[-1].run if batch else result
        if result is not None:
            await self._database.put(_RESULTS, run, {"json": self._to_json(result).decode()})
        return result

    async def events(self, run: str, place: int) -> list[tuple[str, str]]:
        """The kinds of the events that were stored together from a place on, and their JSON."""
        row = await self._database.get(("events", run), str(place))
        return [(kind, text) for kind, text in row.value["events"]] if row else []

    async def claim(self, owner: str, thread: str, run: str | None) -> None:
        """Note that a locked thread belongs to a run from now on. HTTPException 409: another is not over."""
        row = await self._database.get(_THREADS, digest(thread))
        before = row.value["run"] if row else None
        other = await self.find(owner, before) if before not in (None, run) else None
        if other is not None and other.status not in OVER:
            why = f"the run {before} of this thread is not over: wait for it, or cancel it"
            raise HTTPException(409, why)
        await self._database.put(_THREADS, digest(thread), {"thread": thread, "run": run}, expires=False)

    async def delete_expired(self) -> None:
        """Delete what was unused for the time of retention: threads, runs and their events."""
        oldest = await self._database.check() - timedelta(seconds=self._database.retention)
        for row in await self._database.search(_THREADS):
            if row.updated_at < oldest:
                with suppress(BusyError):
                    await self._database.threads.delete(row.value["thread"])
                    await self._database.put(_THREADS, row.key, None)
        await self._database.delete_expired()

    async def begin(self, owner: str, info: RunInfo, *, cancel: bool = False) -> None:
        """Note that a run is at work, or with `cancel`, that its process is to cancel it."""
        row = AtWork(owner=owner, thread=thread_of(owner, info.thread), cancel=cancel)
        await self._database.put(_AT_WORK, info.id, row.model_dump())

    async def end(self, run: str) -> None:
        """Note that no process is to work on a run."""
        await self._database.put(_AT_WORK, run, None)

    async def at_work(self) -> dict[str, AtWork]:
        """The runs that have begun and not ended, of all owners, by id."""
        rows = await self._database.search(_AT_WORK)
        return {row.key: AtWork.model_validate(row.value) for row in rows}


@dataclass(eq=False, slots=True)
class _Task:
    """A run of this process. `stored` is set, and replaced, when events were stored."""

    work: asyncio.Task[None]
    stored: asyncio.Event = field(default_factory=asyncio.Event)
    is_cancelled: bool = False

    def wake_followers(self) -> None:
        """Let those who wait for events read them."""
        self.stored.set()
        self.stored = asyncio.Event()

    def cancel(self) -> None:
        """End the run as cancelled. A task that is cancelled otherwise leaves it interrupted."""
        self.is_cancelled = True
        self.work.cancel()


class StartedRuns:
    """The runs of a server, stored in `records`. Runs of this process end with it; they can be resumed."""

    def __init__(
        self,
        database: Database,
        workspaces: Mapping[str, Workspace],
        hold: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        """`hold` counts a run of an owner while it goes on."""
        self._database = database
        self.records = RunRecords(database, public_names(workspaces))
        self._hold = hold
        self._workspaces = workspaces
        self._tasks: dict[str, _Task] = {}
        self._looks: dict[str, int] = {}

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[Self]:
        """Resume, cancel and delete runs within the block. At its end, those of this process end too."""
        watching = repeating(self._watch, BEAT_S, "the look at runs")
        deleting = repeating(self.records.delete_expired, SWEEP_S, "the deletion of threads")
        try:
            async with watching, deleting:
                yield self
        finally:
            for work in (ending := [task.work for task in self._tasks.values()]):
                work.cancel()
            await asyncio.gather(*ending, return_exceptions=True)  # a run waits for its experts, but not long

    @asynccontextmanager
    async def claim(
        self, owner: str, thread: str, run: str | None = None, *, approve: bool | None = None
    ) -> AsyncIterator[JarvisAgent]:
        """Work on a thread, for a run, with an agent that stores it; `approve` as in RunRequest.

        HTTPException 409: another run works on it, or is not over.
        """
        name, agent = thread_of(owner, thread), self._workspaces[owner].agent
        async with AsyncExitStack() as held:
            try:
                saver = await held.enter_async_context(self._database.threads.open(name))
            except BusyError as error:
                why = "another request works on this thread; wait for its end, or use another thread"
                raise HTTPException(409, why) from error
            await self.records.claim(owner, name, run)
            asks = agent.approve if approve is None else approve and (agent.approve or True)
            yield agent.copy(checkpointer=saver, approve=asks)

    async def find(self, owner: str, run: str) -> RunInfo:
        """A run as it is now. HTTPException 404: the owner has no such run."""
        if (info := await self.records.find(owner, run)) is None:
            raise HTTPException(404, "no such run")
        return await self._as_it_is(owner, info)

    async def search(self, owner: str, limit: int) -> list[RunInfo]:
        """The runs of an owner that changed last, the newest first."""
        return [await self._as_it_is(owner, info) for info in await self.records.search(owner, limit)]

    async def start(self, owner: str, request: RunRequest) -> RunInfo:
        """Start a run. HTTPException 409: its thread is busy; 429: the owner has too many runs.

        InputError: the text is too long, or a file cannot be read.
        """
        agent = self._workspaces[owner].agent
        AgentRequest(input=request.input).check_length()
        policy = AccessPolicy(agent.settings)
        for name in request.files:
            if not (name.startswith(("http:", "https:")) or is_data_url(name)):
                with name_errors(policy.shown(name)):
                    await asyncio.to_thread(policy.open, name)
        fields = request.model_dump(exclude_none=True)
        info = RunInfo.model_validate({"approve": bool(agent.approve), **fields})
        async with AsyncExitStack() as held:
            await self._begin(owner, info, await self._claim(held, owner, info), held)
        return info

    async def resume(self, owner: str, run: str, *, decision: Any = None, by_itself: bool = False) -> RunInfo:
        """Continue an interrupted run, or with a `decision` one that waits for approval.

        What is resumed `by_itself` is counted. HTTPException 404: there is no such run; 409: it is not in
        that state; 429 as `start`.
        """
        expected: RunStatus = "interrupted" if decision is None else "waiting for approval"
        info = await self.find(owner, run)
        async with AsyncExitStack() as held:
            if info.status == expected:
                agent = await self._claim(held, owner, info)
                info = await self.records.find(owner, run) or info  # It may have gone on before the claim.
                info = info.altered("interrupted") if info.status in ACTIVE else info
            if info.status != expected:
                raise HTTPException(409, f"the run is not {expected}, but {info.status}")
            info = info.altered("queued", resumptions=info.resumptions + by_itself)
            await self._begin(owner, info, agent, held, decision)
        return info

    async def cancel(self, owner: str, run: str) -> RunInfo:
        """Cancel a run, which takes about BEAT_S if another process works on it. Raises as `find`."""
        info = await self.find(owner, run)
        if info.status in OVER:
            return info
        await self.records.begin(owner, info, cancel=True)
        if run in self._tasks:
            self._tasks[run].cancel()
            return info
        with suppress(HTTPException):  # The process that works on it reads that it is to cancel it.
            async with self.claim(owner, info.thread, run):
                info = await self.records.find(owner, run) or info
                info = info if info.status in OVER else info.altered("cancelled")
                await self.records.save(owner, info)
                await self.records.end(run)
        return info

    async def rate(self, owner: str, run: str, task: int | None, *, good: bool) -> None:
        """Rate a run, or the result of one of its tasks. HTTPException 409: the run is not done.

        InputError: no model made a result for the task, or ratings are not kept.
        """
        if (info := await self.find(owner, run)).status != "done":
            raise HTTPException(409, f"the run is not done, but {info.status}")
        done = Run.model_validate(orjson.loads(await self.records.to_json(info))["run"])
        await asyncio.to_thread(done.rate, task, good=good, owner=owner)

    async def events(self, owner: str, run: str, after: int) -> AsyncIterator[dict[str, str]]:
        """The server-sent events of a run after the one with this number, until it stops; last its status.

        Without a database the stream ends, and the client connects again.
        """
        place, goes_on = 0, True
        try:
            while goes_on:
                task = self._tasks.get(run)
                stored = task.stored if task else asyncio.Event()
                info = await self.find(owner, run)  # Before the events: those before its end are stored then.
                while rows := await self.records.events(run, place):
                    for kind, text in rows:
                        place += 1
                        if place > after:
                            yield {"id": str(place), "event": kind, "data": text}
                goes_on = info.status in ACTIVE
                goes_on |= info.status == "interrupted" and info.resumptions < MAX_RESUMPTIONS
                if goes_on:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(stored.wait(), BEAT_S)
                elif task is not None:
                    await asyncio.wait([task.work])  # Its thread and its place are free then.
            info = await self.find(owner, run)
            data = (await self.records.to_json(info)).decode()
            yield {"id": f"{max(place, after)}:{info.status}", "event": "status", "data": data}
        except DATABASE_ERRORS as error:
            _logger.warning("the events of the run %s end: %s", run, error)

    async def _as_it_is(self, owner: str, info: RunInfo) -> RunInfo:
        name = thread_of(owner, info.thread)
        if info.status not in ACTIVE or info.id in self._tasks or await self._database.threads.is_held(name):
            return info
        info = await self.records.find(owner, info.id) or info  # It may have ended before the look.
        return info.altered("interrupted") if info.status in ACTIVE else info

    async def _claim(self, held: AsyncExitStack, owner: str, info: RunInfo) -> JarvisAgent:
        held.enter_context(self._hold(owner))
        claimed = self.claim(owner, info.thread, info.id, approve=info.approve)
        return await held.enter_async_context(claimed)

    async def _begin(
        self, owner: str, info: RunInfo, agent: JarvisAgent, held: AsyncExitStack, decision: Any = None
    ) -> None:
        """Store a run, and let its agent work on it while the claim on its thread is held."""
        await self.records.begin(owner, info)
        await self.records.save(owner, info)
        work = asyncio.create_task(self._run(owner, info, agent, held.pop_all(), decision))
        self._tasks[info.id] = _Task(work)
        work.add_done_callback(lambda _: self._tasks.pop(info.id).wake_followers())

    async def _run(
        self, owner: str, info: RunInfo, agent: JarvisAgent, held: AsyncExitStack, decision: Any
    ) -> None:
        """Run the agent, and store how that ends. Without a database the run stays as it is: interrupted."""
        try:
            async with held:
                try:
                    await self.records.save(owner, info.altered("running"))
                    info = await self._ask(agent, owner, info, decision)
                except asyncio.CancelledError:
                    if not self._tasks[info.id].is_cancelled:
                        raise
                    info = info.altered("cancelled")
                except DATABASE_ERRORS:
                    raise
                except Exception as error:
                    info = info.altered("failed", error=http_error_of(error, f"the run {info.id}").detail)
                await self.records.save(owner, info)
                await self.records.end(info.id)
        except DATABASE_ERRORS as error:
            _logger.warning("the run %s is interrupted: %s", info.id, error)

    async def _ask(self, agent: JarvisAgent, owner: str, info: RunInfo, decision: Any) -> RunInfo:
        """Run the agent to its end, or until it waits for approval."""
        thread = {"thread_id": thread_of(owner, info.thread)}
        config = RunnableConfig(configurable=thread, metadata={"run": info.id})
        value: Any = Command(resume=decision)
        if decision is None:
            # Its thread may still hold an earlier run, which was cancelled.
            last = await agent.checkpointer.aget_tuple(config) if agent.checkpointer else None
            is_begun = last is not None and last.metadata.get("run") == info.id
            value = None if is_begun else {"input": info.input, "files": info.files}
        stored = self._tasks[info.id].wake_followers
        result = await self.records.record(info.id, agent.aevents(value, config), stored)
        if result is None:
            return info.altered("waiting for approval", plan=(await agent.aget_state(config)).waiting)
        return info.altered("done")

    async def _watch(self) -> None:
        """Cancel runs that are to be cancelled, stop those whose lock is lost, resume those of no process."""
        rows, looks = await self.records.at_work(), dict[str, int]()
        for run, row in rows.items():
            task = self._tasks.get(run)
            if task is not None and row.cancel:
                task.cancel()
            elif await self._database.threads.is_held(row.thread):
                continue
            elif task is not None:  # The connection that held its lock is broken.
                task.work.cancel()
            elif row.owner in self._workspaces:
                looks[run] = self._looks.get(run, 0) + 1
        self._looks = looks
        # After three looks without a lock, a process whose connection broke has stopped.
        for run in [run for run, count in looks.items() if count >= 3]:
            with suppress(HTTPException):  # Another process was faster, or the owner has too many runs.
                await self._recover(run, rows[run])

    async def _recover(self, run: str, row: AtWork) -> None:
        """Resume, or cancel, a run on which no process works."""
        info = await self.records.find(row.owner, run)
        if info is not None and row.cancel and info.status not in OVER:
            await self.cancel(row.owner, run)
        elif info is not None and info.status in ACTIVE and info.resumptions < MAX_RESUMPTIONS:
            _logger.warning("the run %s is resumed: its process has ended", run)
            await self.resume(row.owner, run, by_itself=True)
        else:
            await self.records.end(run)


router = APIRouter(prefix="/runs", tags=["runs"])
"""The routes. `app.state.runs` has the runs."""

_PlanTasks = list[dict[str, Any]]


class Decisions(BaseModel):
    """A decision on each action of the plan, in the form of LangChain's HITLResponse."""

    decisions: list[dict[str, Any]]


class Approval(BaseModel):
    """A decision on a plan: on each of its actions; or true runs it, false rejects it, tasks replace it."""

    decision: Annotated[StrictBool | Decisions | _PlanTasks | Json[_PlanTasks], BeforeValidator(decision_of)]


class Feedback(BaseModel):
    """A rating of the result of a task, by its id; None: of all results that models made."""

    good: StrictBool
    task: int | None = None


async def _runs(request: Request) -> StartedRuns:
    return cast("StartedRuns", request.app.state.runs)


async def _owner(request: Request) -> str:
    return str(request.state.owner)


Runs = Annotated[StartedRuns, Depends(_runs)]
Owner = Annotated[str, Depends(_owner)]


async def claim_thread(request: Request) -> AsyncIterator[None]:
    """FastAPI dependency: a POST that names a thread works on it until the response was sent, or gets 409."""
    thread = request.headers.get(THREAD_HEADER)
    if request.method != "POST" or not thread:
        yield
        return
    async with request.app.state.runs.claim(request.state.owner, thread) as request.state.agent:
        yield


@router.post("", status_code=202)
async def start_run(body: RunRequest, runs: Runs, owner: Owner, response: Response) -> RunInfo:
    """Start a run. `Location` is its address."""
    info = await runs.start(owner, body)
    response.headers["Location"] = f"runs/{info.id}"  # relative, for proxies that serve this below a path
    return info


@router.get("")
async def list_runs(
    runs: Runs, owner: Owner, limit: Annotated[int, Query(ge=1, le=1_000)] = 100
) -> list[RunInfo]:
    """List your runs that changed last, the newest first, without their Runs."""
    return await runs.search(owner, limit)


@router.get("/{run}", response_model=RunInfo)
async def show_run(run: str, runs: Runs, owner: Owner) -> Response:
    """Tell the status of a run; when it is done, with its Run."""
    return Response(await runs.records.to_json(await runs.find(owner, run)), media_type="application/json")


@router.get("/{run}/events", response_class=EventSourceResponse)
async def follow_run(
    run: str, runs: Runs, owner: Owner, last_event_id: Annotated[str, Header(max_length=60)] = ""
) -> Response:
    """Send the events of a run as they happen, and last "status": what `GET /runs/{run}` returns."""
    info = await runs.find(owner, run)
    seen, _, status = last_event_id.partition(":")
    if status == info.status and status not in ACTIVE:
        return Response(status_code=204)
    after = int(seen) if seen.isdecimal() else 0
    return EventSourceResponse(runs.events(owner, run, after), sep="\n")


@router.post("/{run}/cancel", status_code=202)
async def cancel_run(run: str, runs: Runs, owner: Owner) -> RunInfo:
    """Cancel a run, which may take a second."""
    return await runs.cancel(owner, run)


@router.post("/{run}/approval", status_code=202)
async def approve_run(run: str, body: Approval, runs: Runs, owner: Owner) -> RunInfo:
    """Decide on the plan of a run that waits for approval."""
    return await runs.resume(owner, run, decision=body.decision)


@router.post("/{run}/feedback", status_code=204)
async def rate_run(run: str, body: Feedback, runs: Runs, owner: Owner) -> None:
    """Rate a run that is done. Ratings of all owners together count when a model is selected."""
    await runs.rate(owner, run, body.task, good=body.good)


@router.post("/{run}/resume", status_code=202)
async def resume_run(run: str, runs: Runs, owner: Owner) -> RunInfo:
    """Continue an interrupted run. What has ended is not done again."""
    return await runs.resume(owner, run)
