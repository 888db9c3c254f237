"""The ASGI application of the expert server; it needs the extra "serve"."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import StreamingResponse
from starlette.middleware.body_limit import RequestBodyLimitMiddleware

from jarvis_agent import __version__
from jarvis_agent.backends.experts.protocol import PROTOCOL
from jarvis_agent.backends.experts.wire import MAX_LINE_BYTES
from jarvis_agent.core.concurrency import repeating
from jarvis_agent.core.settings import Settings
from jarvis_agent.interfaces.common.access import add_middleware
from jarvis_agent.interfaces.common.limits import RunLimits
from jarvis_agent.interfaces.common.metrics import RequestMetrics, metrics_routes
from jarvis_agent.interfaces.common.settings import ServerSettings
from jarvis_agent.interfaces.experts.runner import Runner

Answer = Callable[[bytes], AsyncGenerator[bytes, None]]
"""A method of a runner."""

IDLE_CHECK_S = 1.0
"""Seconds between looks whether the server is idle."""


def make_app(
    runner: Runner, settings: Settings, server: ServerSettings, idle_s: float | None = None
) -> FastAPI:
    """The application that passes calls to `runner`, and closes it at shutdown.

    Args:
        settings: the largest file, and the tasks of a run at once.
        server: keys, and the runs at once of each, which may have all of their tasks here.
        idle_s: seconds without a call after which the process is interrupted; None: it stays.
    """
    at_once = server.max_concurrent_runs * settings.max_parallel
    limits = RunLimits(
        server.model_copy(update={"max_concurrent_runs": at_once, "runs_per_minute": 60 * at_once})
    )
    running, used = 0, time.monotonic()

    async def end_if_idle() -> None:
        if idle_s is not None and not running and time.monotonic() - used > idle_s:
            signal.raise_signal(signal.SIGINT)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            async with repeating(end_if_idle, IDLE_CHECK_S, "the check for calls"):
                yield
        finally:
            await runner.close()

    app = FastAPI(title="jarvis experts", version=__version__, lifespan=lifespan)
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=settings.max_file_bytes + MAX_LINE_BYTES)
    add_middleware(app, server, None, open_paths=("/healthz",))
    app.add_middleware(RequestMetrics)
    app.include_router(metrics_routes(lambda: runner.models()["loaded"]))

    async def lines(answer: Answer, body: bytes) -> AsyncIterator[bytes]:
        nonlocal running, used
        running += 1
        try:
            async with aclosing(answer(body)) as found:
                async for line in found:
                    yield line
        finally:
            running, used = running - 1, time.monotonic()

    def add_route(path: str, answer: Answer) -> None:
        async def respond(request: Request) -> StreamingResponse:
            return StreamingResponse(
                lines(answer, await request.body()), media_type="application/octet-stream"
            )

        app.add_api_route(
            path, respond, methods=["POST"], response_model=None, dependencies=[Depends(limits.check)]
        )

    add_route("/run", runner.run)
    add_route("/load", runner.load)

    @app.get("/models")
    async def models() -> dict[str, Any]:
        """Tell what is loaded."""
        return {"version": __version__, "protocol": PROTOCOL, **runner.models()}

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Tell that the server is up."""
        return {"status": "ok"}

    return app
