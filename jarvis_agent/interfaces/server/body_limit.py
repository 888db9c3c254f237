"""The limits of a request's body: Starlette's, with an answer that clients can read.

app.add_middleware(BodyLimit, max_file_bytes=500_000_000)
"""

from __future__ import annotations

from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from jarvis_agent.interfaces.server.files import FORM_BYTES, max_json_bytes


class BodyLimit:
    """ASGI middleware that answers 413 in JSON, both in FastAPI's form and in that of OpenAI's errors.

    A body without a Content-Length is cut off at the limit, which the routes report like their other errors.
    """

    def __init__(self, app: ASGIApp, max_file_bytes: int) -> None:
        """`max_file_bytes` is the largest file that is uploaded, or that a message holds."""
        self._app = app
        self._json = max_json_bytes(max_file_bytes)
        self._upload = max_file_bytes + FORM_BYTES

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        limit = self._upload if path == "/files" else self._json
        length = Headers(scope=scope).get("content-length", "")
        if not length.isdecimal() or int(length) <= limit:
            await RequestBodyLimitMiddleware(self._app, limit)(scope, receive, send)
            return
        message = f"the body has {int(length):,} bytes, more than {limit:,}"
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
        await JSONResponse({"detail": message, "error": error}, 413)(scope, receive, send)
