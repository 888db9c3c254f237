"""How a fault of a request reaches its client: status 422 with our message, also in the middle of a stream.

LangServe answers an exception with a bare "Internal Server Error", so that nothing secret leaks. An
InputError is written for the person who sent the request, and passes; all others stay as LangServe has them.
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

from jarvis_agent.errors import InputError

UNPROCESSABLE = 422


class FaultTelling(APIRoute):
    """A route whose streams tell an InputError, and where input that does not fit is the client's fault."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, with its stream and its errors looked through."""
        handle = super().get_route_handler()

        async def telling(request: Request) -> Response:
            try:
                response = await handle(request)
            except ValidationError as error:
                # LangServe translates this in every endpoint but `batch`.
                raise RequestValidationError(error.errors(include_url=False, include_input=False)) from error
            if isinstance(response, EventSourceResponse):
                response.body_iterator = _told(response.body_iterator)
            return response

        return telling


async def answer_input_error(request: Request, error: Exception) -> Response:
    """The response to an InputError outside of a stream."""
    return JSONResponse({"detail": str(error)}, UNPROCESSABLE)


async def _told(events: AsyncIterable[Any]) -> AsyncIterator[Any]:
    """The events of a stream. LangServe sends its "error" event first and raises the error then."""
    bare: Any = None
    try:
        async for event in events:
            if event.get("event") == "error":
                bare = event
            else:
                yield event
    except InputError as error:
        told = {"status_code": UNPROCESSABLE, "message": str(error)}
        yield {"event": "error", "data": json.dumps(told)}
    except Exception:
        if bare is not None:
            yield bare
        raise
