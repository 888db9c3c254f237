"""The agent over HTTP: `jarvis serve`, or an app of your own.

    app = create_app(JarvisAgent())             # uvicorn module:app

    name = httpx.post(f"{url}/files", files={"file": open("cat.jpg", "rb")}).json()["name"]
    agent = RemoteRunnable(f"{url}/agent", headers={"X-Thread-Id": uuid4().hex})
    run = Run.model_validate(agent.invoke({"input": "What animal is this?", "files": [name]}))
    made = [httpx.get(url + output_url(file.path)).content for file in run.resources if file.path]

Clients send files; the files of this machine are not theirs to name. Names of uploads and of runs can not be
guessed, and whoever has one may use it; a thread id is chosen by the client, so let it be random too. Without
one each request stands alone. There is no login: whoever reaches the port may use the agent.

The routes of the agent are LangServe's, which is in maintenance: it is mended but no longer grows, and its
makers point to LangGraph for new work. It needs the extra "serve".
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from jarvis_agent.core.errors import MissingExtraError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from jarvis_agent.agent.agent import JarvisAgent

_NEEDED = ("fastapi", "langserve", "python_multipart", "sse_starlette", "uvicorn")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def create_app(agent: JarvisAgent, *, path: str = "/agent", allowed_hosts: Sequence[str] = ("*",)) -> FastAPI:
    """A web application that serves `agent`, and closes it at the end.

    Routes: LangServe's below `path`; `POST /files` stores an upload and tells its name for a request's
    `files`; `GET /outputs/{run}/{name}` gives a file that a run made; `GET /health`;
    `GET /` leads to the playground.

    Args:
        agent: served with `confined`, so it reads uploads and what the settings allow, and nothing else.
        path: where the agent's routes begin.
        allowed_hosts: names of this server that the header Host may give, and the header Origin, by which a
            browser says from where the page is that sends the request; "*": any.

    Raises:
        MissingExtraError: the extra "serve" is not installed.
    """
    _require()
    from jarvis_agent.interfaces.server.app import make_app

    return make_app(agent, path, allowed_hosts)


def run_server(agent: JarvisAgent, host: str = "127.0.0.1", port: int = 8000) -> None:
    """Serve until interrupted.

    On a loopback address, requests for other host names are refused, and what pages of other hosts send.

    Raises:
        MissingExtraError: the extra "serve" is not installed.
    """
    # Any page of the web can have the browser of its visitor speak with this machine.
    app = create_app(agent, allowed_hosts=(*_LOOPBACK, host) if _is_loopback(host) else ("*",))
    import uvicorn

    uvicorn.Server(uvicorn.Config(app, host=host, port=port)).run()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def output_url(path: Path | str) -> str:
    """Where the server of a Run gives the file that the Run calls `path`: "/outputs/<run>/<name>"."""
    run, name = re.split(r"[\\/]", str(path))[-2:]
    return f"/outputs/{quote(run)}/{quote(name)}"


def _require() -> None:
    if any(find_spec(package) is None for package in _NEEDED):
        raise MissingExtraError("serving the agent over HTTP", "serve")
