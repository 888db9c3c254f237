"""The MCP server: lists and calls the tools, and reads the files that they made; over stdio or HTTP.

    server = make_server(lambda: Session(agent, output_dir))
    await server.run(read_stream, write_stream, server.create_initialization_options())

A file has the URI "jarvis:///outputs/<run>/<name>". It stands for the file in the arguments of later calls.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import secrets
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass, field, replace
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import anyio
from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, ToolException
from langchain_core.utils.function_calling import convert_to_openai_tool
from mcp import McpError, types
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from pydantic import AnyUrl, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from jarvis_agent import __version__
from jarvis_agent.agent.agent import JarvisAgent
from jarvis_agent.core.concurrency import repeating, run_in_daemon_thread
from jarvis_agent.core.errors import JarvisError, public_message
from jarvis_agent.core.settings import ServerSettings
from jarvis_agent.core.types import Resource
from jarvis_agent.interfaces.common.access import add_middleware, owners_of
from jarvis_agent.interfaces.common.limits import BodyLimit, RunLimits, max_json_bytes
from jarvis_agent.interfaces.common.progress import answered, format_event
from jarvis_agent.interfaces.common.uploads_and_outputs import (
    SWEEP_S,
    PublicNames,
    delete_expired,
    find_output,
    to_paths,
)
from jarvis_agent.tools.hf_task_tool import HFTaskTool

logger = logging.getLogger(__name__)

Report = Callable[[float, str], Awaitable[None]]
"""Tells the client of progress: the number of steps done, and what happens."""

_AGENT = "jarvis"

MAX_INLINE_BYTES = 10_000_000
"""Larger images and recordings are resource links."""
_RESULT_OF_TASK = {
    "type": "object",
    "properties": {"output": {}, "model": {"type": ["string", "null"]}},
    "required": ["output", "model"],
}
_RESULT_OF_RUN = {
    "type": "object",
    "properties": {"answer": {"type": "string"}, "ok": {"type": "boolean"}},
    "required": ["answer", "ok"],
}
_MAX_LISTED = 1000
MAX_SESSIONS = 100
"""Sessions of a key at once."""


@dataclass(frozen=True, slots=True)
class Session:
    """What one client may read, and the files that its calls have made.

    Attributes:
        agent: reads the directories of the session alone, and writes to `output_dir`.
        output_dir: the directory of its runs.
        names: what the client sees in place of paths.
        links: the files that its calls have made, the latest ones.
    """

    agent: JarvisAgent
    output_dir: Path
    names: PublicNames = field(default_factory=lambda: PublicNames({}))
    links: deque[types.ResourceLink] = field(default_factory=lambda: deque(maxlen=_MAX_LISTED))

    def blocks(self, resources: Iterable[Resource]) -> list[types.ContentBlock]:
        """The files that a call has made as content. Inputs are left out, and files that are gone. Blocks."""
        paths = {resource.path: resource for resource in resources if resource.path is not None}
        own = self.output_dir.resolve()
        return [
            self._block(path, resource)
            for path, resource in paths.items()
            if path.is_file() and path.resolve().is_relative_to(own)
        ]

    def _block(self, path: Path, resource: Resource) -> types.ContentBlock:
        mime = resource.mime or "application/octet-stream"
        link = types.ResourceLink(
            type="resource_link",
            uri=AnyUrl(f"jarvis:///outputs/{path.parent.name}/{path.name}"),
            name=path.name,
            mimeType=mime,
            size=path.stat().st_size,
        )
        self.links.append(link)
        if resource.kind not in ("image", "audio") or (link.size or 0) > MAX_INLINE_BYTES:
            return link
        data = base64.b64encode(path.read_bytes()).decode()
        return _block({"type": resource.kind, "base64": data, "mime_type": mime}, link.uri)


def make_server(
    new_session: Callable[[], Session], hold: Callable[[Any], AbstractContextManager[None]] | None = None
) -> Server[Session, Any]:
    """Return a server that makes a Session for each client.

    `hold` counts a call of an HTTP request while it goes on, or raises HTTPException.
    """

    @asynccontextmanager
    async def lifespan(_: Server[Session, Any]) -> AsyncIterator[Session]:
        yield new_session()

    server = Server("jarvis", version=__version__, lifespan=lifespan)

    def session() -> Session:
        return server.request_context.lifespan_context

    async def report(progress: float, message: str) -> None:
        context = server.request_context
        if context.meta is not None and (token := context.meta.progressToken) is not None:
            await context.session.send_progress_notification(
                token,
                progress,
                message=session().names.of(message),
                related_request_id=str(context.request_id),
            )

    async def list_tools() -> list[types.Tool]:
        settings = session().agent.settings
        is_open = not (settings.offline and settings.policy == "local-only")
        return [_described(tool, is_open) for tool in (await _tools(session())).values()]

    async def call_tool(name: str, arguments: dict[str, Any]) -> types.CallToolResult:
        try:
            with hold(server.request_context.request) if hold else nullcontext():
                result = await _call(session(), name, arguments, report)
            shown = session().names.of(result.model_dump(mode="json"))
            return types.CallToolResult.model_validate(shown)
        except Exception as error:  # The SDK makes a result of its message.
            raise ToolException(session().names.of(_explanation(name, error))) from error

    async def list_resources() -> list[types.Resource]:
        return list(session().links)

    async def read_resource(uri: AnyUrl) -> Iterable[ReadResourceContents]:
        parts = str(uri).removeprefix("jarvis:///outputs/").split("/")
        file = find_output(session().output_dir, *parts) if len(parts) == 2 else None
        if file is None:
            message = f"no file of this session: {uri}"
            data = {"uri": str(uri)}
            raise McpError(types.ErrorData(code=types.INVALID_PARAMS, message=message, data=data))
        return [ReadResourceContents(await asyncio.to_thread(file.path.read_bytes), file.mime)]

    server.list_tools()(list_tools)  # type: ignore[no-untyped-call]
    server.call_tool()(call_tool)
    server.list_resources()(list_resources)  # type: ignore[no-untyped-call]
    server.read_resource()(read_resource)  # type: ignore[no-untyped-call]
    return server


def _explanation(name: str, error: Exception) -> str:
    """Why a call failed. What is not the client's business is only logged."""
    if isinstance(error, JarvisError):
        return public_message(error)
    if isinstance(error, ToolException | ValidationError):
        return str(error)
    if isinstance(error, HTTPException):
        return error.detail
    logger.error("the tool %s failed", name, exc_info=error)
    return f"{name} failed: internal error ({type(error).__name__}); the server's log has details"


async def _tools(session: Session) -> dict[str, BaseTool]:
    """The tools of a session by name: the tasks of its agent, and the agent."""
    return {**await session.agent.stages.callable_tools(), _AGENT: session.agent.as_tool(name=_AGENT)}


def _described(tool: BaseTool, is_open: bool) -> types.Tool:
    """A tool for the list. `is_open`: its models, or their files, may be elsewhere.

    A task makes new files in the session's own directory, and alters nothing. What other tools do is unknown.
    """
    function = convert_to_openai_tool(tool)["function"]
    described = types.Tool(
        name=tool.name,
        title=tool.name.replace("-", " ").replace("_", " ").capitalize(),
        description=function.get("description", ""),
        inputSchema=function.get("parameters") or {"type": "object", "properties": {}},
    )
    if isinstance(tool, HFTaskTool):
        described.annotations = types.ToolAnnotations(readOnlyHint=True, openWorldHint=is_open)
        described.outputSchema = _RESULT_OF_TASK
    elif tool.name == _AGENT:
        described.outputSchema = _RESULT_OF_RUN
    return described


async def _call(
    session: Session, name: str, arguments: dict[str, Any], report: Report
) -> types.CallToolResult:
    """Call a tool. Cancelling this cancels the run."""
    tool = (await _tools(session)).get(name)
    if tool is None:
        raise ToolException(f"there is no tool {name!r} here; the list of tools has the names")
    arguments = to_paths(arguments, session.output_dir, "jarvis://")
    if name == _AGENT:
        return await _ask(session, arguments, report)
    call = {"type": "tool_call", "name": name, "args": arguments, "id": "mcp"}
    is_task = isinstance(tool, HFTaskTool)
    await report(0, f"{name}: {'choosing a model' if is_task else 'running'}")
    # Other tools may run their callbacks in other event loops.
    message: ToolMessage = await tool.ainvoke(call, {"callbacks": [_Attempts(report)] if is_task else []})
    if message.status == "error":
        raise ToolException(message.text)
    if not is_task:
        return types.CallToolResult(content=[_block(block) for block in message.content_blocks])
    made = message.artifact
    files = [Resource.model_validate(resource) for resource in made["resources"]]
    return types.CallToolResult(
        content=[_text(message.text), *await asyncio.to_thread(session.blocks, files)],
        structuredContent={"output": made["output"], "model": made["model"]},
    )


async def _ask(session: Session, arguments: Mapping[str, Any], report: Report) -> types.CallToolResult:
    """Run a request. It is an error if nothing could be done, as in the command line's exit code."""
    request = {"input": arguments["request"], "files": arguments.get("files") or []}
    run, done = None, 0
    async with aclosing(session.agent.events(request)) as events:
        async for event in events:
            run = event.run or run
            if line := format_event(event):
                done += 1
                await report(done, line)
    assert run is not None
    files = await asyncio.to_thread(session.blocks, run.resources)
    return types.CallToolResult(
        content=[_text(run.answer), *files],
        structuredContent={"answer": run.answer, "ok": run.ok},
        isError=not answered(run),
    )


def _block(block: Mapping[str, Any], uri: AnyUrl | None = None) -> types.ContentBlock:
    """A content block of LangChain as MCP's: a text, an image, or another file as an embedded resource.

    Clients such as langchain-mcp-adapters do not take MCP's blocks of sound.
    """
    data, mime = block.get("base64"), block.get("mime_type")
    if block["type"] == "image" and data:
        return types.ImageContent(type="image", data=data, mimeType=mime or "image/png")
    if data:
        kept = uri or AnyUrl(f"jarvis:///results/{block['type']}")
        content = types.BlobResourceContents(uri=kept, blob=data, mimeType=mime)
        return types.EmbeddedResource(type="resource", resource=content)
    return _text(str(block.get("text") or block.get("url") or f"({block['type']})"))


def _text(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=text)


class _Attempts(AsyncCallbackHandler):
    """Reports each model that is tried."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._tried = 0

    async def on_chain_start(self, serialized: Any, inputs: Any, *, name: str = "", **kwargs: Any) -> None:
        """Report an attempt, which is a chain run with the name of its model."""
        self._tried += 1
        await self._report(self._tried, f"running {name}")


async def serve_stdio(agent: JarvisAgent) -> None:
    """As `run_stdio`, in a running event loop."""
    settings = agent.settings
    roots = [*_working_directory(), *settings.allowed_dirs, settings.output_dir]
    server = make_server(lambda: _session(agent, roots, settings.output_dir))
    with _protocol_streams() as (stdin, stdout):
        async with agent, stdio_server(_lines(stdin), anyio.wrap_file(stdout)) as (read, write):  # type: ignore[arg-type]
            await server.run(read, write, server.create_initialization_options())


def _session(agent: JarvisAgent, roots: Sequence[Path], output_dir: Path) -> Session:
    """A session that reads `roots` alone, and writes to `output_dir`."""
    output_dir = output_dir.absolute()
    return Session(agent.with_checkpointer(None).restricted(*roots, output_dir=output_dir), output_dir)


async def _lines(stdin: TextIOWrapper) -> AsyncIterator[str]:
    """The lines of stdin. Ctrl-C ends a wait for the next one, unlike in the SDK's own reader."""
    while line := await run_in_daemon_thread(stdin.readline):
        yield line


def _working_directory() -> list[Path]:
    """The working directory, unless it is "/", where desktop clients start servers: that is every file."""
    return [found for found in [Path.cwd()] if len(found.parts) > 1]


@contextmanager
def _protocol_streams() -> Iterator[tuple[TextIOWrapper, TextIOWrapper]]:
    """Stdin and stdout for the protocol alone: what else is printed, by C code too, goes to stderr."""
    sys.stdout.flush()
    stdin, stdout = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    try:
        yield (
            TextIOWrapper(os.fdopen(stdin, "rb", closefd=False), encoding="utf-8", errors="replace"),
            TextIOWrapper(os.fdopen(stdout, "wb", closefd=False), encoding="utf-8", newline="\n"),
        )
    finally:
        sys.stdout.flush()
        os.dup2(stdout, 1)
        os.dup2(stdin, 0)


def make_http_app(agent: JarvisAgent, settings: ServerSettings) -> Starlette:
    """Return a web application that serves `agent` at `/mcp` and closes it at shutdown.

    Each session has a directory of its own, and reads nothing else. It belongs to the API key that opened it.
    """
    base = agent.settings.output_dir.absolute() / "mcp"

    def new_session() -> Session:
        own = base / secrets.token_hex(16)
        return replace(_session(agent, [own], own), names=PublicNames({own: "jarvis:///outputs/"}))

    logging.getLogger("mcp.server.streamable_http").addFilter(_is_no_session_end)
    limits = RunLimits(settings)
    server = make_server(new_session, lambda request: limits.hold(request.state.owner))
    managers = {
        owner: StreamableHTTPSessionManager(
            server,
            max_request_body_size=max_json_bytes(agent.settings.max_file_bytes),
            max_sessions=MAX_SESSIONS,
        )
        for owner in owners_of(key.get_secret_value() for key in settings.api_keys)
    }

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        kept = settings.run_retention(agent.settings)
        delete = partial(asyncio.to_thread, delete_expired, base, kept)
        async with AsyncExitStack() as running:
            await running.enter_async_context(agent)
            for manager in managers.values():
                await running.enter_async_context(manager.run())
            await running.enter_async_context(repeating(delete, SWEEP_S, "the deletion of files"))
            yield

    app = Starlette(routes=[Route("/mcp", _Sessions(managers))], lifespan=lifespan)
    app.add_middleware(BodyLimit, max_file_bytes=agent.settings.max_file_bytes)
    add_middleware(app, settings)
    return app


def _is_no_session_end(record: logging.LogRecord) -> bool:
    """Whether to log this: the SDK logs a traceback when a client ends its session."""
    return not (record.exc_info and isinstance(record.exc_info[1], anyio.ClosedResourceError))


class _Sessions:
    """The sessions of each owner of an API key, who can neither use nor exhaust those of others."""

    def __init__(self, managers: Mapping[str, StreamableHTTPSessionManager]) -> None:
        self._managers = managers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._managers[scope["state"]["owner"]].handle_request(scope, receive, send)
