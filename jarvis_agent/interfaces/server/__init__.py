"""The agent over HTTP: `jarvis serve`, or an ASGI application.

    app = create_app(JarvisAgent())             # uvicorn module:app
    agent = RemoteRunnable(f"{url}/agent", headers={"X-Thread-Id": uuid4().hex})

Clients upload files; they cannot name files of this machine, and no response holds a path of it. The client
chooses the thread id, which should be random; without one, each request stands alone. With API keys
(`ServerSettings.api_keys`), the holder of a key sees only their own files and threads. Without, every client
that reaches the port may use the agent. LangServe, whose routes the agent has, is in maintenance, and its
licence forbids offering it to third parties as a hosted service. Needs the extra "serve".
"""

import asyncio
import os
from collections.abc import Callable
from functools import partial
from tempfile import TemporaryDirectory

from jarvis_agent.agent.agent import JarvisAgent
from jarvis_agent.core.errors import MissingExtraError
from jarvis_agent.core.settings import ServerSettings
from jarvis_agent.interfaces.common.listen import check_address, listen

try:
    import python_multipart  # noqa: F401 - FastAPI looks for it when it meets a form
    from fastapi import FastAPI

    from jarvis_agent.interfaces.server.app import create_app
    from jarvis_agent.interfaces.server.database import open_database
except ModuleNotFoundError as error:
    raise MissingExtraError("serving the agent over HTTP", "serve") from error

__all__ = ["create_app", "run_server"]


def run_server(
    make_agent: Callable[[], JarvisAgent],
    host: str = "127.0.0.1",
    port: int = 8000,
    settings: ServerSettings | None = None,
    *,
    workers: int = 1,
    insecure: bool = False,
) -> None:
    """Serve until interrupted. On a loopback address, requests for or from other hosts are refused.

    Args:
        make_agent: makes the agent of each process; with several, it can be pickled.
        host: the address to listen on.
        port: 0 takes a free one.
        settings: as for `create_app`.
        workers: processes, which share the database. One that dies is replaced.
        insecure: serve without API keys on an address that other machines reach.

    Raises:
        ConfigError: other machines reach the address, and there are no API keys; or the database cannot be
            opened.
    """
    settings = settings or ServerSettings()
    check_address(host, settings, insecure=insecure)
    # Once before, since uvicorn reports errors of a start with their traceback.
    asyncio.run(_check_database(make_agent(), settings))
    with TemporaryDirectory(prefix="jarvis-metrics-") as shared:
        if workers > 1:
            os.environ.setdefault("PROMETHEUS_MULTIPROC_DIR", shared)  # where the processes add their numbers
        make = partial(_make_app, make_agent)
        # Runs are stored, and can be resumed.
        listen(make, host, port, settings, insecure=insecure, shutdown_s=30, workers=workers)


async def _check_database(agent: JarvisAgent, settings: ServerSettings) -> None:
    async with agent, open_database(settings.checkpoints, agent.settings.output_dir, settings.retention):
        pass


def _make_app(make_agent: Callable[[], JarvisAgent], settings: ServerSettings) -> FastAPI:
    return create_app(make_agent(), settings)
