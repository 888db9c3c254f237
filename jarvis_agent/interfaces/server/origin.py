"""Who may speak with the server, by the names that a browser gives.

    app.add_middleware(TrustedHosts, allowed=("localhost", "127.0.0.1", "::1"))

A page of the web can have its visitor's browser send requests to this machine. The browser then says in
`Origin` where the page is from; and where the page's own name leads to this machine, `Host` has that name.
Programs send no `Origin`.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class TrustedHosts:
    """Refuses requests for and from other hosts, with status 400 and 403.

    Args:
        allowed: names of hosts without a port, addresses of IPv6 without brackets; "*": any.
    """

    def __init__(self, app: ASGIApp, allowed: Sequence[str]) -> None:
        self._app = app
        self._allowed = frozenset(allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        refusal = self._refusal(Headers(scope=scope)) if scope["type"] in ("http", "websocket") else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, headers: Headers) -> PlainTextResponse | None:
        if "*" in self._allowed:
            return None
        if _name(f"//{headers.get('host', '')}") not in self._allowed:
            return PlainTextResponse("this server has another name", 400)
        origin = headers.get("origin")
        if origin is not None and _name(origin) not in self._allowed:
            return PlainTextResponse("pages of other hosts may not use this server", 403)
        return None


def _name(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
