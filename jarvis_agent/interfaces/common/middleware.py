"""What each request to a server passes first: limits of bodies, API keys, origins, hosts, private paths.

app = Starlette(...)
app.add_middleware(BodyLimit, max_file_bytes=500_000_000)
add_middleware(app, ServerSettings(), PathRedactor(runs, uploads, private_directories(agent)))
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Sequence
from itertools import accumulate
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jarvis_agent.interfaces.common.access import KeyAuthentication, unauthorized
from jarvis_agent.interfaces.common.files import FORM_BYTES, max_json_bytes
from jarvis_agent.interfaces.common.path_filter import PathFilter, PathRedactor
from jarvis_agent.interfaces.common.settings import ServerSettings

_MAX_JSON_VALUES = 50_000
"""Numbers, texts, lists and objects in JSON that are checked within a second."""
_MAX_JSON_DEPTH = 100
_OTHER_BYTES = bytes(set(range(256)) - set(b'"[]{},'))
_STRINGS = re.compile(rb'"[^"]*"?')


def add_middleware(
    app: Starlette,
    settings: ServerSettings,
    redactor: PathRedactor,
    *,
    open_paths: Collection[str] = (),
) -> None:
    """Add the middleware to an application; what is added last comes first.

    Args:
        app: the application.
        settings: keys, hosts and origins.
        redactor: replaces private paths in responses.
        open_paths: paths that need no key.
    """
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
    app.add_middleware(PathFilter, redactor=redactor)


def add_host_checks(app: Starlette, settings: ServerSettings) -> None:
    """Refuse requests for other hosts, and those of other hosts' pages."""
    hosts = settings.allowed_hosts or ("*",)
    app.add_middleware(OriginCheck, allowed_hosts=hosts, allowed_origins=settings.allowed_origins)
    named = [f"[{host}]" if ":" in host else host for host in hosts]  # IPv6, as `Host` has it
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=named, www_redirect=False)


class BodyLimit:
    """ASGI middleware that answers 413 in JSON, both in FastAPI's form and in that of OpenAI's errors.

    The body of every POST but an upload is read and checked before its route, whatever its type: LangServe
    reads any type as JSON. An upload without a Content-Length is cut off at the limit.
    """

    def __init__(self, app: ASGIApp, max_file_bytes: int) -> None:
        """`max_file_bytes` is the largest file that is uploaded, or that a message holds."""
        self._app = app
        self._json = max_json_bytes(max_file_bytes)
        self._upload = max_file_bytes + FORM_BYTES

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        is_upload = scope["path"].removeprefix(scope.get("root_path", "")) == "/files"
        limit = self._upload if is_upload else self._json
        length = Headers(scope=scope).get("content-length", "")
        if length.isdecimal() and int(length) > limit:
            await _refuse(f"the body has {int(length):,} bytes, more than {limit:,}", scope, receive, send)
            return
        if is_upload:
            await RequestBodyLimitMiddleware(self._app, limit)(scope, receive, send)
            return
        body = bytearray()
        try:
            async for chunk in Request(scope, receive).stream():
                body += chunk
                if len(body) > limit:
                    await _refuse(f"the body has more than {limit:,} bytes", scope, receive, send)
                    return
        except ClientDisconnect:
            return
        messages: list[Message] = [{"type": "http.request", "body": bytes(body)}]
        if problem := _excess(messages[0]["body"]):
            await _refuse(problem, scope, receive, send)
            return

        async def replay() -> Message:
            return messages.pop() if messages else await receive()

        await self._app(scope, replay, send)


async def _refuse(message: str, scope: Scope, receive: Receive, send: Send) -> None:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    await JSONResponse({"detail": message, "error": error}, 413)(scope, receive, send)


def _excess(body: bytes) -> str:
    """What JSON has too much of, or "". It is not parsed, since that may take a gigabyte.

    Every value but the outermost follows a comma or an opening bracket that is not in a string.
    """
    encoding = json.detect_encoding(body)
    if not encoding.startswith("utf-8"):
        body = body.decode(encoding, "replace").encode()
    marks = body.replace(rb"\\", b"").replace(rb"\"", b"").translate(None, _OTHER_BYTES)
    # JSON within the limits has no more strings and brackets than these.
    marks = _STRINGS.sub(b"", marks.replace(b'""', b""), count=2 * _MAX_JSON_VALUES)
    if marks.count(b",") + marks.count(b"[") + marks.count(b"{") > _MAX_JSON_VALUES:
        return f"the body has more than {_MAX_JSON_VALUES:,} values"
    steps = ((mark in b"[{") - (mark in b"]}") for mark in marks[: 2 * _MAX_JSON_VALUES])
    if max(accumulate(steps), default=0) > _MAX_JSON_DEPTH:
        return f"the lists and objects of the body are nested deeper than {_MAX_JSON_DEPTH}"
    return ""


class OriginCheck:
    """ASGI middleware that answers 403 to pages of other hosts.

    Any web page can make its visitor's browser send requests to this machine. The browser then names the
    page's origin in the header `Origin`; programs send none. A page may use the server if it comes from the
    host of the request or from `allowed_hosts`, or if `allowed_origins` has its origin or "*".
    """

    def __init__(
        self, app: ASGIApp, allowed_hosts: Sequence[str], allowed_origins: Sequence[str] = ()
    ) -> None:
        self._app = app
        self._hosts = frozenset(allowed_hosts)
        self._origins = frozenset(allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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


def _drop_query(record: logging.LogRecord) -> bool:
    """Remove the query of a URL from a line of the log: with its signature, a reader could fetch the file."""
    client, method, path, *rest = record.args or ()
    record.args = (client, method, str(path).partition("?")[0], *rest)
    return True
