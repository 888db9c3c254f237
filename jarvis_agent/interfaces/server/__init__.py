"""The agent over HTTP: `jarvis serve`, or an ASGI application.

    app = create_app(JarvisAgent())             # uvicorn module:app

    name = httpx.post(f"{url}/files", files={"file": open("cat.jpg", "rb")}).json()["name"]
    agent = RemoteRunnable(f"{url}/agent", headers={"X-Thread-Id": uuid4().hex})
    run = Run.model_validate(agent.invoke({"input": "What animal is this?", "files": [name]}))
    made = [httpx.get(url + path.as_posix()).content for result in run.results for path in result.paths()]

Clients upload files; they cannot name files of this machine, and no response holds a path of it: the path of
a result is that of its URL, "/outputs/…". Names of uploads and runs are random and grant
access. The client chooses the thread id, which should be random too; without one, each request stands alone.
There is no login: every client that reaches the port may use the agent.

The agent's routes are LangServe's (in maintenance; its maintainers recommend LangGraph for new work).
LangServe's licence forbids offering it to third parties as a hosted service. Needs the extra "serve".
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from jarvis_agent.core.errors import MissingExtraError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from jarvis_agent.agent.agent import JarvisAgent

_NEEDED = ("fastapi", "langserve", "python_multipart", "sse_starlette", "uvicorn")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def create_app(agent: JarvisAgent, *, path: str = "/agent", allowed_hosts: Sequence[str] = ("*",)) -> FastAPI:
    """Return a web application that serves `agent` and closes it at shutdown.

    Routes: LangServe's below `path`; OpenAI's below `/v1`, unless the agent asks for approval; `POST /files`
    stores an upload; `GET /outputs/{run}/{name}` returns a file of a run; `GET /health`; `GET /` redirects to
    the playground.

    Args:
        agent: requests may read uploads, and no other file, whatever its `Settings.allowed_dirs` are.
        path: prefix of the agent's routes.
        allowed_hosts: host names accepted in the headers `Host` and `Origin`; "*": any.

    Raises:
        MissingExtraError: the extra "serve" is not installed.
    """
    if any(find_spec(package) is None for package in _NEEDED):
        raise MissingExtraError("serving the agent over HTTP", "serve")
    from jarvis_agent.interfaces.server.app import make_app

    return make_app(agent, path, allowed_hosts)


def run_server(agent: JarvisAgent, host: str = "127.0.0.1", port: int = 8000) -> None:
    """Serve until interrupted. On a loopback address, requests for or from other hosts are refused.

    Raises:
        MissingExtraError: the extra "serve" is not installed.
    """
    app = create_app(agent, allowed_hosts=accepted_hosts(host))
    import uvicorn

    config = uvicorn.Config(app, host=host, port=port)
    if not _is_loopback(host):
        logging.getLogger("uvicorn.error").warning(
            "%s can be reached from other machines, and there is no API key: any client may use this server",
            host,
        )
    uvicorn.Server(config).run()


def accepted_hosts(host: str) -> tuple[str, ...]:
    """The host names that a server on this address accepts in `Host` and `Origin`; "*": any."""
    return (*_LOOPBACK, host) if _is_loopback(host) else ("*",)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
