"""Who sends a request: API keys, and signed URLs for clients that cannot send one.

    app.add_middleware(Authentication, keys=["…"], open_paths=("/healthz",))

    request.state.owner                          # "3f9a…", which stands for the key; "local" without keys
    sign("/outputs/8f0c…/0-canny.png", request)  # "/outputs/8f0c…/0-canny.png?signature=5c1e…"

A key is sent as `Authorization: Bearer …`. A signature is the HMAC of a path with a key, for `GET` alone. It
allows what the key allows at that path, and ends with the key.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Iterable

from starlette.datastructures import Headers, QueryParams
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

LOCAL = "local"
"""The owner of everything on a server without keys."""


class ApiKey:
    """A key of the server.

    Attributes:
        owner: stands for the holder of the key; it can be stored and logged.
    """

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


def owners_of(keys: Iterable[str]) -> list[str]:
    """The owners on a server with these keys."""
    return [ApiKey(key).owner for key in keys] or [LOCAL]


def sign(path: str, request: Request) -> str:
    """The path of an output with a signature by the request's key, if the server has keys."""
    key: ApiKey | None = request.state.api_key
    return f"{path}?signature={key.sign(path)}" if key else path


def thread_of(owner: str, thread: str) -> str:
    """The id under which the server knows a thread of a client. Owners cannot name each other's."""
    return f"{owner}/{thread}"


class Authentication:
    """ASGI middleware that sets `state["owner"]` and `state["api_key"]`, or answers 401.

    Without keys, every request is that of the owner "local".
    """

    def __init__(self, app: ASGIApp, keys: Iterable[str], open_paths: Collection[str] = ()) -> None:
        """`open_paths` need no key."""
        self._app = app
        self._keys = [ApiKey(key) for key in keys]
        self._open = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its owner, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        key = self._find_key(scope, path)
        if key or not self._keys or path in self._open:
            state = {"owner": key.owner if key else LOCAL, "api_key": key}
            scope["state"] = {**scope.get("state", {}), **state}
            await self._app(scope, receive, send)
        else:
            await _refusal(scope)(scope, receive, send)

    def _find_key(self, scope: Scope, path: str) -> ApiKey | None:
        """The key of a request. Every key is compared, so that the time does not tell which one it is."""
        scheme, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
        found: list[ApiKey] = []
        if scheme.lower() == "bearer":
            found = [key for key in self._keys if key.matches(token.strip().encode("latin-1"))]
        elif signature := _signature(scope):
            found = [key for key in self._keys if key.signed(path, signature)]
        return found[0] if found else None


def _signature(scope: Scope) -> str:
    if scope.get("method") != "GET":
        return ""
    return QueryParams(scope["query_string"]).get("signature", "")


def _refusal(scope: Scope) -> JSONResponse:
    challenge, detail = "Bearer", "an API key is needed: send the header 'Authorization: Bearer <key>'"
    if "authorization" in Headers(scope=scope):
        challenge, detail = 'Bearer error="invalid_token"', "the API key is not valid on this server"
    elif _signature(scope):
        detail = "the signature is not valid for this URL; its API key may have been revoked"
    error = {"message": detail, "type": "invalid_request_error", "code": "invalid_api_key"}  # as OpenAI's
    return JSONResponse({"detail": detail, "error": error}, 401, headers={"WWW-Authenticate": challenge})
