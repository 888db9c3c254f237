"""Who sends a request: API keys, and signed URLs for clients that cannot send one.

    backend = KeyAuthentication(keys=["…"], open_paths=("/healthz",))
    app.add_middleware(AuthenticationMiddleware, backend=backend, on_error=unauthorized)    # Starlette's

    request.state.owner                          # "3f9a…", which stands for the key; "local" without keys
    sign("/outputs/8f0c…/0-canny.png", request)  # "/outputs/8f0c…/0-canny.png?signature=5c1e…"

A key is sent as `Authorization: Bearer …`. A signature is the HMAC of a path with a key, for `GET` alone. It
allows what the key allows at that path, and ends with the key.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Iterable

from starlette.authentication import AuthenticationBackend, AuthenticationError
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse

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


class KeyAuthentication(AuthenticationBackend):
    """Sets `state.owner` and `state.api_key`. Without keys, every request is that of the owner "local"."""

    def __init__(self, keys: Iterable[str], open_paths: Collection[str] = ()) -> None:
        """`open_paths` need no key."""
        self._keys = [ApiKey(key) for key in keys]
        self._open = open_paths

    async def authenticate(self, conn: HTTPConnection) -> None:
        """Find the key of a request. Every key is compared, so that the time does not tell which one it is.

        Raises:
            AuthenticationError: it has none, and needs one.
        """
        path = conn.scope["path"].removeprefix(conn.scope.get("root_path", ""))
        scheme, _, token = conn.headers.get("authorization", "").partition(" ")
        signature = conn.query_params.get("signature") if conn.scope.get("method") == "GET" else None
        found: list[ApiKey] = []
        why = "an API key is needed: send the header 'Authorization: Bearer <key>'"
        if scheme.lower() == "bearer":
            found = [key for key in self._keys if key.matches(token.strip().encode("latin-1"))]
        elif signature:
            found = [key for key in self._keys if key.signed(path, signature)]
            why = "the signature is not valid for this URL; its API key may have been revoked"
        if "authorization" in conn.headers:
            why = "the API key is not valid on this server"
        if self._keys and not found and path not in self._open:
            raise AuthenticationError(why)
        key, owner = (found[0], found[0].owner) if found else (None, LOCAL)
        # A new state: a server may give all requests that of its start.
        conn.scope["state"] = {**conn.scope.get("state", {}), "api_key": key, "owner": owner}


def unauthorized(conn: HTTPConnection, error: Exception) -> JSONResponse:
    """The response to a request without a valid key."""
    challenge = 'Bearer error="invalid_token"' if "authorization" in conn.headers else "Bearer"
    body = {"message": str(error), "type": "invalid_request_error", "code": "invalid_api_key"}  # as OpenAI's
    content = {"detail": str(error), "error": body}
    return JSONResponse(content, 401, headers={"WWW-Authenticate": challenge})
