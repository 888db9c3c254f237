"""ReplyServer: the HTTP server of HubDouble."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass(frozen=True, slots=True)
class HubRequest:
    """A received request; header names are in lower case."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes = b""

    @property
    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)


@dataclass(slots=True)
class Reply:
    """A response; `stall`: where it stops until the double is closed."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    stall: Literal["start", "middle"] | None = None


class ReplyServer(ThreadingHTTPServer):
    """Answers requests on a free port of this machine, until `close`."""

    daemon_threads = True

    def __init__(self, handle: Callable[[HubRequest], Reply]) -> None:
        """`handle` returns the reply to a request; it is called in a thread for each connection."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.handle_hub_request = handle
        self.closing = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), name="hub-double")
        self._thread.start()

    def close(self) -> None:
        """Stop serving; stalled replies end."""
        self.closing.set()
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ReplyServer

    def _handle(self) -> None:
        url = urlsplit(self.path)
        request = HubRequest(
            method=self.command,
            path=unquote(url.path),
            query=parse_qs(url.query),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self.rfile.read(int(self.headers.get("Content-Length") or 0)),
        )
        reply = self.server.handle_hub_request(request)
        if reply.stall == "start":
            self.server.closing.wait()
            self.close_connection = True
            return
        self.send_response(reply.status)
        for name, value in {**reply.headers, "Content-Length": str(len(reply.body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        half = len(reply.body) // 2
        self.wfile.write(reply.body[:half])
        if reply.stall == "middle":
            self.wfile.flush()
            self.server.closing.wait()
            self.close_connection = True
            return
        self.wfile.write(reply.body[half:])

    do_GET = do_HEAD = do_POST = _handle  # noqa: N815 - the names that http.server looks for

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing is printed."""
