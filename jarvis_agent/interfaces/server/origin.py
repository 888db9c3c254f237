"""Refuses requests that web pages of other hosts send, unless they are allowed to.

    app.add_middleware(OriginCheck, allowed_hosts=("localhost", "127.0.0.1", "::1"))

Any web page can make its visitor's browser send requests to this machine. The browser then names the page's
origin in the header `Origin`. Programs send no `Origin`. Starlette's TrustedHostMiddleware checks `Host`.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class OriginCheck:
    """ASGI middleware that answers 403 to pages of other hosts.

    A page may use the server if it comes from the host of the request or from `allowed_hosts`, or if
    `allowed_origins` has its origin or "*".
    """

    def __init__(
        self, app: ASGIApp, allowed_hosts: Sequence[str], allowed_origins: Sequence[str] = ()
    ) -> None:
        self._app = app
        self._hosts = frozenset(allowed_hosts)
        self._origins = frozenset(allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] not in ("http", "websocket") or self._is_allowed(Headers(scope=scope)):
            await self._app(scope, receive, send)
        else:
            await PlainTextResponse("pages of this origin may not use this server", 403)(scope, receive, send)

    def _is_allowed(self, headers: Headers) -> bool:
        origin = headers.get("origin")
        if origin is None or not self._origins.isdisjoint({"*", origin}):
            return True
        host = _hostname(origin)
        return host is not None and (host in self._hosts or host == _hostname(f"//{headers.get('host')}"))


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
