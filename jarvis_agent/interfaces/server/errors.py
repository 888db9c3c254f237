"""Errors of a request as HTTP responses, and LangServe's serializer extended to errors in events.

LangServe answers every exception with "Internal Server Error", so that nothing secret leaks. Errors in the
request (`STATUSES`) are reported with their own message; all others stay as LangServe has them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from langserve.serialization import WellKnownLCSerializer
from pydantic import BaseModel, ValidationError
from sse_starlette import EventSourceResponse

from jarvis_agent.core.errors import DeadlineError, InputError, JarvisError
from jarvis_agent.core.types import Candidate

STATUSES: dict[type[JarvisError], int] = {InputError: 422, DeadlineError: 504}
"""The errors whose message is sent to clients, with the HTTP status."""


class ErrorReportingRoute(APIRoute):
    """A route that reports malformed input as 422, and the errors of `STATUSES` also inside a stream."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler, wrapped."""
        handle = super().get_route_handler()

        async def reporting(request: Request) -> Response:
            if request.method == "POST":
                await _check_body(request)
            try:
                response = await handle(request)
            except ValidationError as error:  # LangServe catches it everywhere but in `batch`.
                raise RequestValidationError(error.errors(include_url=False, include_input=False)) from error
            if isinstance(response, EventSourceResponse):
                response.body_iterator = _with_messages(response.body_iterator)
            return response

        return reporting


async def _check_body(request: Request) -> None:
    """Refuse a body that is not JSON, which LangServe answers with 500 on some routes."""
    try:
        await request.json()
    except (ValueError, RecursionError) as error:
        raise RequestValidationError([f"the body is not valid JSON: {error}"]) from error


async def error_response(request: Request, error: Exception) -> Response:
    """Return the response to an error of `STATUSES` outside of a stream."""
    return JSONResponse({"detail": str(error)}, _status(error))


def _status(error: Exception) -> int:
    return next(status for kind, status in STATUSES.items() if isinstance(error, kind))


async def _with_messages(events: AsyncIterable[Any]) -> AsyncIterator[Any]:
    """Replace LangServe's bare "error" event, which it sends just before it raises the error."""
    bare: Any = None
    try:
        async for event in events:
            if event.get("event") == "error":
                bare = event
            else:
                yield event
    except tuple(STATUSES) as error:
        content = {"status_code": _status(error), "message": str(error)}
        yield {"event": "error", "data": json.dumps(content)}
    except Exception:
        if bare is not None:
            yield bare
        raise


class RunSerializer(WellKnownLCSerializer):  # type: ignore[misc]
    """LangServe's serializer for events too: its own raises on the exception in an "on_tool_error" event.

    It leaves out where a candidate's weights are, and the addresses in its metadata.
    """

    def dumps(self, obj: Any) -> bytes:
        """Return `obj` as JSON. Of an exception or an unknown object only the type is named."""
        return orjson.dumps(obj, default=_to_plain, option=orjson.OPT_NON_STR_KEYS)


def _without_places(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_without_places(item) for item in value]
    if not isinstance(value, dict):
        return value
    hidden = {"path", "metadata"} if Candidate.model_fields.keys() <= value.keys() else set()
    return {key: _without_places(item) for key, item in value.items() if key not in hidden}


def _to_plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return _without_places(value.model_dump())
    return str(value) if isinstance(value, Path | JarvisError) else f"<{type(value).__name__}>"
