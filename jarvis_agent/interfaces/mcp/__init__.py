"""The tools and the agent for MCP clients, over stdio or streamable HTTP: `jarvis mcp`.

A client sees one tool for each task that can run here, and "jarvis", which takes a request in words. Images
are content blocks, sound is an embedded resource; large and other files are links, which the client reads.

Over stdio, requests may read the working directory, `Settings.allowed_dirs` and the output directory. Over
HTTP they may read what their own API key made, public URLs and data URIs, and no other file. HTTP
clients need a key, if there are any (`ServerSettings.api_keys`). Needs the extra "mcp".
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from jarvis_agent.core.settings import ServerSettings, Settings
from jarvis_agent.interfaces.common.listen import check_extra, listen

if TYPE_CHECKING:
    from jarvis_agent.agent.agent import JarvisAgent

_check_extra = partial(check_extra, "serving MCP clients", "mcp", "limits", "mcp", "uvicorn")


def client_settings(settings: Settings, options: Sequence[str] = ()) -> str:
    """Return the JSON that makes each client in clients.txt start `jarvis mcp` with these options.

    Clients start it in any directory: it reads `Settings.allowed_dirs`, else the working directory of now.
    """
    folders = [path.expanduser().absolute() for path in settings.allowed_dirs] or [Path.cwd()]
    server = {
        "command": sys.executable,
        "args": ["-m", "jarvis_agent", "mcp", *options],
        "env": {
            "JARVIS_ALLOWED_DIRS": os.pathsep.join(map(str, folders)),
            "JARVIS_OUTPUT_DIR": str(settings.output_dir.absolute()),
        },
    }
    template = files(__package__).joinpath("clients.txt").read_text(encoding="utf-8")
    return Template(template.strip()).substitute(server=json.dumps(server, indent=2))


def run_stdio(agent: JarvisAgent) -> None:
    """Serve the client that started this process until it closes stdin; then close `agent`.

    Stdout carries the protocol alone: while this runs, all other output of the process goes to stderr.
    """
    _check_extra()
    from jarvis_agent.interfaces.mcp.server import serve_stdio

    asyncio.run(serve_stdio(agent))


def run_http(
    agent: JarvisAgent,
    host: str = "127.0.0.1",
    port: int = 8000,
    settings: ServerSettings | None = None,
    *,
    insecure: bool = False,
) -> None:
    """Serve over streamable HTTP at `/mcp` until interrupted; then close `agent`.

    Keys, host names and the arguments are those of `jarvis_agent.interfaces.server.run_server`.

    Raises:
        ConfigError: other machines reach the address, and there are no API keys.
        SystemExit: the port cannot be listened on.
    """
    _check_extra()
    from jarvis_agent.interfaces.mcp.server import make_http_app

    # A client's stream for notifications stays open until one of both ends it.
    listen(partial(make_http_app, agent), host, port, settings, insecure=insecure, shutdown_s=5)
