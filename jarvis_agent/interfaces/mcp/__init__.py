"""The tools and the agent for MCP clients, over stdio or streamable HTTP: `jarvis mcp`.

    run_stdio(JarvisAgent())                             # the client starts this process
    run_http(JarvisAgent(), "127.0.0.1", 8000)           # http://127.0.0.1:8000/mcp

A client sees one tool for each task that can run here, and "jarvis", which takes a request in words. Images
and audio are content blocks; other files are resource links, which the session that made them may read.

Over stdio, requests may read the working directory, `Settings.allowed_dirs` and the output directory. Over
HTTP they may read what their own session made, public URLs and data URIs, and no other file. There is no
login: every client that reaches the port may use the agent. Needs the extra "mcp".
"""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import TYPE_CHECKING

from jarvis_agent.core.errors import MissingExtraError

if TYPE_CHECKING:
    from jarvis_agent.agent.agent import JarvisAgent


def run_stdio(agent: JarvisAgent) -> None:
    """Serve the client that started this process until it closes stdin; then close `agent`.

    Stdout carries the protocol alone: while this runs, all other output of the process goes to stderr.

    Raises:
        MissingExtraError: the extra "mcp" is not installed.
    """
    _check_extra()
    from jarvis_agent.interfaces.mcp.transports import serve_stdio

    asyncio.run(serve_stdio(agent))


def run_http(agent: JarvisAgent, host: str = "127.0.0.1", port: int = 8000) -> None:
    """Serve over streamable HTTP at `/mcp` until interrupted; then close `agent`.

    On a loopback address, requests for or from other hosts are refused.

    Raises:
        MissingExtraError: the extra "mcp" is not installed.
        SystemExit: the port cannot be listened on.
    """
    _check_extra()
    from jarvis_agent.interfaces.mcp.transports import serve_http

    serve_http(agent, host, port)


def _check_extra() -> None:
    if any(find_spec(package) is None for package in ("mcp", "uvicorn")):
        raise MissingExtraError("serving MCP clients", "mcp")
