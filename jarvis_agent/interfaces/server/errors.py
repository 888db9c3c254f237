"""How a fault of a request reaches its client: a status with our message, also in the middle of a stream.

LangServe answers an exception with a bare "Internal Server Error", so that nothing secret leaks. What is
written for the person who sent the request passes; all else stays as LangServe has it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import ValidationError
from sse_starlette import EventSourceResponse

from jarvis_agent.core.errors import DeadlineError, InputError, JarvisError

TOLD: dict[type[JarvisError], int] = {InputError: 422, DeadlineError: 504}
"""The errors that clients are told, and their status."""


class ErrorReportingRoute(APIRoute):
    """A route whose streams tell the errors of `TOLD`, and where wrong input is the client's fault."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, with its stream and its errors looked through."""
        handle = super().get_route_handler()

        async def telling(request: Request) -> Response:
            if request.method == "POST":
                await _check_body(request)
            try:
                response = await handle(request)
            except ValidationError as error:
                # LangServe translates this in every endpoint but `batch`.
                raise RequestValidationError(error.errors(include_url=False, include_input=False)) from error
            if isinstance(response, EventSourceResponse):
                response.body_iterator = _told(response.body_iterator)
            return response

        return telling


async def _check_body(request: Request) -> None:
    """Refuse a body that is no JSON, which LangServe does with some of them. What was read is kept for it.

    Raises:
        RequestValidationError: it is not in UTF-8, not JSON, or nested too deep; or a number is too long.
    """
    try:
        await request.json()
    except (ValueError, RecursionError) as error:
        raise RequestValidationError([f"the body is no JSON that can be read: {error}"]) from error


async def answer_fault(request: Request, error: Exception) -> Response:
    """The response to an error of `TOLD` outside of a stream."""
    return JSONResponse({"detail": str(error)}, _status(error))


def _status(error: Exception) -> int:
    return next(status for kind, status in TOLD.items() if isinstance(error, kind))


async def _told(events: AsyncIterable[Any]) -> AsyncIterator[Any]:
    """The events of a stream. LangServe sends its "error" event first and raises the error then."""
    bare: Any = None
    try:
        async for event in events:
            if event.get("event") == "error":
                bare = event
            else:
                yield event
    except tuple(TOLD) as error:
        told = {"status_code": _status(error), "message": str(error)}
        yield {"event": "error", "data": json.dumps(told)}
    except Exception:
        if bare is not None:
            yield bare
        raise
