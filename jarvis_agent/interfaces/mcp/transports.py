"""The MCP server's transports: stdio for one client, streamable HTTP for many."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from io import TextIOWrapper
from pathlib import Path

import anyio
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.routing import Route

from jarvis_agent.agent.agent import JarvisAgent
from jarvis_agent.core.concurrency import run_in_daemon_thread
from jarvis_agent.interfaces.mcp.server import make_server
from jarvis_agent.interfaces.mcp.session import Session
from jarvis_agent.interfaces.server import accepted_hosts
from jarvis_agent.interfaces.server.files import delete_expired
from jarvis_agent.interfaces.server.origin import OriginCheck
from jarvis_agent.interfaces.server.path_filter import PathRedactor, private_directories

_FORM_BYTES = 64 * 1024
_SWEEP_INTERVAL_S = 60.0
_SHUTDOWN_S = 5


async def serve_stdio(agent: JarvisAgent) -> None:
    """As `run_stdio`, in a running event loop."""
    settings = agent.settings
    roots = [*_working_directory(), *settings.allowed_dirs, settings.output_dir]
    server = make_server(lambda: Session(agent, roots, settings.output_dir))
    with _protocol_streams() as (stdin, stdout):
        async with agent, stdio_server(_lines(stdin), anyio.wrap_file(stdout)) as (read, write):  # type: ignore[arg-type]
            await server.run(read, write, server.create_initialization_options())


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


def make_http_app(agent: JarvisAgent, allowed_hosts: Sequence[str] = ("*",)) -> Starlette:
    """Return a web application that serves `agent` at `/mcp` and closes it at shutdown.

    Each session has a directory of its own, and reads nothing else.

    Args:
        agent: the agent; its `Settings.allowed_dirs` are not for clients.
        allowed_hosts: host names accepted in the headers `Host` and `Origin`; "*": any.
    """
    settings = agent.settings
    base = settings.output_dir.absolute() / "mcp"

    def new_session() -> Session:
        own = base / secrets.token_hex(16)
        redactor = PathRedactor(runs=own, uploads=base / "none", private=private_directories(agent))
        return Session(agent, [own], own, redactor.clean)

    manager = StreamableHTTPSessionManager(
        make_server(new_session),
        # A file in an argument is base64, which is a third larger.
        max_request_body_size=settings.max_file_bytes * 4 // 3 + _FORM_BYTES,
    )

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        sweeping = asyncio.create_task(_sweep(base, max(settings.retention, settings.run_timeout)))
        try:
            async with agent, manager.run():
                yield
        finally:
            sweeping.cancel()

    hosts = [f"[{host}]" if ":" in host else host for host in allowed_hosts]  # IPv6, as `Host` has it
    return Starlette(
        routes=[Route("/mcp", endpoint=manager.asgi_app)],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False),
            Middleware(OriginCheck, allowed_hosts=allowed_hosts),
        ],
        lifespan=lifespan,
    )


async def _sweep(directory: Path, seconds: float) -> None:
    """Delete the directories of sessions to which nothing was written for `seconds`."""
    while True:
        await asyncio.to_thread(delete_expired, directory, seconds)
        await asyncio.sleep(_SWEEP_INTERVAL_S)


def serve_http(agent: JarvisAgent, host: str, port: int) -> None:
    """As `run_http`."""
    import uvicorn

    allowed = accepted_hosts(host)
    app = make_http_app(agent, allowed)
    config = uvicorn.Config(app, host=host, port=port, timeout_graceful_shutdown=_SHUTDOWN_S)
    if "*" in allowed:
        logging.getLogger("uvicorn.error").warning(
            "%s can be reached from other machines, and there is no login: any client may use this server",
            host,
        )
    uvicorn.Server(config).run()
