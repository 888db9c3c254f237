"""Metrics for Prometheus: requests, runs, tasks, tokens of language models, and models in memory.

Labels are routes, statuses and names of tasks: nothing of a user. Several processes of a server share their
numbers through the files in the directory PROMETHEUS_MULTIPROC_DIR, which must exist when they start.
"""

import os
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from time import perf_counter
from typing import TypeVar

import prometheus_client as prometheus
from fastapi import APIRouter, Request, Response
from langchain_core.messages import ToolMessage
from prometheus_client import Counter, Gauge, Histogram, multiprocess
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jarvis_agent.core.errors import InputError
from jarvis_agent.core.types import TaskResult
from jarvis_agent.execution.run import Event
from jarvis_agent.selection.model_registry import loaded_models

_Called = TypeVar("_Called", ToolMessage, TaskResult)

_SECONDS = (0.01, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600)
"""Upper bounds of the buckets of durations."""

_MODELS = Gauge("jarvis_models_loaded", "Models in memory", multiprocess_mode="livesum")

_METHODS = frozenset({"GET", "POST", "DELETE", "HEAD", "OPTIONS"})
_REQUESTS = Counter("jarvis_http_requests", "HTTP requests", ["method", "route", "status"])
_REQUEST_SECONDS = Histogram(
    "jarvis_http_request_seconds", "Until a response has been sent", ["route"], buckets=_SECONDS
)

_RUNNING = Gauge("jarvis_runs_active", "Runs that have not ended", multiprocess_mode="livesum")
_RUNS = Counter("jarvis_runs", "Ended runs: ok, failed, rejected, waiting or cancelled", ["status"])
_RUN_SECONDS = Histogram("jarvis_run_seconds", "Duration of runs", buckets=_SECONDS)
_TASKS = Counter("jarvis_tasks", "Ended tasks: ok, failed, skipped or cancelled", ["task", "status"])
_TASK_SECONDS = Histogram("jarvis_task_seconds", "Duration of tasks", ["task"], buckets=_SECONDS)
_TOKENS = Counter("jarvis_llm_tokens", "Tokens of language models: input or output", ["direction"])

router = APIRouter(tags=["metrics"])
"""The route `/metrics`. `app.state.loaded_models` returns the models in memory."""


@router.get("/metrics")
def metrics(request: Request) -> Response:
    """Report the numbers of all processes of this server."""
    _MODELS.set(len(request.app.state.loaded_models()))
    registry = prometheus.REGISTRY
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = prometheus.CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return Response(prometheus.generate_latest(registry), media_type=prometheus.CONTENT_TYPE_LATEST)


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


async def observe_run(events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
    """Pass on the events of a run, and count it and its tasks."""
    status, began = "cancelled", perf_counter()
    try:
        with _RUNNING.track_inprogress():
            async with aclosing(events):
                async for event in events:
                    if event.kind == "finished" and (result := event.result):
                        _count_task(result.task.task, result.status, result.ended - result.started)
                    if event.run is not None:
                        status = "ok" if event.run.ok else "failed"
                        for usage in event.run.usage.values():
                            _TOKENS.labels("input").inc(usage.input_tokens)
                            _TOKENS.labels("output").inc(usage.output_tokens)
                    yield event
        status = "waiting" if status == "cancelled" else status
    except Exception as error:
        status = "rejected" if isinstance(error, InputError) else "failed"
        raise
    finally:
        _RUNS.labels(status).inc()
        _RUN_SECONDS.observe(perf_counter() - began)
        _MODELS.set(len(loaded_models()))


async def observe_call(task: str, call: Awaitable[_Called]) -> _Called:
    """Await a call of a task outside a run, and count it."""
    status, began = "cancelled", perf_counter()
    try:
        called = await call
        status = "ok" if called.status in ("ok", "success") else "failed"
        return called
    except Exception:
        status = "failed"
        raise
    finally:
        _count_task(task, status, perf_counter() - began)
        _MODELS.set(len(loaded_models()))


def _count_task(task: str, status: str, seconds: float) -> None:
    _TASKS.labels(task, status).inc()
    _TASK_SECONDS.labels(task).observe(seconds)
