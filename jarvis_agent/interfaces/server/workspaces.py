"""What each owner has on a server: directories, and an agent that reads and writes only there.

workspaces = make_workspaces(agent, ["3f9a…"])
workspaces["3f9a…"].agent                       # reads outputs/uploads/3f9a…, writes outputs/served/3f9a…
add_routes(router, runnable, per_req_config_modifier=for_owner)     # the runnable's config names the owner
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import Request

from jarvis_agent.agent.agent import JarvisAgent
from jarvis_agent.interfaces.common.access import thread_of
from jarvis_agent.interfaces.common.uploads_and_outputs import PublicNames

THREAD_HEADER = "X-Thread-Id"
"""The request header with the id of the chat."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """The files and the agent of one owner.

    Attributes:
        uploads: directory of the uploads.
        runs: directory of the runs, whose files have the URLs `/outputs/{run}/{name}`.
        agent: reads uploads alone. It stores no threads; the agent of `StartedRuns.claim` does.
        stateless: the agent for requests without a thread, which may name files of earlier runs.
    """

    uploads: Path
    runs: Path
    agent: JarvisAgent
    stateless: JarvisAgent


def directories_of(agent: JarvisAgent) -> tuple[Path, Path]:
    """The directories of all owners' runs, and of their uploads."""
    outputs = agent.settings.output_dir.absolute()
    return outputs / "served", outputs / "uploads"


def make_workspaces(agent: JarvisAgent, owners: Iterable[str]) -> dict[str, Workspace]:
    """Return the workspace of each owner. Their agents share the models of `agent`."""

    def workspace(owner: str) -> Workspace:
        runs, uploads = (directory / owner for directory in directories_of(agent))
        own = agent.copy(checkpointer=False, settings={"output_dir": runs})
        stateful = own.copy(restricted_to=[uploads], approve=agent.approve)
        stateless = own.copy(restricted_to=[uploads, runs])
        return Workspace(uploads, runs, stateful, stateless)

    return {owner: workspace(owner) for owner in owners}


def public_names(workspaces: Mapping[str, Workspace]) -> PublicNames:
    """What the clients of a server see in place of paths, also of the models that its owner pinned."""
    names = {one.runs: "/outputs/" for one in workspaces.values()}
    names |= {one.uploads: "" for one in workspaces.values()}
    selectors = (one.agent.stages.registry.selector for one in workspaces.values())
    pinned = (pin.path.parent for selector in selectors for pin in selector.pins.values() if pin.path)
    return PublicNames({**names, **dict.fromkeys(pinned, "")})


def for_owner(config: dict[str, Any], request: Request) -> dict[str, Any]:
    """Return the config of a request's run. Nothing of it is the client's, but the id of the thread."""
    configurable = {"owner": request.state.owner, "agent": getattr(request.state, "agent", None)}
    if thread := request.headers.get(THREAD_HEADER):
        configurable["thread_id"] = thread_of(request.state.owner, thread)
    return {"configurable": configurable}
