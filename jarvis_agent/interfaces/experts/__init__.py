"""Local models for any number of agents, over HTTP: `jarvis experts`, or an ASGI application.

    app = create_experts_app(Settings(), ServerSettings())     # uvicorn module:app
    agent = JarvisAgent(settings=Settings(experts="http://127.0.0.1:8765"))

Its routes are the Hub's inference API (`hub_api`), `GET /models`, `/healthz` and `/metrics`. The server reads
no path of a client, and runs no code of it. Needs the extra "serve".
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

from jarvis_agent.backends.base import Backend
from jarvis_agent.backends.registry import Factory
from jarvis_agent.core.errors import MissingExtraError
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


def create_experts_app(
    settings: Settings,
    server: ServerSettings | None = None,
    *,
    backends: Iterable[Backend | Factory] | None = None,
) -> FastAPI:
    """Return a web application that runs local models for agents.

    Args:
        settings: what the models may do and need.
        server: keys and limits of clients; None: from the environment.
        backends: as for an agent; the local ones of them run calls.

    Raises:
        ConfigError: a variable has an invalid value.
    """
    return make_app(ExpertRunner(settings, backends), server or ServerSettings())


def run_experts(
    settings: Settings, host: str = "127.0.0.1", port: int = 8765, *, insecure: bool = False
) -> None:
    """Serve until interrupted; `insecure`: without API keys, although other machines reach the address.

    ConfigError: other machines reach the address, there are no API keys, and it is not `insecure`.
    """
    listen(partial(create_experts_app, settings), host, port, insecure=insecure, shutdown_s=10)
