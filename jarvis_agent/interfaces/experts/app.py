"""The ASGI application of the expert server; it needs the extra "serve"."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.responses import JSONResponse, Response

from jarvis_agent import __version__
from jarvis_agent.core.concurrency import MAX_PARALLEL, repeating
from jarvis_agent.core.settings import ServerSettings
from jarvis_agent.interfaces.common.access import add_middleware
from jarvis_agent.interfaces.common.disconnect import unless_disconnected
from jarvis_agent.interfaces.common.limits import MAX_JSON_BYTES, RunLimits
from jarvis_agent.interfaces.common.metrics import RequestMetrics, metrics_routes
from jarvis_agent.interfaces.experts.hub_api import InferenceRequest
from jarvis_agent.interfaces.experts.runner import ExpertRunner

IDLE_CHECK_S = 1.0
"""Seconds between looks whether the server is idle."""


def make_app(runner: ExpertRunner, server: ServerSettings, idle_s: float | None = None) -> FastAPI:
    """The application that passes calls to `runner`, and closes it at shutdown; `idle_s` as its callers."""
    # The runs of a client may have all of their tasks here.
    at_once = server.max_concurrent_runs * MAX_PARALLEL
    enough = {"max_concurrent_runs": at_once, "runs_per_minute": 60 * at_once}
    calls = RunLimits(server.model_copy(update=enough))

    async def interrupt_if_idle() -> None:
        if idle_s is not None and calls.idle_s() > idle_s:
            signal.raise_signal(signal.SIGINT)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            async with repeating(interrupt_if_idle, IDLE_CHECK_S, "the check for calls"):
                yield
        finally:
            await runner.close()

    app = FastAPI(title="jarvis experts", version=__version__, lifespan=lifespan)
    limit = runner.settings.max_file_bytes * 4 // 3 + MAX_JSON_BYTES  # files in JSON are base64
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
