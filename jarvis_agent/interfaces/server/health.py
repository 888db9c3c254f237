"""Whether the server and its parts work: `GET /healthz`, for load balancers and containers.

router = health_routes({"files": partial(asyncio.to_thread, check_writable, Path("outputs"))})

{"status": "ok", "parts": {"files": "ok"}}            # 200
{"status": "failing", "parts": {"files": "failing"}}  # 503; why is in the log, not in the response
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import JSONResponse

_logger = logging.getLogger(__name__)

HealthCheck = Callable[[], Awaitable[object]]
"""Raises an error if a part of the server does not work."""

_CHECK_S = 4.0
"""Longest wait for a part. A container gives both 10 s."""


def health_routes(parts: Mapping[str, HealthCheck]) -> APIRouter:
    """Return the route; `parts` may change later."""
    router = APIRouter(tags=["health"])

    @router.get("/healthz")
    async def healthz() -> JSONResponse:
        """Tell whether the server is up, and which of its parts are."""
        states = {}
        for name, check in parts.items():
            try:
                async with asyncio.timeout(_CHECK_S):
                    await check()
                states[name] = "ok"
            except Exception as error:
                _logger.error("%s: %s", name, str(error) or "no answer")
                states[name] = "failing"
        status = "failing" if "failing" in states.values() else "ok"
        return JSONResponse({"status": status, "parts": states}, 200 if status == "ok" else 503)

    return router


def check_writable(directory: Path) -> None:
    """Write a temporary file there.

    Raises:
        OSError: the directory cannot be written, or its disk is full.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        file.write(b"x")
