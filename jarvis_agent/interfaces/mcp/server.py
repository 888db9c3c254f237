"""The MCP server: lists and calls the tools, and reads the files that they made; over stdio or HTTP.

A file has the URI "jarvis:///outputs/<run>/<name>", which stands for it in the arguments of later calls. Over
HTTP it belongs to the key: since the revision of July 2026 there are no sessions.
"""

import asyncio
import base64
import logging
import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableLambda
from langchain_core.tools import BaseTool, ToolException
from langchain_core.utils.function_calling import convert_to_openai_tool
from mcp import MCPError, types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Route

from jarvis_agent import __version__
from jarvis_agent.agent.agent import JarvisAgent
from jarvis_agent.core.concurrency import run_in_daemon_thread
from jarvis_agent.core.errors import JarvisError, public_message, words_of
from jarvis_agent.core.settings import ServerSettings
from jarvis_agent.core.types import Resource
from jarvis_agent.interfaces.common import uploads_and_outputs as outputs
from jarvis_agent.interfaces.common.access import add_middleware, owners_of
from jarvis_agent.interfaces.common.limits import BodyLimit, RunLimits, max_json_bytes
from jarvis_agent.interfaces.common.progress import answered, format_event
from jarvis_agent.tools.hf_task_tool import EVENT, HFTaskTool

logger = logging.getLogger(__name__)

Report = Callable[[str], Awaitable[None]]
"""Tells the client what happens."""

_AGENT = "jarvis"

MAX_INLINE_BYTES = 700_000
"""Images and recordings of a result beyond these are resource links: clients refuse an event above 1 MiB."""
MAX_SESSIONS = 100
"""Sessions of a key at once, for clients that open sessions."""


def _object(**properties: Any) -> dict[str, Any]:
    """The JSON schema of an object with these properties."""
    return {"type": "object", "properties": properties, "required": [*properties]}


_RESULT_OF_TASK = _object(output={}, model={"type": ["string", "null"]})
_RESULT_OF_RUN = _object(answer={"type": "string"}, ok={"type": "boolean"})


@dataclass(frozen=True, slots=True)
class McpWorkspace:
    """What the client of a process, or those of a key, may read; links to the latest files of their calls.

    Its agent reads and writes these directories alone. Clients see `names` for paths.
    """

    agent: JarvisAgent
    names: outputs.PublicNames
    links: deque[types.ResourceLink] = field(default_factory=lambda: deque(maxlen=1000))

    def blocks(self, resources: Iterable[Resource]) -> list[types.ContentBlock]:
        """The files that a call has made as content. Inputs are left out, and files that are gone. Blocks."""
        paths = {resource.path: resource for resource in resources if resource.path is not None}
        own, left = self.agent.settings.output_dir.resolve(), MAX_INLINE_BYTES
        blocks: list[types.ContentBlock] = []
        for path, resource in paths.items():
            if not path.is_file() or not path.resolve().is_relative_to(own):
                continue
            mime, size = resource.mime or "application/octet-stream", path.stat().st_size
            uri = f"jarvis:///outputs/{path.parent.name}/{path.name}"
            link = types.ResourceLink(uri=uri, name=path.name, mime_type=mime, size=size)
            self.links.append(link)
            if resource.kind in ("image", "audio") and size <= left:
                left -= size
                blocks.append(_block(resource.to_content_block(), uri))
            else:
                blocks.append(link)
        return blocks


def make_server(
    workspace: McpWorkspace, hold: Callable[[], AbstractContextManager[None]] = nullcontext
) -> Server[Any]:
    """Return the server of a workspace. `hold` counts a call while it goes on, or raises HTTPException."""

    async def list_tools(*_: Any) -> types.ListToolsResult:
        settings = workspace.agent.settings
        is_open = not (settings.offline and settings.policy == "local-only")
        tools = (await _tools(workspace)).values()
        return types.ListToolsResult(tools=[_described(tool, is_open) for tool in tools])

    async def call_tool(
        context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        steps = count(1)

        async def report(message: str) -> None:
            await context.session.report_progress(next(steps), message=workspace.names.of(message))

        try:
            with hold():
                result = await _call(workspace, params.name, params.arguments or {}, report)
        except Exception as error:  # what is raised here is an error of the protocol
            text = types.TextContent(text=_explanation(params.name, error))
            result = types.CallToolResult(content=[text], is_error=True)
        fields = workspace.names.of(result.model_dump(mode="json", by_alias=True))
        return types.CallToolResult.model_validate(fields)

    async def list_resources(*_: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=list(workspace.links))

    async def read_resource(_: Any, params: Any) -> types.ReadResourceResult:
        parts = (uri := params.uri).removeprefix("jarvis:///outputs/").split("/")
        folder = workspace.agent.settings.output_dir
        file = outputs.find_output(folder, *parts) if len(parts) == 2 else None
        if file is None:
            raise MCPError(types.INVALID_PARAMS, f"no file of yours: {uri}", {"uri": uri})
        blob = base64.b64encode(await asyncio.to_thread(Path(file.path).read_bytes)).decode()
        contents = types.BlobResourceContents(uri=uri, mime_type=file.media_type, blob=blob)
        return types.ReadResourceResult(contents=[contents])

    return Server(
        "jarvis",
        version=__version__,
        get_tool_input_schema=lambda name: None,  # else each call lists the tools; no schema names a header
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
    )


def _explanation(name: str, error: Exception) -> str:
    """Why a call failed. What is not the client's business is only logged."""
    if isinstance(error, JarvisError):
        return public_message(error)
    if isinstance(error, ToolException | ValidationError):
        return words_of(error)
    if isinstance(error, HTTPException):
        return error.detail
    logger.error("the tool %s failed", name, exc_info=error)
    return f"{name} failed: internal error ({type(error).__name__}); the server's log has details"


async def _tools(workspace: McpWorkspace) -> dict[str, BaseTool]:
    """The tools of a workspace by name: the tasks of its agent, and the agent."""
    return {**await workspace.agent.stages.callable_tools(), _AGENT: workspace.agent.as_tool(name=_AGENT)}


def _described(tool: BaseTool, is_open: bool) -> types.Tool:
    """A tool for the list. `is_open`: its models, or their files, may be elsewhere."""
    function, is_task = convert_to_openai_tool(tool)["function"], isinstance(tool, HFTaskTool)
    result = _RESULT_OF_RUN if tool.name == _AGENT else None
    # A task makes new files in the session's own directory, and alters nothing.
    hints = types.ToolAnnotations(read_only_hint=True, open_world_hint=is_open)
    return types.Tool(
        name=tool.name,
        title=tool.name.replace("-", " ").replace("_", " ").capitalize(),
        description=function.get("description", ""),
        input_schema=function.get("parameters") or _object(),
        output_schema=_RESULT_OF_TASK if is_task else result,
        annotations=hints if is_task else None,  # what other tools do is unknown
    )


async def _call(
    workspace: McpWorkspace, name: str, arguments: dict[str, Any], report: Report
) -> types.CallToolResult:
    """Call a tool. Cancelling this cancels the run."""
    tool = (await _tools(workspace)).get(name)
    if tool is None:
        raise ToolException(f"there is no tool {name!r} here; the list of tools has the names")
    arguments = outputs.to_paths(arguments, workspace.agent.settings.output_dir, "jarvis://")
    if name == _AGENT:
        return await _ask(workspace, arguments, report)
    is_task = isinstance(tool, HFTaskTool)
    call: Any = {"type": "tool_call", "name": name, "args": arguments, "id": "mcp"}
    events: Any = RunnableLambda(tool.ainvoke).astream_events(call)  # a tool may tell of no events
    async with aclosing(events):
        async for event in events:
            if not event["parent_ids"]:
                message = event["data"].get("output")
            elif event["name"] == EVENT:
                await report(event["data"]["text"])
            elif event["event"] == "on_chain_start" and is_task:  # an attempt, which has its model's name
                await report(f"running {event['name']}")
    if message.status == "error":
        raise ToolException(message.text)
    if not is_task:
        return types.CallToolResult(content=[_block(block) for block in message.content_blocks])
    result = message.artifact
    files = [Resource.model_validate(resource) for resource in result["resources"]]
    return types.CallToolResult(
        content=[types.TextContent(text=message.text), *await asyncio.to_thread(workspace.blocks, files)],
        structured_content={"output": result["output"], "model": result["model"]},
    )


async def _ask(workspace: McpWorkspace, arguments: Mapping[str, Any], report: Report) -> types.CallToolResult:
    """Run a request. It is an error if nothing could be done, as in the command line's exit code."""
    request = {"input": arguments.get("request", ""), "files": arguments.get("files") or []}
    run = None
    async with aclosing(workspace.agent.aevents(request)) as events:
        async for event in events:
            run = event.run or run
            if line := format_event(event):
                await report(line)
    assert run is not None
    files = await asyncio.to_thread(workspace.blocks, run.resources)
    return types.CallToolResult(
        content=[types.TextContent(text=run.answer), *files],
        structured_content={"answer": run.answer, "ok": run.ok},
        is_error=not answered(run),
    )


def _block(block: Mapping[str, Any], uri: str = "jarvis:///results") -> types.ContentBlock:
    """A content block of LangChain as MCP's. Sound is a resource: langchain.mcp takes no blocks of it."""
    data, mime = block.get("base64"), block.get("mime_type")
    if block["type"] == "image" and data:
        return types.ImageContent(data=data, mime_type=mime or "image/png")
    if data:
        return types.EmbeddedResource(resource=types.BlobResourceContents(uri=uri, blob=data, mime_type=mime))
    return types.TextContent(text=str(block.get("text") or block.get("url") or f"({block['type']})"))


async def serve_stdio(agent: JarvisAgent) -> None:
    """As `run_stdio`, in a running event loop."""
    settings = agent.settings
    roots = [*_working_directory(), *settings.allowed_dirs, settings.output_dir]
    server = make_server(_workspace(agent, roots, settings.output_dir, {}))
    async with agent, stdio_server(_lines()) as (read, write):  # type: ignore[arg-type]
        await server.run(read, write, server.create_initialization_options())
        sys.stdout.flush()  # to stderr, which has its place until here


def _workspace(
    agent: JarvisAgent, roots: Sequence[Path], folder: Path, names: Mapping[Path, str]
) -> McpWorkspace:
    """A workspace that reads `roots` alone and writes to a folder; `names` are those of PublicNames."""
    own = agent.copy(checkpointer=False, restricted_to=roots, settings={"output_dir": folder.absolute()})
    return McpWorkspace(own, outputs.PublicNames(names))


async def _lines() -> AsyncIterator[str]:
    """The lines of stdin, which nothing else reads now. Ctrl-C ends a wait for one, unlike in the SDK."""
    stdin = os.fdopen(os.dup(0), encoding="utf-8", errors="replace", closefd=False)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    while line := await run_in_daemon_thread(stdin.readline):
        yield line


def _working_directory() -> list[Path]:
    """The working directory, unless it is "/", where desktop clients start servers: that is every file."""
    return [folder for folder in [Path.cwd()] if len(folder.parts) > 1]


def make_http_app(agent: JarvisAgent, settings: ServerSettings) -> Starlette:
    """Return a web application that serves `agent` at `/mcp` and closes it at shutdown.

    The clients of each API key have a directory, and read nothing else.
    """
    base, limits = agent.settings.output_dir.absolute() / "mcp", RunLimits(settings)
    managers = {
        owner: StreamableHTTPSessionManager(
            make_server(
                _workspace(agent, [own], own, {own: "jarvis:///outputs/"}), partial(limits.hold, owner)
            ),
            max_request_body_size=max_json_bytes(agent.settings.max_file_bytes),
            max_sessions=MAX_SESSIONS,
        )
        for owner in owners_of(settings)
        for own in [base / owner]
    }

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        deletion = outputs.deleting_expired({base: settings.run_retention(agent.settings)})
        async with agent, deletion, AsyncExitStack() as running:
            for manager in managers.values():
                await running.enter_async_context(manager.run())
            yield

    async def sessions_of(request: Request) -> Any:
        """The sessions of an API key, which can neither use nor exhaust those of others."""
        return managers[request.state.owner].handle_request

    app = Starlette(routes=[Route("/mcp", sessions_of, methods=["GET", "POST", "DELETE"])], lifespan=lifespan)
    app.add_middleware(BodyLimit, max_file_bytes=agent.settings.max_file_bytes)
    add_middleware(app, settings)
    return app
