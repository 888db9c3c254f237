"""`--mcp COMMAND`: the tools of an MCP server that is started over stdio.

    with mcp_tools(["uvx mcp-server-time"]) as tools:
        agent = JarvisAgent(tools=[*hf_tools(), *tools])

A server runs until the end of the block and keeps its state between calls. Its session lives in the event
loop of a thread, and its tools may be called in any other loop.
"""

from __future__ import annotations

import asyncio
import shlex
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any, TextIO, cast

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal
from langchain_core.tools import BaseTool, ToolException

from jarvis_agent.core.errors import ConfigError, MissingExtraError
from jarvis_agent.core.text import brief_text

try:
    from langchain_mcp_adapters.tools import load_mcp_tools
    from mcp import ClientSession, McpError, StdioServerParameters, stdio_client
except ImportError as error:
    raise MissingExtraError("--mcp", "mcp") from error

START_TIMEOUT_S = 60.0
"""Seconds for a server to start; the first start of some of them downloads a package."""


@contextmanager
def mcp_tools(commands: Sequence[str]) -> Iterator[list[BaseTool]]:
    """Start a server for each command and yield the tools of all.

    A server gets the variables PATH, HOME and the like, and not the others of this process, which hold keys.

    Raises:
        ConfigError: a command is not found, is no MCP server, or its server has no tools.
    """
    with start_blocking_portal() as portal, ExitStack() as stack:
        yield [tool for command in commands for tool in _start(command, portal, stack)]


def _start(command: str, portal: BlockingPortal, stack: ExitStack) -> list[BaseTool]:
    """The tools of a server that runs until the stack is closed."""
    log = cast("TextIO", tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace"))  # noqa: SIM115
    stack.callback(log.close)
    try:
        opened = portal.wrap_async_context_manager(_connect(shlex.split(command), log))
        session = opened.__enter__()
        # Not `enter_context`: the session's task group would wrap an exception of the block.
        stack.callback(opened.__exit__, None, None, None)
        tools = portal.call(_list_tools, session, portal, command)
    except TimeoutError as error:
        raise ConfigError(f'--mcp "{command}" did not answer within {START_TIMEOUT_S:g} s') from error
    except (OSError, ValueError) as error:
        raise ConfigError(f'--mcp "{command}" cannot be started: {error}') from error
    except McpError as error:
        raise ConfigError(f'--mcp "{command}" is no MCP server: {_last_line(log) or error}') from error
    if not tools:
        raise ConfigError(f'--mcp "{command}": the server has no tools')
    return tools


@asynccontextmanager
async def _connect(words: Sequence[str], log: TextIO) -> AsyncIterator[ClientSession]:
    if not words:
        raise ValueError("the command is empty")
    server = StdioServerParameters(command=words[0], args=list(words[1:]))
    async with stdio_client(server, errlog=log) as streams, ClientSession(*streams) as session:
        yield session


async def _list_tools(session: ClientSession, portal: BlockingPortal, command: str) -> list[BaseTool]:
    async def call_in_portal(request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        try:
            return await asyncio.wrap_future(portal.start_task_soon(handler, request))
        except (McpError, anyio.ClosedResourceError) as error:
            problem = str(error) or "it has ended"
            raise ToolException(f'the MCP server "{command}" failed: {problem}') from error

    with anyio.fail_after(START_TIMEOUT_S):
        await session.initialize()
        return await load_mcp_tools(session, tool_interceptors=[call_in_portal])


def _last_line(log: TextIO) -> str:
    """What the server wrote last to stderr."""
    log.seek(0)
    return brief_text((log.read().strip().splitlines() or [""])[-1], 300)
