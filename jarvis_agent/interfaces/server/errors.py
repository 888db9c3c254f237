"""Errors of a request as HTTP responses, and LangServe's serializer extended to errors in events.

Errors in the request (`STATUSES`) are reported with their own message; all others stay as LangServe has them:
"Internal Server Error". A full disk is answered with 507 wherever it is found.
"""

import errno
import json
import logging
import re
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
from starlette.exceptions import HTTPException

from jarvis_agent.core.errors import DeadlineError, InputError, JarvisError, TooLongError, public_message
from jarvis_agent.core.notes import PUBLIC
from jarvis_agent.core.types import Candidate
from jarvis_agent.interfaces.common.access import openai_error
from jarvis_agent.interfaces.common.limits import unless_disconnected
from jarvis_agent.interfaces.common.uploads_and_outputs import PublicNames
from jarvis_agent.interfaces.server.database import DATABASE_ERRORS, DatabaseFileError

_logger = logging.getLogger(__name__)

_LOG_PATH = re.compile(
    r"/logs/(.+?)((?:/(?:streamed_output|streamed_output_str|final_output|end_time)(?:/-)?)?)"
)

STATUSES: dict[type[JarvisError], int] = {TooLongError: 413, InputError: 422, DeadlineError: 504}
"""The errors whose message is sent to clients, with the HTTP status; the first that fits counts."""


class ErrorReportingRoute(APIRoute):
    """A route that reports malformed input as 422, and the errors of `STATUSES` also inside a stream."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def reporting(request: Request) -> Response:
            if request.method != "POST":
                return await handle(request)
            try:
                await request.json()
            except ValueError as error:  # LangServe answers with 500 on some routes.
                raise HTTPException(422, f"the body is not valid JSON: {error}") from error
            try:
                response = await unless_disconnected(request, handle(request))
            except ValidationError as error:  # LangServe catches it everywhere but in `batch`.
                raise RequestValidationError(error.errors()) from error
            if isinstance(response, EventSourceResponse):
                response.body_iterator = _with_messages(response.body_iterator)
            return response

        return reporting


async def error_response(request: Request, error: Exception) -> Response:
    """Return the response to an error outside of a stream."""
    known = http_error_of(error)
    content = {"detail": known.detail}
    root = request.scope.get("root_path", "")
    if f"{request.url.path}/".startswith(f"{root}/v1/"):  # there clients of OpenAI's read errors
        message = f"{request.method} {request.url.path}: {known.detail}"
        if known.status_code in (404, 405):
            paths = request.app.openapi()["paths"]
            names = [f"{way.upper()} {root}{path}" for path in paths if "/v1/" in path for way in paths[path]]
            message += f"; there are {', '.join(names)}"
        content = openai_error(known.status_code, message)
    return JSONResponse(content, known.status_code, known.headers)


async def invalid_request_response(request: Request, error: RequestValidationError) -> Response:
    """Return the response to a body of the wrong form, which it does not repeat, unlike FastAPI's.

    The body may be a whole file, and hold what JSON or UTF-8 cannot: not a number, half a character.
    """
    problems = [{key: problem[key] for key in ("type", "loc", "msg")} for problem in error.errors()]
    return Response(json.dumps({"detail": problems}), 422, media_type="application/json")


EXCEPTION_HANDLERS: dict[int | type[Exception], Any] = {
    **dict.fromkeys((*STATUSES, *DATABASE_ERRORS, HTTPException), error_response),
    RequestValidationError: invalid_request_response,
}


def http_error_of(error: Exception, what: str = "a request") -> HTTPException:
    """An error with its status and its message for clients. What is not their business is only logged."""
    if _is_disk_full(error):  # FastAPI raises an HTTPException if it cannot store the files of a form
        return HTTPException(507, "the disk of the server is full; try again later")
    if isinstance(error, HTTPException):
        return error
    if isinstance(error, DATABASE_ERRORS):
        _logger.warning("the database: %s", error)
        if isinstance(error, DatabaseFileError):
            return HTTPException(503, "the database of this server is gone; the server must be started again")
        why = "the database of this server does not answer; nothing is lost, try again in some seconds"
        return HTTPException(503, why, {"Retry-After": "5"})
    for kind, status in STATUSES.items():
        if isinstance(error, kind):
            return HTTPException(status, public_message(error))
    _logger.error("%s failed", what, exc_info=error)
    return HTTPException(500, "Internal Server Error")


def _is_disk_full(error: BaseException | None) -> bool:
    """Whether a lack of disk space has caused an error, also that of SQLite or PostgreSQL."""
    if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
        return True
    if getattr(error, "sqlite_errorname", "") == "SQLITE_FULL" or getattr(error, "sqlstate", "") == "53100":
        return True
    return error is not None and _is_disk_full(error.__cause__)


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
        known = http_error_of(error)
        content = {"status_code": known.status_code, "message": known.detail}
        yield {"event": "error", "data": json.dumps(content)}
    except Exception:
        if bare is not None:
            yield bare
        raise


class RunSerializer(WellKnownLCSerializer):  # type: ignore[misc]
    """LangServe's serializer for events too: its own raises on the exception in an "on_tool_error" event.

    It leaves out where a candidate's weights are, and the addresses in its metadata.
    """

    def __init__(self, names: PublicNames) -> None:
        """`names` stand in place of paths."""
        self._names = names

    def dumps(self, obj: Any) -> bytes:
        """Return `obj` as JSON. Of an exception or an unknown object only the type is named."""
        if isinstance(obj, dict) and isinstance(obj.get("ops"), list):
            obj = {"ops": [_readable(operation) for operation in obj["ops"]]}
        return orjson.dumps(self._names.of(obj), default=self._to_plain, option=orjson.OPT_NON_STR_KEYS)

    def _to_plain(self, value: Any) -> Any:
        if isinstance(value, BaseModel):
            return self._names.of(_without_places(value.model_dump(context=PUBLIC)))
        if isinstance(value, JarvisError | Path):
            return self._names.of(public_message(value) if isinstance(value, JarvisError) else str(value))
        return f"<{type(value).__name__}>"


def _readable(operation: dict[str, Any]) -> dict[str, Any]:
    """A patch of `astream_log` as clients can read it.

    The entry of a tool's run would be taken for a ToolMessage, and the "/" in a model's id for a deeper path.
    """
    entry = operation.get("value")
    if isinstance(entry, dict) and entry.get("type") == "tool" and "streamed_output" in entry:
        entry = {**entry, "type": "chain"}
    if place := _LOG_PATH.fullmatch(operation["path"]):
        operation = {**operation, "path": f"/logs/{place[1].replace('/', '~1')}{place[2]}"}
    return {**operation, "value": entry}


def _without_places(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_without_places(item) for item in value]
    if not isinstance(value, dict):
        return value
    hidden = {"path", "metadata"} if Candidate.model_fields.keys() <= value.keys() else set()
    return {key: _without_places(item) for key, item in value.items() if key not in hidden}
