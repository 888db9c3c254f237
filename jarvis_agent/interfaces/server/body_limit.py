"""The limit of a request's body: Starlette's, with an answer that clients can read.

app.add_middleware(BodyLimit, max_body_size=500_000_000)
"""

from __future__ import annotations

from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.types import Receive, Scope, Send


class BodyLimit(RequestBodyLimitMiddleware):
    """ASGI middleware that answers 413 in JSON, both in FastAPI's form and in that of OpenAI's errors.

    A body without a Content-Length is cut off at the limit, which the routes report like their other errors.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        length = Headers(scope=scope).get("content-length", "") if scope["type"] == "http" else ""
        if not length.isdecimal() or int(length) <= self.max_body_size:
            await super().__call__(scope, receive, send)
            return
        message = f"the body has {int(length):,} bytes, more than {self.max_body_size:,}"
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
        await JSONResponse({"detail": message, "error": error}, 413)(scope, receive, send)
