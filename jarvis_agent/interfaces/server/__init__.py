"""The agent over HTTP: `jarvis serve`, or an ASGI application.

    app = create_app(JarvisAgent())             # uvicorn module:app

    name = httpx.post(f"{url}/files", files={"file": open("cat.jpg", "rb")}).json()["name"]
    agent = RemoteRunnable(f"{url}/agent", headers={"X-Thread-Id": uuid4().hex})
    run = Run.model_validate(agent.invoke({"input": "What animal is this?", "files": [name]}))
    made = [httpx.get(url + path.as_posix()).content for result in run.results for path in result.paths()]

Clients upload files; they cannot name files of this machine, and no response holds a path of it: the path of
a result is that of its URL, "/outputs/…". The client chooses the thread id, which should be random; without
one, each request stands alone. With API keys (`ServerSettings.api_keys`), the holder of a key sees only
their own files and threads. Without, every client that reaches the port may use the agent.

The agent's routes are LangServe's (in maintenance; its maintainers recommend LangGraph for new work).
LangServe's licence forbids offering it to third parties as a hosted service. Needs the extra "serve".
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
from collections.abc import Callable, Iterable
from functools import partial
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from jarvis_agent.core.errors import ConfigError, MissingExtraError
from jarvis_agent.interfaces.common.settings import ServerSettings

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import ASGIApp

    from jarvis_agent.agent.agent import JarvisAgent

_NEEDED = ("aiosqlite", "fastapi", "langserve", "limits", "python_multipart", "sse_starlette", "uvicorn")
_SHUTDOWN_S = 30
"""Seconds that requests have to end when the server stops; runs are stored, and can be resumed."""

_HEALTHCHECK_S = 60
"""Seconds without an answer after which a worker is replaced. Starting, or loading a model, may take some."""

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def create_app(
    agent: JarvisAgent, settings: ServerSettings | None = None, *, path: str = "/agent"
) -> FastAPI:
    """Return a web application that serves `agent` and closes it at shutdown.

    Routes: LangServe's below `path`; OpenAI's below `/v1`, unless the agent asks for approval; `/runs` for
    runs that outlive their request; `POST /files` stores an upload; `GET /outputs/{run}/{name}` returns a
    file of a run; `GET /healthz`; `GET /` redirects to the playground.

    Args:
        agent: requests may read uploads, and no other file, whatever its `Settings.allowed_dirs` are. Threads
            are kept in the database of the server, not in the agent's checkpointer.
        settings: keys and limits of clients; None: from the environment.
        path: prefix of the agent's routes.

    Raises:
        MissingExtraError: the extra "serve" is not installed.
        ConfigError: a variable has an invalid value.
    """
    _check_extra()
    from jarvis_agent.interfaces.server.app import make_app

    return make_app(agent, settings or ServerSettings(), path)


def run_server(
    agent: JarvisAgent,
    host: str = "127.0.0.1",
    port: int = 8000,
    settings: ServerSettings | None = None,
    *,
    insecure: bool = False,
) -> None:
    """Serve until interrupted. On a loopback address, requests for or from other hosts are refused.

    Args:
        agent, settings: as for `create_app`.
        host: the address to listen on.
        port: 0 takes a free one.
        insecure: serve without API keys on an address that other machines reach.

    Raises:
        ConfigError: other machines reach the address, and there are no API keys; or the database cannot be
            opened.
        MissingExtraError: the extra "serve" is not installed.
    """
    settings = settings or ServerSettings()
    _check_address(host, settings, insecure=insecure)
    _check_database(agent, settings)
    listen(partial(create_app, agent), host, port, settings, insecure=insecure, shutdown_s=_SHUTDOWN_S)


def run_workers(
    make_agent: Callable[[], JarvisAgent],
    host: str = "127.0.0.1",
    port: int = 8000,
    settings: ServerSettings | None = None,
    *,
    workers: int,
    insecure: bool = False,
) -> None:
    """As `run_server`, in several processes, which share the database.

    Args:
        make_agent: makes the agent of each process, so it can be pickled.
        workers: processes. One that dies is replaced.
    """
    settings = settings or ServerSettings()
    _check_address(host, settings, insecure=insecure)
    with make_agent() as agent:
        _check_database(agent, settings)
    make_app = partial(_make_app, make_agent)
    with TemporaryDirectory(prefix="jarvis-metrics-") as shared:
        os.environ.setdefault("PROMETHEUS_MULTIPROC_DIR", shared)  # where the processes add their numbers
        listen(make_app, host, port, settings, insecure=insecure, shutdown_s=_SHUTDOWN_S, workers=workers)


def _check_extra() -> None:
    if any(find_spec(package) is None for package in _NEEDED):
        raise MissingExtraError("serving the agent over HTTP", "serve")


def _check_address(host: str, settings: ServerSettings, *, insecure: bool) -> str | None:
    """Why any client may use a server at this address, if that is so. Not without `insecure`."""
    if is_loopback(host) or settings.api_keys:
        return None
    why = f"{host} can be reached from other machines, and there is no API key"
    if not insecure:
        raise ConfigError(f"{why}: set JARVIS_API_KEYS, or let any client use this server with --insecure")
    return why


def _check_database(agent: JarvisAgent, settings: ServerSettings) -> None:
    """Open the database once, since uvicorn reports errors of a start with their traceback."""
    _check_extra()
    from jarvis_agent.interfaces.server.database import open_database

    async def check() -> None:
        async with open_database(settings.checkpoints, agent.settings.output_dir, agent.settings.retention):
            pass

    asyncio.run(check())


def _make_app(make_agent: Callable[[], JarvisAgent], settings: ServerSettings) -> FastAPI:
    return create_app(make_agent(), settings)


def listen(
    make_app: Callable[[ServerSettings], ASGIApp],
    host: str,
    port: int,
    settings: ServerSettings | None = None,
    *,
    insecure: bool = False,
    shutdown_s: int | None = None,
    workers: int = 1,
    **options: Any,
) -> None:
    """Serve an application until interrupted; the arguments are those of `run_server`.

    Args:
        make_app: makes the application for the given settings, with the host names of this address.
        shutdown_s: seconds that open connections have to end; None: any time.
        workers: processes. Each of several makes the application for itself.
        options: other arguments of `uvicorn.Config`.
    """
    settings = settings or ServerSettings()
    warning = _check_address(host, settings, insecure=insecure)
    hosts = accepted_hosts(host, settings.allowed_hosts)
    make = partial(make_app, settings.model_copy(update={"allowed_hosts": hosts}))
    options |= {"host": host, "port": port, "timeout_graceful_shutdown": shutdown_s}
    if workers > 1:
        app: Any = make
        options |= {"workers": workers, "factory": True, "timeout_worker_healthcheck": _HEALTHCHECK_S}
    else:
        app = make()
    import uvicorn
    import uvicorn.supervisors

    config = uvicorn.Config(app, **options)
    if warning:
        logging.getLogger("uvicorn.error").warning("%s: any client may use this server", warning)
    if workers > 1:
        uvicorn.supervisors.Multiprocess(config, sockets=[config.bind_socket()]).run()
        return
    uvicorn.Server(config).run()


def accepted_hosts(host: str, named: Iterable[str] = ()) -> tuple[str, ...]:
    """The host names that a server on this address accepts in `Host` and `Origin`; "*": any.

    Where only the names of the settings, `named`, are accepted, those of this machine are too.
    """
    return (*named, *_LOOPBACK, host) if named or is_loopback(host) else ("*",)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
