"""Every task as a tool for LangServe's client: `/tools/{task}/invoke`, batch, stream, schemas, playground.

LangServe's `add_routes` would take a second and 30 MB for all tasks, and 40 MB for their documentation. Its
handlers are made when a task is first used, behind routes that all tasks share.
"""

from collections.abc import Callable, Coroutine
from difflib import get_close_matches
from inspect import isclass
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, HTTPException, Request
from langchain_core.messages import ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.tools import BaseTool
from langserve import APIHandler

from jarvis_agent.agent.agent import JarvisAgent
from jarvis_agent.interfaces.common.metrics import observe_call
from jarvis_agent.interfaces.common.uploads_and_outputs import to_paths
from jarvis_agent.interfaces.server.errors import ErrorReportingRoute
from jarvis_agent.interfaces.server.workspaces import Own, for_owner
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

router = APIRouter(prefix="/tools", tags=["tools"], route_class=ErrorReportingRoute)
"""The routes. A call reads its owner's uploads and the files of earlier runs."""


async def _handler(task: str, request: Request, workspace: Own) -> APIHandler:
    """What handles the requests for a task."""
    request.state.agent = workspace.stateless  # for `for_owner`
    tools, handlers = await workspace.stateless.stages.callable_tools(), request.app.state.tool_handlers
    if task not in tools:
        close = get_close_matches(task, tools, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "GET /tools lists those there are"
        raise HTTPException(404, f"there is no tool {task[:100]!r} here; {hint}")
    if task not in handlers:
        handlers[task] = APIHandler(
            _served(tools[task]),
            path=f"/tools/{task}",
            per_req_config_modifier=for_owner,
            serializer=request.app.state.serializer,
        )
    return cast("APIHandler", handlers[task])


Handler = Annotated[APIHandler, Depends(_handler)]


def _served(tool: BaseTool) -> Runnable[Any, Any]:
    """What passes each call to the tool of its owner."""

    async def call(args: dict[str, Any], config: RunnableConfig) -> ToolMessage:
        agent: JarvisAgent = config["configurable"]["agent"]
        args = to_paths(args, agent.settings.output_dir)
        request = {"type": "tool_call", "name": tool.name, "args": args, "id": tool.name}
        own = (await agent.stages.callable_tools())[tool.name]
        return await observe_call(tool.name, own.ainvoke(request, config))

    # The arguments that a client gives; only the schema of our own tools has no others.
    schema = tool.args_schema if isinstance(tool, HFTaskTool) else tool.tool_call_schema
    return RunnableLambda(call, name=tool.name).with_types(
        input_type=schema if isclass(schema) else dict,  # MCP tools have a dict
        output_type=ToolMessage,
    )


def _add_endpoint(name: str, verb: str, method: Callable[..., Coroutine[Any, Any, Any]]) -> None:
    @router.api_route(f"/{{task}}/{name}", methods=[verb], name=name, response_model=None)
    async def respond(handler: Handler, request: Request) -> Any:
        return await method(handler, request)


for _name, (_verb, _method) in _ENDPOINTS.items():
    _add_endpoint(_name, _verb, _method)


@router.get("/{task}/playground/{file_path:path}", include_in_schema=False)
async def playground(handler: Handler, file_path: str, request: Request) -> Any:
    """LangServe's page for a task."""
    return await handler.playground(file_path, request)


@router.get("")
async def list_tools(workspace: Own) -> list[dict[str, str]]:
    """List the tasks that can run here."""
    tools = await workspace.stateless.stages.callable_tools()
    return [{"name": tool.name, "description": tool.description} for tool in tools.values()]
