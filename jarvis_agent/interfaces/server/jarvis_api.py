"""The API of microsoft/JARVIS, the code of the paper, for its clients: `/hugginggpt`, `/tasks`, `/results`.

    body = {"messages": [{"role": "user", "content": "Detect cats in /outputs/8f0c…/0-text-to-image.png"}]}
    POST /hugginggpt    {"message": "There are 2 cats … /outputs/9a1e…/0-object-detection.png"}
    POST /tasks         [{"task": "object-detection", "id": 0, "dep": [-1], "args": {"image": …}}]
    POST /results       {"0": {"task": …, "inference result": …, "choose model result": {"id": …, …}}}

A request without tasks is answered with a "message" on each route. Requests are stateless: earlier messages
are the chat history. The original's `api_key`, `api_type` and `api_endpoint` in a body are ignored.

Source: https://github.com/microsoft/JARVIS, hugginggpt/server/awesome_chat.py
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from jarvis_agent.core.request import Request as AgentRequest
from jarvis_agent.core.types import TaskResult
from jarvis_agent.execution.run import Run
from jarvis_agent.interfaces.common.disconnect import unless_disconnected
from jarvis_agent.interfaces.common.uploads_and_outputs import origin_of, to_paths
from jarvis_agent.interfaces.server.workspaces import Workspace


class JarvisMessage(BaseModel):
    """A message of the chat."""

    role: Literal["user", "assistant", "system"]
    content: str


class JarvisRequest(BaseModel):
    """The body of a request; the last message is the user's."""

    messages: Annotated[list[JarvisMessage], Field(min_length=1, fail_fast=True)]


def jarvis_routes(workspaces: Mapping[str, Workspace]) -> APIRouter:
    """Return the routes. Their agents may read uploads and files of earlier runs."""
    router = APIRouter(tags=["jarvis"])

    def asked(body: JarvisRequest, request: Request) -> AgentRequest:
        workspace = workspaces[request.state.owner]
        messages = to_paths(body.model_dump()["messages"], workspace.runs, origin_of(request))
        return AgentRequest.of({"messages": messages})

    async def run_of(body: JarvisRequest, request: Request) -> Run:
        agent = workspaces[request.state.owner].stateless
        return await unless_disconnected(request, agent.ainvoke(asked(body, request)))

    @router.post("/hugginggpt")
    async def hugginggpt(body: JarvisRequest, request: Request) -> dict[str, str]:
        """Run the last message and answer it."""
        return _message(await run_of(body, request))

    @router.post("/tasks")
    async def tasks(body: JarvisRequest, request: Request) -> Any:
        """Plan the last message."""
        agent = workspaces[request.state.owner].stateless
        plan = await unless_disconnected(request, agent.aplan(asked(body, request)))
        return json.loads(plan.to_json()) if plan.tasks else _message(await run_of(body, request))

    @router.post("/results")
    async def results(body: JarvisRequest, request: Request) -> dict[str, Any]:
        """Run the last message and report the results of its tasks."""
        run = await run_of(body, request)
        return {str(result.task.id): _result(result) for result in run.results} or _message(run)

    return router


def _message(run: Run) -> dict[str, str]:
    """The answer, and the files that it does not name; the original's web page shows them by their URLs."""
    paths = [str(path) for result in run.results for path in result.paths()]
    return {"message": "\n".join([run.answer, *(path for path in paths if path not in run.answer)])}


def _result(result: TaskResult) -> dict[str, Any]:
    task = {**result.task.model_dump(), "dep": result.task.dep or [-1]}
    output: dict[str, Any] = {}
    for resource in result.resources:
        shown = str(resource.path) if resource.path else resource.as_text()
        output.setdefault(f"generated {resource.kind}", shown)
    if isinstance(result.output, list):
        output["predicted"] = result.output
    if result.error:
        output = {"error": {"message": result.error}}
    chosen = {"id": result.model, "reason": result.selection.reason if result.selection else ""}
    return {"task": task, "inference result": output, "choose model result": chosen}
