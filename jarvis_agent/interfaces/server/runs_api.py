"""Routes for runs that outlive their request, below `/runs`.

    run = client.post("/runs", json={"input": "Describe it", "files": ["9f0c…/cat.jpg"]}).json()
    client.get(f"/runs/{run['id']}").json()["status"]       # "running", later "done", with the Run as "run"
    client.get(f"/runs/{run['id']}/events")                 # server-sent: those of the run, then "status"
    client.post(f"/runs/{run['id']}/approval", json={"decision": True})
    client.post(f"/runs/{run['id']}/feedback", json={"good": False, "task": 0})

An event has an id. A client that reconnects sends the last one as `Last-Event-ID`, as browsers do, and gets
those after it; 204 tells it that there are no more.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from pydantic import BaseModel, BeforeValidator, Json, StrictBool
from sse_starlette import EventSourceResponse

from jarvis_agent.agent.approval import decision_of
from jarvis_agent.interfaces.server.database import DATABASE_ERRORS
from jarvis_agent.interfaces.server.runs import ACTIVE, RunInfo, RunRequest, StartedRuns
from jarvis_agent.interfaces.server.workspaces import THREAD_HEADER

router = APIRouter(prefix="/runs", tags=["runs"])
"""The routes. `app.state.runs` has the runs."""

_logger = logging.getLogger(__name__)
_Tasks = list[dict[str, Any]]


class Decisions(BaseModel):
    """A decision on each action of the plan, in the form of LangChain's HITLResponse."""

    decisions: list[dict[str, Any]]


class Approval(BaseModel):
    """A decision on a plan: on each of its actions; or true runs it, false rejects it, tasks replace it."""

    decision: Annotated[StrictBool | Decisions | _Tasks | Json[_Tasks], BeforeValidator(decision_of)]


class Feedback(BaseModel):
    """A rating of the result of a task, by its id; None: of all results that models made."""

    good: StrictBool
    task: int | None = None


def _runs(request: Request) -> StartedRuns:
    runs: StartedRuns = request.app.state.runs
    return runs


def _owner(request: Request) -> str:
    owner: str = request.state.owner
    return owner


Runs = Annotated[StartedRuns, Depends(_runs)]
Owner = Annotated[str, Depends(_owner)]


async def claim_thread(request: Request) -> AsyncIterator[None]:
    """FastAPI dependency: a POST that names a thread works on it until the response was sent, or gets 409."""
    thread = request.headers.get(THREAD_HEADER)
    if request.method != "POST" or not thread:
        yield
        return
    async with _runs(request).claim(_owner(request), thread) as request.state.agent:
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
    return EventSourceResponse(_server_sent(runs, owner, run, after), sep="\n")


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


async def _server_sent(runs: StartedRuns, owner: str, run: str, after: int) -> AsyncIterator[dict[str, str]]:
    """The events of a run. Without a database the stream ends, and the client connects again."""
    place = after
    try:
        async for place, kind, text in runs.events(owner, run, after):
            yield {"id": str(place), "event": kind, "data": text}
        info = await runs.find(owner, run)
        data = (await runs.records.to_json(info)).decode()
        yield {"id": f"{place}:{info.status}", "event": "status", "data": data}
    except DATABASE_ERRORS as error:
        _logger.warning("the events of the run %s end: %s", run, error)
