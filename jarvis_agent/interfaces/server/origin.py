"""Refuses requests that web pages of other hosts send.

    app.add_middleware(OriginCheck, allowed_hosts=("localhost", "127.0.0.1", "::1"))

Any web page can make its visitor's browser send requests to this machine. The browser then names the page's
host in the header `Origin`. Programs send no `Origin`. Starlette's TrustedHostMiddleware checks `Host`.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class OriginCheck:
    """ASGI middleware that answers 403 if `Origin` names a host outside `allowed_hosts` ("*": any)."""

    def __init__(self, app: ASGIApp, allowed_hosts: Sequence[str]) -> None:
        self._app = app
        self._allowed = frozenset(allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        origin = Headers(scope=scope).get("origin") if scope["type"] in ("http", "websocket") else None
        if origin is None or "*" in self._allowed or _hostname(origin) in self._allowed:
            await self._app(scope, receive, send)
        else:
            await PlainTextResponse("pages of other hosts may not use this server", 403)(scope, receive, send)


def _hostname(origin: str) -> str | None:
    try:
        return urlsplit(origin).hostname
    except ValueError:
        return None
