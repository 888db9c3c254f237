"""Every task as a tool for LangServe's client: `/tools/{task}/invoke`, batch, stream, schemas.

One set of LangServe's routes serves all tasks, whose names are in their paths.
"""

from difflib import get_close_matches
from typing import Any, cast

from fastapi import APIRouter, HTTPException, Request
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langserve import add_routes
from pydantic import ValidationError

from jarvis_agent.core.errors import InputError, words_of
from jarvis_agent.interfaces.common.metrics import observe_call
from jarvis_agent.interfaces.common.uploads_and_outputs import to_paths
from jarvis_agent.interfaces.server.errors import ErrorReportingRoute, RunSerializer
from jarvis_agent.interfaces.server.workspaces import Own, for_owner
from jarvis_agent.tools.hf_task_tool import HFTaskTool


def make_tool_routes(serializer: RunSerializer) -> APIRouter:
    """The routes. A call reads its owner's uploads and the files of earlier runs."""
    router = APIRouter(tags=["tools"], route_class=ErrorReportingRoute)
    router.get("/tools")(list_tools)
    router.get("/tools/{task}/input_schema")(input_schema)
    add_routes(
        router,
        RunnableLambda(_call, name="tool").with_types(input_type=dict, output_type=ToolMessage),
        path="/tools/{task}",
        per_req_config_modifier=_for_task,
        disabled_endpoints=["config_hashes", "input_schema", "playground", "token_feedback"],
        serializer=serializer,
    )
    return router


async def list_tools(workspace: Own) -> list[dict[str, str]]:
    """List the tasks that can run here."""
    tools = await workspace.stateless.stages.callable_tools()
    return [{"name": tool.name, "description": tool.description} for tool in tools.values()]


async def input_schema(task: str, workspace: Own) -> dict[str, Any]:
    """The JSON schema of the arguments of a task."""
    tool = _tool_of(await workspace.stateless.stages.callable_tools(), task)
    return cast("dict[str, Any]", convert_to_openai_tool(tool)["function"]["parameters"])


async def _for_task(config: dict[str, Any], request: Request) -> dict[str, Any]:
    request.state.agent = request.app.state.workspaces[request.state.owner].stateless
    tools = await request.state.agent.stages.callable_tools()
    config = for_owner(config, request)
    config["configurable"]["tool"] = _tool_of(tools, request.path_params["task"])
    return config


def _tool_of(tools: dict[str, BaseTool], task: str) -> BaseTool:
    if task in tools:
        return tools[task]
    close = get_close_matches(task, tools, n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else "GET /tools lists those there are"
    raise HTTPException(404, f"there is no tool {task[:100]!r} here; {hint}")


async def _call(args: dict[str, Any], config: RunnableConfig) -> ToolMessage:
    """Pass a call to the tool of its owner. InputError: an argument is missing, unknown or wrong."""
    agent, tool = config["configurable"]["agent"], config["configurable"]["tool"]
    # Only the schema of our own tools has no arguments but those that a client gives.
    schema: Any = tool.args_schema if isinstance(tool, HFTaskTool) else tool.tool_call_schema
    try:
        if not isinstance(schema, dict):  # as MCP tools have
            schema.model_validate(args)
    except ValidationError as error:
        raise InputError(words_of(error)) from error
    args = to_paths(args, agent.settings.output_dir)
    call = {"type": "tool_call", "name": tool.name, "args": args, "id": tool.name}
    return await observe_call(tool.name, tool.ainvoke(call, config))
