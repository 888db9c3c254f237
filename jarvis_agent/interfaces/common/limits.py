"""How much an owner may send and start: the size of a body, runs in a minute, and runs at once.

A larger body is answered with 413, and more runs with 429 and `Retry-After`. Each process of a server counts
for itself. Work for a client ends when the client goes.
"""

import asyncio
import json
import math
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from itertools import accumulate
from typing import Any, TypeVar

from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jarvis_agent.core.settings import ServerSettings
from jarvis_agent.interfaces.common.access import openai_error

_T = TypeVar("_T")

MAX_JSON_BYTES = 32_000_000
"""Bytes of JSON that are read in about 0.1 s, in which nothing else is done. Larger files are uploaded."""

FORM_BYTES = 64 * 1024
"""Bytes of a body besides its file."""

_MAX_JSON_VALUES = 50_000
"""Numbers, texts, lists and objects in JSON that are checked within a second."""
_MAX_JSON_DEPTH = 100
_OTHER_BYTES = bytes(set(range(256)) - set(b'"[]{},'))
_STRINGS = re.compile(rb'"[^"]*"?')


class RunLimits:
    """Counts the runs of each owner."""

    def __init__(self, settings: ServerSettings) -> None:
        self._at_once = settings.max_concurrent_runs
        self._per_minute = RateLimitItemPerMinute(settings.runs_per_minute)
        self._started = MovingWindowRateLimiter(MemoryStorage())
        self._running: Counter[str] = Counter()

    async def check(self, request: Request) -> AsyncIterator[None]:
        """FastAPI dependency: the runs of a POST count from now until the response was sent, as in `hold`."""
        runs = await _count(request)
        with self.hold(request.state.owner, runs) if runs else nullcontext():
            yield

    @contextmanager
    def hold(self, owner: str, runs: int = 1) -> Iterator[None]:
        """Count runs of an owner inside the `with` statement. HTTPException 429: there are too many."""
        limit, wait = "", 5.0  # when a run ends is unknown
        if self._running[owner] + runs > self._at_once:
            limit = f"{self._at_once} runs at once"
        elif not self._started.hit(self._per_minute, owner, cost=runs):
            limit = f"{self._per_minute.amount} runs a minute"
            wait = self._started.get_window_stats(self._per_minute, owner).reset_time - time.time()
        if limit:
            seconds = max(1, math.ceil(wait))
            why = f"at most {limit} are allowed for each client; try again in {seconds} s"
            raise HTTPException(429, why, {"Retry-After": str(seconds)})
        self._running[owner] += runs
        try:
            yield
        finally:
            self._running[owner] -= runs


async def _count(request: Request) -> int:
    """The runs that a request starts: a batch of LangServe's has several, and so have several pictures."""
    if request.method != "POST":
        return 0
    field = {"batch": "inputs", "generations": "n"}.get(request.url.path.rpartition("/")[2])
    if field is None:
        return 1
    body = await request.json()
    runs = body.get(field) if isinstance(body, dict) else None
    count = len(runs) if isinstance(runs, list) else runs
    return count if isinstance(count, int) and count > 0 else 1


def max_json_bytes(max_file_bytes: int) -> int:
    """The limit of a JSON body: a file inside a message is base64, which is a third larger."""
    return min(max_file_bytes * 4 // 3, MAX_JSON_BYTES) + FORM_BYTES


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
            return None
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        is_upload = path in ("/files", "/v1/audio/transcriptions")
        limit = self._upload if is_upload else self._json

        async def refuse(problem: str) -> None:
            await JSONResponse({"detail": problem, **openai_error(413, problem)}, 413)(scope, receive, send)

        length, body = Headers(scope=scope).get("content-length", ""), bytearray()
        if length.isdecimal() and int(length) > limit:
            return await refuse(f"the body has {int(length):,} bytes, more than {limit:,}")
        if is_upload:
            return await RequestBodyLimitMiddleware(self._app, limit)(scope, receive, send)
        try:
            async for chunk in Request(scope, receive).stream():
                body += chunk
                if len(body) > limit:
                    return await refuse(f"the body has more than {limit:,} bytes")
        except ClientDisconnect:
            return None
        messages: list[Message] = [{"type": "http.request", "body": bytes(body)}]
        if problem := json_excess(messages[0]["body"]):
            return await refuse(problem)

        async def replay() -> Message:
            return messages.pop() if messages else await receive()

        return await self._app(scope, replay, send)


def json_excess(body: bytes) -> str:
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


async def unless_disconnected(request: Request, work: Coroutine[Any, Any, _T]) -> _T:
    """Await `work`, and cancel it when the client goes: HTTPException 499. The body has been read.

    It is awaited in this task, in which FastAPI's handlers enter contexts that end after the response.
    """
    connection = asyncio.timeout(None)

    async def expire() -> None:
        await request.receive()
        connection.reschedule(0)

    try:
        async with connection:
            leaving = asyncio.create_task(expire())
            try:
                return await work
            finally:
                leaving.cancel()
    except TimeoutError:
        if connection.expired():
            raise HTTPException(499, "the client has disconnected") from None
        raise
