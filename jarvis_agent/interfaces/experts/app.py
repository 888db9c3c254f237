"""The ASGI application of the expert server; it needs the extra "serve"."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.responses import JSONResponse, Response

from jarvis_agent import __version__
from jarvis_agent.core.concurrency import MAX_PARALLEL, repeating
from jarvis_agent.core.settings import ServerSettings, Settings
from jarvis_agent.interfaces.common.access import add_middleware
from jarvis_agent.interfaces.common.disconnect import unless_disconnected
from jarvis_agent.interfaces.common.limits import MAX_JSON_BYTES, RunLimits
from jarvis_agent.interfaces.common.metrics import RequestMetrics, metrics_routes
from jarvis_agent.interfaces.experts.hub_api import InferenceRequest
from jarvis_agent.interfaces.experts.runner import ExpertRunner

IDLE_CHECK_S = 1.0
"""Seconds between looks whether the server is idle."""


class Calls(RunLimits):
    """Counts the calls that are answered, within the limits of each client."""

    def __init__(self, settings: Settings, server: ServerSettings) -> None:
        """A run of a client may have all of its tasks here."""
        at_once = server.max_concurrent_runs * MAX_PARALLEL
        limits = {"max_concurrent_runs": at_once, "runs_per_minute": 60 * at_once}
        super().__init__(server.model_copy(update=limits))
        self._ended = time.monotonic()

    @contextmanager
    def hold(self, owner: str, runs: int = 1) -> Iterator[None]:
        """As RunLimits."""
        with super().hold(owner, runs):
            try:
                yield
            finally:
                self._ended = time.monotonic()

    async def interrupt_after(self, idle_s: float | None) -> None:
        """Interrupt the process if there was no call for so many seconds."""
        if idle_s is not None and not self._running.total() and time.monotonic() - self._ended > idle_s:
            signal.raise_signal(signal.SIGINT)


def make_app(runner: ExpertRunner, server: ServerSettings, idle_s: float | None = None) -> FastAPI:
    """The application that passes calls to `runner`, and closes it at shutdown.

    Args:
        server: keys, and the runs at once of each, which may have all of their tasks here.
        idle_s: seconds without a call after which the process is interrupted; None: it stays.
    """
    settings, calls = runner.settings, Calls(runner.settings, server)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            check = partial(calls.interrupt_after, idle_s)
            async with repeating(check, IDLE_CHECK_S, "the check for calls"):
                yield
        finally:
            await runner.close()

    app = FastAPI(title="jarvis experts", version=__version__, lifespan=lifespan)
    limit = settings.max_file_bytes * 4 // 3 + MAX_JSON_BYTES  # files in JSON are base64
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=limit)
    add_middleware(app, server, open_paths=("/healthz",))
    app.add_middleware(RequestMetrics)
    app.include_router(metrics_routes(lambda: runner.models()["loaded"]))

    @app.post("/models/{model:path}")
    async def infer(request: Request) -> Response:
        """Run a model, within the limits of the client. If it goes, the call ends."""
        model, _, task = request.path_params["model"].partition("/pipeline/")
        try:
            with calls.hold(request.state.owner):
                mime = request.headers.get("content-type", "").partition(";")[0]
                parameters = request.query_params.get("parameters", "{}")
                asked = InferenceRequest(model, task, await request.body(), mime, parameters)
                return await unless_disconnected(request, runner.answer(asked))
        except HTTPException as error:
            return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    @app.get("/models")
    async def models() -> dict[str, Any]:
        """Tell what is loaded."""
        return {"version": __version__, **runner.models()}

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Tell that the server is up."""
        return {"status": "ok"}

    return app
