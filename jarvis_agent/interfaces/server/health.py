"""Whether the server and its parts work: `GET /healthz`, for load balancers and containers.

router = health_routes({"files": partial(is_writable, Path("outputs"))})

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

HealthCheck = Callable[[], Awaitable[None]]
"""Raises an error if a part of the server does not work."""


def health_routes(parts: Mapping[str, HealthCheck]) -> APIRouter:
    """Return the route; `parts` may change later."""
    router = APIRouter(tags=["health"])

    @router.get("/healthz")
    async def healthz() -> JSONResponse:
        """Tell whether the server is up, and which of its parts are."""
        states = {name: await _state(name, check) for name, check in parts.items()}
        works = set(states.values()) <= {"ok"}
        return JSONResponse({"status": "ok" if works else "failing", "parts": states}, 200 if works else 503)

    return router


async def _state(name: str, check: HealthCheck) -> str:
    try:
        await check()
    except Exception as error:
        _logger.error("%s: %s", name, error)
        return "failing"
    return "ok"


async def is_writable(directory: Path) -> None:
    """Write a temporary file there.

    Raises:
        OSError: the directory cannot be written, or its disk is full.
    """
    await asyncio.to_thread(_write, directory)


def _write(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(b"x")
        file.flush()
