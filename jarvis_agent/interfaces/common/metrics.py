"""Metrics for Prometheus that every server has: requests, and models in memory.

    app.add_middleware(RequestMetrics)
    app.include_router(metrics_routes(loaded_models))        # GET /metrics

Labels are routes and statuses: nothing of a user. Several processes of a server share their numbers through
the files in the directory PROMETHEUS_MULTIPROC_DIR, which must exist when they start.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sized
from time import perf_counter

from fastapi import APIRouter, Response
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    multiprocess,
)
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECONDS = (0.01, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600)
"""Upper bounds of the buckets of durations."""

MODELS = Gauge("jarvis_models_loaded", "Models in memory", multiprocess_mode="livesum")

_METHODS = frozenset({"GET", "POST", "DELETE", "HEAD", "OPTIONS"})
_REQUESTS = Counter("jarvis_http_requests", "HTTP requests", ["method", "route", "status"])
_REQUEST_SECONDS = Histogram(
    "jarvis_http_request_seconds", "Until a response has been sent", ["route"], buckets=SECONDS
)


def metrics_routes(loaded_models: Callable[[], Sized]) -> APIRouter:
    """Return the route `/metrics`, in the text format of Prometheus."""
    router = APIRouter(tags=["metrics"])
    registry = REGISTRY
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]

    @router.get("/metrics")
    def metrics() -> Response:
        """Report the numbers of all processes of this server."""
        MODELS.set(len(loaded_models()))
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return router


class RequestMetrics:
    """ASGI middleware that counts requests by the route that answered them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, began = 500, perf_counter()

        async def counted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._app(scope, receive, counted)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            _REQUESTS.labels(method, route, status).inc()
            _REQUEST_SECONDS.labels(route).observe(perf_counter() - began)
