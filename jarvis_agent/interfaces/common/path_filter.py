"""Replaces what a client must not learn in every JSON response: paths of the server.

    app.add_middleware(PathFilter, redactor=PathRedactor(runs, uploads, private=[Path.home()]))

    "/home/ada/outputs/served/local/8f0c…/0-canny.png"    # becomes "/outputs/8f0c…/0-canny.png": its URL
    "/home/ada/outputs/uploads/local/9f0c…/cat.jpg"       # "9f0c…/cat.jpg", the name of the upload
    "/home/ada/.venv/lib/model.onnx"                      # "…/model.onnx", whether it exists or not

This is the only place that knows what is private: results, events, candidates and errors all pass it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from huggingface_hub import constants
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jarvis_agent.core.settings import Settings

if TYPE_CHECKING:
    from jarvis_agent.agent.agent import JarvisAgent

_JSON = ("application/json", "text/event-stream")
_SLASH = r"(?:/|\\\\)"
_OWNER = rf"{_SLASH}+\w+{_SLASH}+"
_REST = rf"(?:{_SLASH}+[^/\\\"'\s:,;<>()]+)*"
_TOP = (
    "app bin boot code data dev etc home lib lib64 media mnt opt private proc project projects repo root run "
    "sbin src srv sys tmp usr var work workspace workspaces Applications Library System Users Volumes"
)
"""Usual names of directories below "/"."""
_ROUTES = frozenset({"outputs", "logs", "runs", "agent", "files", "v1"})
"""First parts of URLs of the server and of JSON patches."""
_INSIDE = re.compile(r"(?<=[A-Za-z0-9_.+/<~-])(?<!\\[nrt])(?<!\\u[0-9a-fA-F]{4})(?<!file://)")
"""Before what is part of a URL, a relative path or base64, and no absolute path; letters may be escapes."""


def private_directories(agent: JarvisAgent) -> list[Path]:
    """Directories whose paths may occur in a result, a model's description or an error."""
    pins = agent.registry.selector.pins.values()
    return [*machine_directories(agent.settings), *(pin.path.parent for pin in pins if pin.path)]


def machine_directories(settings: Settings) -> list[Path]:
    """The same without those of pinned models."""
    paths = [Path.cwd(), Path(__file__).parents[3], settings.output_dir, *settings.allowed_dirs]
    paths += [Path(constants.HF_HUB_CACHE)]
    with suppress(RuntimeError):  # this user has no home directory
        paths += [Path.home()]
    paths += [Path(sys.prefix)] if sys.prefix != sys.base_prefix else []  # a virtual environment
    return paths + ([settings.models_file.parent] if settings.models_file else [])


class PathRedactor:
    """Replaces private paths in a text."""

    def __init__(self, runs: Path, uploads: Path, private: Iterable[Path]) -> None:
        """`runs` and `uploads` hold a directory of each owner's files; `private` are any others.

        "/" is left out of them, since it begins every path. Other paths below usual directories are replaced
        too: else a client could find out which directories exist by naming them.
        """
        roots = [path for path in private if len(path.parts) > 1]
        tops = {*_TOP.split(), *(path.absolute().parts[1] for path in roots)} - _ROUTES
        self._paths = re.compile(
            # The groups are empty: an alternative that begins with a group is ten times as slow.
            rf"(?:{_any_of([runs])})(?P<run>){_OWNER}|(?:{_any_of([uploads])})(?P<upload>){_OWNER}"
            rf"|(?:{_any_of([*roots, *(Path('/', top) for top in tops)])})(?![\w-]){_REST}"
        )

    def clean(self, text: str) -> str:
        """The text, plain or JSON, as a client may see it."""
        return self._paths.sub(_public, text)


class PathFilter:
    """ASGI middleware that filters the bodies of JSON responses and event streams."""

    def __init__(self, app: ASGIApp, redactor: PathRedactor) -> None:
        self._app = app
        self._redactor = redactor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
        text = self._redactor.clean(body.decode("utf-8", "surrogateescape"))
        return text.encode("utf-8", "surrogateescape")


def _any_of(paths: Iterable[Path]) -> str:
    """A pattern for the paths, the longest first, as JSON writes them."""
    texts = {str(form) for path in paths for form in (path.absolute(), path.resolve())}
    written = {json.dumps(text, ensure_ascii=escaped)[1:-1] for text in texts for escaped in (True, False)}
    return "|".join(re.escape(text) for text in sorted(written, key=len, reverse=True))


def _public(match: re.Match[str]) -> str:
    if match["run"] is not None:
        return "/outputs/"
    if match["upload"] is None and _INSIDE.match(match.string, match.start()):
        return match[0]
    return "" if match["upload"] is not None else f"…/{re.split(_SLASH, match[0])[-1]}"
