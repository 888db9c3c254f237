"""Every task as a tool for LangServe's client: `/tools/{task}/invoke`, batch, stream, schemas, playground.

    detect = RemoteRunnable(f"{url}/tools/object-detection")
    message = detect.invoke({"image": name})     # a ToolMessage; `name` is that of an upload
    message.content                              # "3 objects: 2 cars, 1 person\nimage: /outputs/…"
    message.artifact["output"]                   # the boxes, as JSON

LangServe's `add_routes` would take a second and 30 MB for all tasks, and 40 MB for their documentation. Its
handlers are made when a task is first used, behind routes that all tasks share.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from difflib import get_close_matches
from inspect import isclass
from typing import Any

from fastapi import APIRouter, HTTPException, Request
from langchain_core.messages import ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.tools import BaseTool
from langserve import APIHandler

from jarvis_agent.interfaces.common.metrics import observe_call
from jarvis_agent.interfaces.common.uploads_and_outputs import to_paths
from jarvis_agent.interfaces.server.errors import ErrorReportingRoute, RunSerializer
from jarvis_agent.interfaces.server.workspaces import Workspace, for_owner, public_names
from jarvis_agent.tools.hf_task_tool import HFTaskTool

_ENDPOINTS = {
    "invoke": ("POST", APIHandler.invoke),
    "batch": ("POST", APIHandler.batch),
    "stream": ("POST", APIHandler.stream),
    "stream_log": ("POST", APIHandler.stream_log),
    "stream_events": ("POST", APIHandler.astream_events),
    "input_schema": ("GET", APIHandler.input_schema),
    "output_schema": ("GET", APIHandler.output_schema),
    "config_schema": ("GET", APIHandler.config_schema),
}


class _Tools:
    """The tools of each owner, and LangServe's handlers of their requests."""

    def __init__(self, workspaces: Mapping[str, Workspace]) -> None:
        self._workspaces = workspaces
        self._handlers: dict[str, APIHandler] = {}
        self._serializer = RunSerializer(public_names(workspaces))

    async def of(self, owner: str) -> Mapping[str, BaseTool]:
        return await self._workspaces[owner].stateless.stages.callable_tools()

    async def handler(self, task: str, request: Request) -> APIHandler:
        """Return what handles the requests for a task.

        Raises:
            HTTPException: 404, there is no such task.
        """
        tools = await self.of(request.state.owner)
        if task not in tools:
            raise HTTPException(404, _unknown(task, tools))
        if task not in self._handlers:
            self._handlers[task] = APIHandler(
                self._served(tools[task]),
                path=f"/tools/{task}",
                per_req_config_modifier=for_owner,
                serializer=self._serializer,
            )
        return self._handlers[task]

    def _served(self, tool: BaseTool) -> Runnable[Any, Any]:
        """What passes each call to the tool of its owner."""

        async def call(args: dict[str, Any], config: RunnableConfig) -> ToolMessage:
            owner = config["configurable"]["owner"]
            args = to_paths(args, self._workspaces[owner].runs)
            request = {"type": "tool_call", "name": tool.name, "args": args, "id": tool.name}
            return await observe_call(tool.name, (await self.of(owner))[tool.name].ainvoke(request, config))

        # The arguments that a client gives; only the schema of our own tools has no others.
        schema = tool.args_schema if isinstance(tool, HFTaskTool) else tool.tool_call_schema
        return RunnableLambda(call, name=tool.name).with_types(
            input_type=schema if isclass(schema) else dict,  # MCP tools have a dict
            output_type=ToolMessage,
        )


def tool_routes(workspaces: Mapping[str, Workspace]) -> APIRouter:
    """Return the routes below `/tools`. A call reads its owner's uploads and the files of earlier runs."""
    router = APIRouter(prefix="/tools", tags=["tools"], route_class=ErrorReportingRoute)
    tools = _Tools(workspaces)

    def endpoint(method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        async def respond(task: str, request: Request) -> Any:
            return await method(await tools.handler(task, request), request)

        return respond

    for name, (verb, method) in _ENDPOINTS.items():
        path = f"/{{task}}/{name}"
        router.add_api_route(path, endpoint(method), methods=[verb], name=name, response_model=None)

    @router.get("/{task}/playground/{file_path:path}", include_in_schema=False)
    async def playground(task: str, file_path: str, request: Request) -> Any:
        return await (await tools.handler(task, request)).playground(file_path, request)

    @router.get("")
    async def list_tools(request: Request) -> list[dict[str, str]]:
        """List the tasks that can run here."""
        available = (await tools.of(request.state.owner)).values()
        return [{"name": tool.name, "description": tool.description} for tool in available]

    return router


def _unknown(task: str, tools: Mapping[str, BaseTool]) -> str:
    close = get_close_matches(task, tools, n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else "GET /tools lists those there are"
    return f"there is no tool {task[:100]!r} here; {hint}"
