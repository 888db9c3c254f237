"""`--mcp COMMAND`: the tools of an MCP server that is started over stdio.

A server runs until the end of the block and keeps its state between calls. Its session lives in the event
loop of a thread, and its tools may be called in any other loop.
"""

import asyncio
import json
import os
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TextIO, cast

from anyio.from_thread import BlockingPortal, start_blocking_portal
from langchain_core._api import suppress_langchain_beta_warning
from langchain_core.tools import BaseTool, ToolException

from jarvis_agent.core.errors import ConfigError, MissingExtraError
from jarvis_agent.core.text import brief_text

os.environ.setdefault("FASTMCP_ENV_FILE", os.devnull)  # else FastMCP reads the .env of this directory
try:
    from fastmcp.client import Client
    from fastmcp.client.transports import StdioTransport
    from mcp import MCPError, types

    with suppress_langchain_beta_warning():
        from langchain.mcp import MCPAdapter
except ImportError as error:
    raise MissingExtraError("--mcp", "mcp") from error

START_TIMEOUT_S = 60.0
"""Seconds for a server to start; the first start of some of them downloads a package."""


@contextmanager
def mcp_tools(commands: Sequence[str]) -> Iterator[list[BaseTool]]:
    """Start a server for each command and yield the tools of all.

    A server gets the variables PATH, HOME and the like, and not the others of this process, which hold keys.
    ConfigError: a command is not found, is no MCP server, or its server has no tools.
    """
    with start_blocking_portal() as portal, ExitStack() as stack:
        yield [tool for command in commands for tool in _start(command, portal, stack)]


def _start(command: str, portal: BlockingPortal, stack: ExitStack) -> list[BaseTool]:
    """The tools of a server that runs until the stack is closed."""
    log: Any = stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace"))  # noqa: SIM115
    try:
        words = shlex.split(command)
        if not words:
            raise ValueError("the command is empty")
        transport = StdioTransport(words[0], words[1:], keep_alive=False, log_file=log)
        adapter = MCPAdapter(_Client(transport, init_timeout=START_TIMEOUT_S, elicitation_handler=_decline))
        opened = portal.wrap_async_context_manager(adapter)
        opened.__enter__()
        # Not `enter_context`: the session's task group would wrap an exception of the block.
        stack.callback(opened.__exit__, None, None, None)
        tools = [_in_portal(tool, portal, command) for tool in portal.call(adapter.list_tools)]
    except (MCPError, RuntimeError, OSError, ValueError) as error:
        raise ConfigError(f'--mcp "{command}" {_problem(error, log)}') from error
    if not tools:
        raise ConfigError(f'--mcp "{command}": the server has no tools')
    return tools


def _problem(error: BaseException, log: TextIO) -> str:
    """Why a server did not start, by the error that FastMCP wraps, or what the server wrote last."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, TimeoutError):
        return f"did not answer within {START_TIMEOUT_S:g} s"
    if isinstance(error, OSError | ValueError):
        return f"cannot be started: {error}"
    log.seek(0)
    last_line = (log.read().strip().splitlines() or [""])[-1]
    return f"is no MCP server: {brief_text(last_line, 300) or error}"


class _Client(Client[Any]):
    """Adds to a result what the adapter does not take: sound, and the structured data of an error."""

    async def call_tool(self, *args: Any, **options: Any) -> Any:
        result = await super().call_tool(*args, **options)
        for number, block in enumerate(result.content):
            if isinstance(block, types.AudioContent):
                sound = types.BlobResourceContents(uri="", mime_type=block.mime_type, blob=block.data)
                result.content[number] = types.EmbeddedResource(resource=sound)
        if result.is_error and result.structured_content:
            text = json.dumps(result.structured_content, ensure_ascii=False)
            result.content.append(types.TextContent(text=text))
        return result


async def _decline(*question: Any) -> types.ElicitResult:
    """Decline a question that a server asks during a call: no one is there to answer it."""
    return types.ElicitResult(action="decline")


def _in_portal(tool: Any, portal: BlockingPortal, command: str) -> BaseTool:
    """A tool of an adapter, whose calls run in the event loop of the portal."""

    async def call(**arguments: Any) -> Any:
        try:
            return await asyncio.wrap_future(portal.start_task_soon(lambda: tool.coroutine(**arguments)))
        except (MCPError, RuntimeError) as error:
            raise ToolException(f'the MCP server "{command}" failed: {error}') from error

    return cast("BaseTool", tool.model_copy(update={"coroutine": call}))
