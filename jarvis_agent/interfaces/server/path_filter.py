"""Replaces what a client must not learn in every JSON response: paths and settings of the server.

    app.add_middleware(PathFilter, runs=runs, uploads=uploads, private=[Path.home()])

    "/home/ada/outputs/served/8f0c…/0-canny.png"    # becomes "/outputs/8f0c…/0-canny.png": its URL
    "/home/ada/outputs/uploads/9f0c…/cat.jpg"       # "9f0c…/cat.jpg", the name of the upload
    "/home/ada/.venv/lib/model.onnx"                # "…/model.onnx"

This is the only place that knows what is private: results, events, candidates and errors all pass it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_JSON = ("application/json", "text/event-stream")
_SLASH = r"(?:/|\\\\)"
_REST = rf"(?:{_SLASH}+[^/\\\"'\s:,;<>()]+)*"
_VARIABLES = re.compile(r" \(JARVIS_[A-Z_]+\)|\bJARVIS_[A-Z_]+(?:=\w+)?")


class PathFilter:
    """ASGI middleware that filters the bodies of JSON responses and event streams."""

    def __init__(self, app: ASGIApp, runs: Path, uploads: Path, private: Iterable[Path]) -> None:
        """`runs` and `uploads` are the directories with clients' files; `private` are any others.

        "/" is left out of them, since it begins every path.
        """
        self._app = app
        roots = [path for path in private if len(path.parts) > 1]
        self._paths = re.compile(
            rf"(?P<run>{_any_of([runs])}){_SLASH}+|(?P<upload>{_any_of([uploads])}){_SLASH}+"
            rf"|(?:{_any_of(roots)})(?![\w-]){_REST}"
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and filter the response."""
        is_json = False

        async def filtered(message: Message) -> None:
            nonlocal is_json
            if message["type"] == "http.response.start":
                is_json = Headers(raw=message["headers"]).get("content-type", "").startswith(_JSON)
                if is_json:
                    del MutableHeaders(raw=message["headers"])["content-length"]
            elif is_json and message["type"] == "http.response.body":
                message = {**message, "body": self._clean(message.get("body", b""))}
            await send(message)

        await self._app(scope, receive, filtered)

    def _clean(self, body: bytes) -> bytes:
        text = self._paths.sub(_public, body.decode("utf-8", "surrogateescape"))
        text = _VARIABLES.sub(lambda found: "" if found[0][0] == " " else "a setting of the server", text)
        return text.encode("utf-8", "surrogateescape")


def _any_of(paths: Iterable[Path]) -> str:
    """A pattern for the paths, the longest first, as JSON writes them."""
    texts = {str(form) for path in paths for form in (path.absolute(), path.resolve())}
    written = {json.dumps(text, ensure_ascii=escaped)[1:-1] for text in texts for escaped in (True, False)}
    return "|".join(re.escape(text) for text in sorted(written, key=len, reverse=True))


def _public(found: re.Match[str]) -> str:
    if found["run"]:
        return "/outputs/"
    return "" if found["upload"] else f"…/{re.split(_SLASH, found[0])[-1]}"
