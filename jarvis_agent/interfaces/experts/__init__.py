"""Local models for any number of agents, over HTTP: `jarvis experts`, or an ASGI application.

    app = create_experts_app(Settings(), ServerSettings())     # uvicorn module:app
    agent = JarvisAgent(settings=Settings(experts="http://127.0.0.1:8765"))

Its routes are the Hub's inference API (`hub_api`), where `PUT` loads a model before its call; `GET /models`,
`/healthz` and `/metrics`. The server reads no path of a client, and runs no code of it. Needs the extra
"serve".
"""

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock

from jarvis_agent.backends.base import Backend
from jarvis_agent.backends.expert_server import ExpertServer, find_background, publish_address, runtime_file
from jarvis_agent.backends.registry import Factory
from jarvis_agent.core.errors import ConfigError, JarvisError, MissingExtraError
from jarvis_agent.core.settings import ServerSettings, Settings
from jarvis_agent.interfaces.common.listen import listen

try:
    from fastapi import FastAPI

    from jarvis_agent.interfaces.experts.app import ExpertRunner, make_app
except ModuleNotFoundError as error:
    raise MissingExtraError("serving local models over HTTP", "serve") from error


def __getattr__(name: str) -> Any:
    """`cluster`, the application for Ray Serve, which needs Ray."""
    if name != "cluster":
        raise AttributeError(name)
    from jarvis_agent.interfaces.experts.ray_serve import cluster

    return cluster


IDLE_S = 3600.0
"""Seconds without a call after which a background server ends."""


def create_experts_app(
    settings: Settings,
    server: ServerSettings | None = None,
    *,
    backends: Iterable[Backend | Factory] | None = None,
    idle_s: float | None = None,
) -> FastAPI:
    """Return a web application that runs local models for agents.

    Args:
        settings: what the models may do and need.
        server: keys and limits of clients; None: from the environment.
        backends: as for an agent; the local ones of them run calls.
        idle_s: seconds without a call after which the process is interrupted; None: it stays.

    Raises:
        ConfigError: a variable has an invalid value.
    """
    return make_app(ExpertRunner(settings, backends), server or ServerSettings(), idle_s)


def run_experts(
    settings: Settings,
    host: str = "127.0.0.1",
    port: int = 8765,
    *,
    insecure: bool = False,
    idle_s: float | None = None,
    announce: bool = False,
) -> None:
    """Serve until interrupted.

    Args:
        settings, idle_s: as for `create_experts_app`.
        insecure: serve without API keys on an address that other machines reach.
        announce: let the agents of this user find the server, with its first key.

    Raises:
        ConfigError: other machines reach the address, and there are no API keys; or a server is announced.
    """
    server = ServerSettings()
    make = partial(create_experts_app, settings, idle_s=idle_s)
    key = server.api_keys[0].get_secret_value() if server.api_keys else None
    with publish_address(f"http://{host}:{port}", key) if announce else nullcontext():
        listen(make, host, port, server, insecure=insecure, shutdown_s=10)


def start_background(idle_s: float) -> ExpertServer:
    """Start a server for this user, unless it runs, and return it. It ends after `idle_s` without a call.

    Raises:
        ConfigError: it does not start; the message has the last line of its log, or the reason.
    """
    log = runtime_file().with_suffix(".log")
    try:
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(log.with_suffix(".start")):  # of several that start one at once, the first does
            return find_background() or _start(log, idle_s)
    except OSError as error:
        raise ConfigError(f"{log.parent} cannot be written ({error}); set XDG_RUNTIME_DIR") from error


def _start(log: Path, idle_s: float) -> ExpertServer:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "jarvis_agent", "experts", "--announce"]
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603
            [*command, "--port", str(port), "--idle", str(idle_s)],
            env=os.environ | {"JARVIS_API_KEYS": secrets.token_urlsafe(32)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    while process.poll() is None:
        if server := find_background():
            with suppress(JarvisError):  # its address is published before it listens
                server.status()
                return server
        time.sleep(0.1)
    last = (log.read_text(errors="replace").strip().splitlines() or [""])[-1]
    raise ConfigError(f"the expert server does not start: {last} ({log})")
