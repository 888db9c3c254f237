"""What each owner has on a server: directories, and an agent that reads and writes only there."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

from fastapi import Depends, HTTPException, Request, UploadFile

from jarvis_agent.agent.agent import JarvisAgent
from jarvis_agent.interfaces.common.access import thread_of
from jarvis_agent.interfaces.common.uploads_and_outputs import PublicNames, Upload, save_upload

THREAD_HEADER = "X-Thread-Id"
"""The request header with the id of the chat."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """The files and the agent of one owner.

    Attributes:
        uploads: directory of the uploads, which have at most `max_stored` bytes.
        runs: directory of the runs, whose files have the URLs `/outputs/{run}/{name}`.
        agent: reads uploads alone. It stores no threads; the agent of `StartedRuns.claim` does.
        stateless: the agent for requests without a thread, which may name files of earlier runs.
    """

    uploads: Path
    max_stored: int
    runs: Path
    agent: JarvisAgent
    stateless: JarvisAgent

    async def receive(self, file: UploadFile) -> Upload:
        """Store the file of a form as `save_upload` does. HTTPException 507: there is no room for it."""
        sent = self.uploads, file.filename or "", file.file, file.size or 0
        try:
            max_bytes = self.agent.settings.max_file_bytes
            return await asyncio.to_thread(save_upload, *sent, max_bytes, self.max_stored)
        except OSError as error:
            raise HTTPException(507, f"the file could not be stored: {error.strerror or error}") from error


def directories(agent: JarvisAgent) -> tuple[Path, Path]:
    """The directories of all owners' runs, and of their uploads."""
    outputs = agent.settings.output_dir.absolute()
    return outputs / "served", outputs / "uploads"


def make_workspaces(agent: JarvisAgent, owners: Iterable[str], max_stored: int) -> dict[str, Workspace]:
    """Return the workspace of each owner. Their agents share the models of `agent`."""
    workspaces = {}
    for owner in owners:
        runs, uploads = (directory / owner for directory in directories(agent))
        own = agent.copy(checkpointer=False, settings={"output_dir": runs})
        stateful = own.copy(restricted_to=[uploads], approve=agent.approve)
        stateless = own.copy(restricted_to=[uploads, runs])
        workspaces[owner] = Workspace(uploads, max_stored, runs, stateful, stateless)
    return workspaces


async def _workspace_of(request: Request) -> Workspace:
    return cast("Workspace", request.app.state.workspaces[request.state.owner])


Own = Annotated[Workspace, Depends(_workspace_of)]
"""FastAPI dependency: the workspace of the request's owner."""


def public_names(workspaces: Mapping[str, Workspace]) -> PublicNames:
    """What the clients of a server see in place of paths."""
    names = {workspace.runs: "/outputs/" for workspace in workspaces.values()}
    names |= {workspace.uploads: "" for workspace in workspaces.values()}
    return PublicNames(names, [workspace.agent for workspace in workspaces.values()])


def for_owner(config: dict[str, Any], request: Request) -> dict[str, Any]:
    """Return the config of a request's run. Nothing of it is the client's, but the id of the thread.

    A route may name another agent as `request.state.agent`.
    """
    agent = request.app.state.workspaces[request.state.owner].agent
    configurable = {"owner": request.state.owner, "agent": getattr(request.state, "agent", agent)}
    if thread := request.headers.get(THREAD_HEADER):
        configurable["thread_id"] = thread_of(request.state.owner, thread)
    return {"configurable": configurable}
