"""A Gradio Space on this machine, which answers from functions.

    with SpaceDouble() as space:
        space.add("/draw", {"prompt": "Textbox"}, ["Image"], lambda prompt: Path("cat.png"))
        Client(space.url).predict("a cat", api_name="/draw")
    assert space.calls == [("/draw", {"prompt": "a cat"})]

It speaks as much of Gradio's protocol (5, "sse_v3") as gradio_client uses.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

_API = "/gradio_api"


@dataclass(frozen=True, slots=True)
class _Function:
    takes: Mapping[str, str]
    gives: Sequence[str]
    answer: Callable[..., Any]

    def description(self) -> dict[str, Any]:
        """The endpoint as Gradio describes it."""
        python = {"python_type": {"type": "Any", "description": ""}}
        parameters = [
            {"parameter_name": name, "label": name, "component": component, **python}
            for name, component in self.takes.items()
        ]
        returns = [{"label": component, "component": component, **python} for component in self.gives]
        return {"parameters": parameters, "returns": returns, "show_api": True}


@dataclass(slots=True)
class SpaceDouble:
    """See the module.

    Attributes:
        calls: the endpoints called, with their values by name; files are bytes.
        cancelled: ids of the calls that the client cancelled.
        headers: those of every request, names in lower case.
        silent: fall silent on calls until the double is closed.
    """

    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    silent: bool = False
    functions: dict[str, _Function] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    waiting: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    closing: threading.Event = field(default_factory=threading.Event)
    _server: ThreadingHTTPServer | None = None

    def add(
        self, api_name: str, takes: Mapping[str, str], gives: Sequence[str], answer: Callable[..., Any]
    ) -> None:
        """Add an endpoint with the components of its parameters and results.

        `answer` gets the values by name; it returns the result, or a tuple of several. A Path is a file; an
        exception that it raises is the Space's error.
        """
        self.functions[api_name] = _Function(takes, gives, answer)

    @property
    def url(self) -> str:
        """Its address."""
        assert self._server is not None, "enter the double first: with SpaceDouble() as space"
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        handler = type("Handler", (_Handler,), {"space": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()

    def config(self) -> dict[str, Any]:
        """What a client reads first: the components, and the functions between them."""
        components: list[dict[str, Any]] = []

        def add(kinds: Iterable[str]) -> list[int]:
            first = len(components)
            components.extend({"id": 0, "type": kind.lower(), "props": {}} for kind in kinds)
            for place in range(first, len(components)):
                components[place]["id"] = place
            return list(range(first, len(components)))

        functions = [
            {
                "id": place,
                "api_name": name.lstrip("/"),
                "inputs": add(function.takes.values()),
                "outputs": add(function.gives),
                "backend_fn": True,
                "show_api": True,
            }
            for place, (name, function) in enumerate(self.functions.items())
        ]
        about = {"version": "5.0.0", "protocol": "sse_v3", "api_prefix": _API, "connect_heartbeat": False}
        return {**about, "components": components, "dependencies": functions}

    def run(self, event: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """The message with which a call ends."""
        name = list(self.functions)[request["fn_index"]]
        function = self.functions[name]
        values = dict(zip(function.takes, map(self._received, request["data"]), strict=True))
        self.calls.append((name, values))
        try:
            answer = function.answer(**values)
            parts = answer if isinstance(answer, tuple) else (answer,)
            output = {"data": [self._sent(part) for part in parts]}
        except Exception as error:
            output = {"error": str(error)}  # type: ignore[dict-item]
        done = {"msg": "process_completed", "event_id": event}
        return {**done, "output": output, "success": "data" in output}

    def keep(self, name: str, content: bytes) -> str:
        """Keep a file; returns the path under which it is known here."""
        path = f"/tmp/gradio/{len(self.files)}/{name}"
        self.files[path] = content
        return path

    def _received(self, value: Any) -> Any:
        return self.files[value["path"]] if isinstance(value, dict) else value

    def _sent(self, value: Any) -> Any:
        if not isinstance(value, Path):
            return value
        return {"path": self.keep(value.name, value.read_bytes()), "meta": {"_type": "gradio.FileData"}}


class _Handler(BaseHTTPRequestHandler):
    space: SpaceDouble
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Quiet."""

    def do_GET(self) -> None:
        self._note()
        url = urlsplit(self.path)
        if url.path == "/config":
            self._json(self.space.config())
        elif url.path == f"{_API}/info":
            named = {name: function.description() for name, function in self.space.functions.items()}
            self._json({"named_endpoints": named, "unnamed_endpoints": {}})
        elif url.path == f"{_API}/queue/data":
            self._events(parse_qs(url.query)["session_hash"][0])
        elif url.path.startswith(f"{_API}/file="):
            content = self.space.files.get(unquote(url.path.removeprefix(f"{_API}/file=")))
            self._send(404 if content is None else 200, content or b"", "application/octet-stream")
        else:
            self._json({"error": "not found"}, 404)

    def do_POST(self) -> None:
        self._note()
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        what = urlsplit(self.path).path.removeprefix(_API)
        if what == "/upload":
            self._json([self._uploaded(body)])
        elif what == "/queue/join":
            request = json.loads(body)
            event = f"event-{len(self.space.waiting)}"
            self.space.waiting[request["session_hash"]] = (event, request)
            self._json({"event_id": event})
        else:
            self.space.cancelled += [json.loads(body).get("event_id")] if what == "/cancel" else []
            self._json({"success": True})

    def _note(self) -> None:
        self.space.headers.append({name.lower(): value for name, value in self.headers.items()})

    def _uploaded(self, body: bytes) -> str:
        """Keep the one file of a form."""
        head, _, content = body.partition(b"\r\n\r\n")
        boundary = head.split(b"\r\n", 1)[0]
        name = head.decode().partition('filename="')[2].partition('"')[0]
        return self.space.keep(name, content.split(b"\r\n" + boundary)[0])

    def _events(self, session: str) -> None:
        """The messages on the call of a session, after which the stream ends."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        if self.space.silent:
            self.wfile.flush()
            self.space.closing.wait()
            return
        event, request = self.space.waiting[session]
        for message in (self.space.run(event, request), {"msg": "close_stream"}):
            self.wfile.write(b"data: " + json.dumps(message).encode() + b"\n\n")

    def _json(self, value: Any, status: int = 200) -> None:
        self._send(status, json.dumps(value).encode(), "application/json")

    def _send(self, status: int, content: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
