"""Who may send a request: API keys, signed URLs for clients that cannot send one, hosts and origins.

A key is sent as `Authorization: Bearer …`; `request.state.owner` stands for it. A signature is the HMAC of a
path with a key, for `GET` alone. It allows what the key allows at that path, and ends with the key.
"""

import hashlib
import hmac
import logging
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.authentication import AuthenticationBackend, AuthenticationError
from starlette.datastructures import Headers
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from jarvis_agent.core.settings import ServerSettings

LOCAL = "local"
"""The owner of everything on a server without keys."""


class ApiKey:
    """A key of the server. Its `owner` stands for who holds it, and can be stored and logged."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()
        self._digest = hashlib.sha256(self._secret).digest()
        self.owner = self._digest.hex()[:16]

    def matches(self, token: bytes) -> bool:
        """Whether `token` is the key. The time it takes tells nothing about the key, nor its length."""
        return hmac.compare_digest(hashlib.sha256(token).digest(), self._digest)

    def sign(self, path: str) -> str:
        """The signature of a path."""
        return hmac.new(self._secret, path.encode(), "sha256").hexdigest()

    def signed(self, path: str, signature: str) -> bool:
        """Whether the signature is that of this key."""
        return hmac.compare_digest(self.sign(path).encode(), signature.encode())


def owners_of(settings: ServerSettings) -> list[str]:
    """The owners on a server."""
    return [ApiKey(key.get_secret_value()).owner for key in settings.api_keys] or [LOCAL]


def thread_of(owner: str, thread: str) -> str:
    """The id under which the server knows a thread of a client. Owners cannot name each other's."""
    return f"{owner}/{thread}"


class KeyAuthentication(AuthenticationBackend):
    """Sets `state.owner` and `state.api_key`. Without keys, every request is that of the owner "local"."""

    def __init__(self, keys: Iterable[str], open_paths: Collection[str] = ()) -> None:
        """`open_paths` need no key."""
        self._keys = [ApiKey(key) for key in keys]
        self._open = open_paths

    async def authenticate(self, conn: HTTPConnection) -> None:
        """Find the key of a request, or raise AuthenticationError if it needs one.

        Every key is compared, so that the time does not tell which one it is.
        """
        path = conn.scope["path"].removeprefix(conn.scope.get("root_path", ""))
        scheme, _, token = conn.headers.get("authorization", "").partition(" ")
        signature = conn.query_params.get("signature") if conn.scope.get("method") == "GET" else None
        keys: list[ApiKey] = []
        why = "an API key is needed: send the header 'Authorization: Bearer <key>'"
        if scheme.lower() == "bearer":
            keys = [key for key in self._keys if key.matches(token.strip().encode("latin-1"))]
        elif signature:
            keys = [key for key in self._keys if key.signed(path, signature)]
            why = "the signature is not valid for this URL; its API key may have been revoked"
        if "authorization" in conn.headers:
            why = "the API key is not valid on this server"
        if self._keys and not keys and path not in self._open:
            raise AuthenticationError(why)
        key, owner = (keys[0], keys[0].owner) if keys else (None, LOCAL)
        # A new state: a server may give all requests that of its start.
        conn.scope["state"] = {**conn.scope.get("state", {}), "api_key": key, "owner": owner}


def unauthorized(conn: HTTPConnection, error: Exception) -> JSONResponse:
    """The response to a request without a valid key."""
    challenge = 'Bearer error="invalid_token"' if "authorization" in conn.headers else "Bearer"
    content = {"detail": str(error), **openai_error(401, str(error), "invalid_api_key")}
    return JSONResponse(content, 401, headers={"WWW-Authenticate": challenge})


def openai_error(status: int, message: str, code: str = "", param: str | None = None) -> dict[str, Any]:
    """An error in the form of OpenAI's; `param` names the field at fault."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": param, "code": code or None}}


def add_middleware(app: Starlette, settings: ServerSettings, *, open_paths: Collection[str] = ()) -> None:
    """Check keys, hosts and origins in front of an application; `open_paths` need no key."""
    logging.getLogger("uvicorn.access").addFilter(_drop_query)
    backend = KeyAuthentication([key.get_secret_value() for key in settings.api_keys], open_paths)
    app.add_middleware(AuthenticationMiddleware, backend=backend, on_error=unauthorized)
    app.add_middleware(
        CORSMiddleware,
        allow_origins=settings.allowed_origins,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],  # clients add headers of their own, such as OpenAI's `x-stainless-lang`
        expose_headers=["Location", "Retry-After", "X-Should-Retry", "Mcp-Session-Id"],
    )
    add_host_checks(app, settings)


def add_host_checks(app: Starlette, settings: ServerSettings) -> None:
    """Refuse requests for other hosts, and those of other hosts' pages."""
    hosts = settings.allowed_hosts or ("*",)
    app.add_middleware(OriginCheck, allowed_hosts=hosts, allowed_origins=settings.allowed_origins)
    named = [f"[{host}]" if ":" in host else host for host in hosts]  # IPv6, as `Host` has it
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=named, www_redirect=False)


def _drop_query(record: logging.LogRecord) -> bool:
    """Remove the query of a URL from a line of the log: with its signature, a reader could fetch the file."""
    client, method, path, *rest = record.args or ()
    record.args = (client, method, str(path).partition("?")[0], *rest)
    return True


class OriginCheck:
    """ASGI middleware that answers 403 to pages of other hosts.

    Any web page can make its visitor's browser send requests to this machine. The browser then names the
    page's origin in the header `Origin`; programs send none. A page may use the server if it comes from the
    host of the request or from `allowed_hosts`, or if `allowed_origins` has its origin or "*".
    """

    def __init__(self, app: ASGIApp, allowed_hosts: Sequence[str], allowed_origins: Sequence[str]) -> None:
        self._app = app
        self._hosts = frozenset(allowed_hosts)
        self._origins = frozenset(allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or self._is_allowed(Headers(scope=scope)):
            await self._app(scope, receive, send)
        else:
            why = "pages of this origin may not use this server"
            await JSONResponse({"detail": why, **openai_error(403, why)}, 403)(scope, receive, send)

    def _is_allowed(self, headers: Headers) -> bool:
        origin = headers.get("origin")
        if origin is None or not self._origins.isdisjoint({"*", origin}):
            return True
        with suppress(ValueError):  # no URL
            host = urlsplit(origin).hostname
            own = self._hosts | {urlsplit(f"//{headers.get('host')}").hostname}
            return host is not None and host in own
        return False
