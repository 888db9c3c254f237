"""The MCP server's transports: stdio for one client, streamable HTTP for many."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from io import TextIOWrapper
from pathlib import Path

import anyio
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from jarvis_agent.agent.agent import JarvisAgent
from jarvis_agent.core.concurrency import repeating, run_in_daemon_thread
from jarvis_agent.interfaces.common.access import add_middleware, owners_of
from jarvis_agent.interfaces.common.files import SWEEP_S, delete_expired
from jarvis_agent.interfaces.common.limits import BodyLimit, RunLimits, max_json_bytes
from jarvis_agent.interfaces.common.path_filter import PathRedactor, private_directories
from jarvis_agent.interfaces.common.settings import ServerSettings
from jarvis_agent.interfaces.mcp.server import make_server
from jarvis_agent.interfaces.mcp.session import Session


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
        return _session(agent, [own], own)

    logging.getLogger("mcp.server.streamable_http").addFilter(_is_no_session_end)
    limits = RunLimits(settings)
    server = make_server(new_session, lambda request: limits.hold(request.state.owner))
    managers = {
        owner: StreamableHTTPSessionManager(
            server,
            max_request_body_size=max_json_bytes(agent.settings.max_file_bytes),
            max_sessions=settings.max_mcp_sessions,
        )
        for owner in owners_of(key.get_secret_value() for key in settings.api_keys)
    }

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        kept = max(agent.settings.retention, agent.settings.run_timeout)
        delete = partial(asyncio.to_thread, delete_expired, base, kept)
        async with AsyncExitStack() as running:
            await running.enter_async_context(agent)
            for manager in managers.values():
                await running.enter_async_context(manager.run())
            await running.enter_async_context(repeating(delete, SWEEP_S, "the deletion of files"))
            yield

    app = Starlette(routes=[Route("/mcp", _Sessions(managers))], lifespan=lifespan)
    redactor = PathRedactor(base, base, private_directories(agent))
    app.add_middleware(BodyLimit, max_file_bytes=agent.settings.max_file_bytes)
    add_middleware(app, settings, redactor)
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
