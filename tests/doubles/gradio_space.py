"""A Gradio Space on this machine, which answers from functions.

    with SpaceDouble() as space:
        space.add("/draw", {"prompt": "Textbox"}, ["Image"], lambda prompt: Path("cat.png"))
        Client(space.url).predict("a cat", api_name="/draw")
    assert space.calls == [("/draw", {"prompt": "a cat"})]

It speaks as much of Gradio's protocol (5, "sse_v3") as gradio_client uses.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jarvis_agent.testing.hub import HubRequest, Reply, ReplyServer, json_reply

_API = "/gradio_api"


@dataclass(frozen=True, slots=True)
class _Function:
    takes: Mapping[str, str]
    gives: Sequence[str]
    answer: Callable[..., Any]
    defaults: Mapping[str, Any]

    def description(self) -> dict[str, Any]:
        """The endpoint as Gradio describes it."""
        python = {"python_type": {"type": "Any", "description": ""}}
        parameters = [
            {"parameter_name": name, "label": name, "component": component, **python, **self._default(name)}
            for name, component in self.takes.items()
        ]
        returns = [{"label": component, "component": component, **python} for component in self.gives]
        return {"parameters": parameters, "returns": returns, "show_api": True}

    def _default(self, name: str) -> dict[str, Any]:
        default = {"parameter_has_default": True, "parameter_default": self.defaults.get(name)}
        return default if name in self.defaults else {}


@dataclass(eq=False)
class SpaceDouble(ReplyServer):
    """See the module.

    Attributes:
        calls: the endpoints called, with their values by name; files are bytes.
        cancelled: ids of the calls that the client cancelled.
        headers: those of every request, names in lower case.
        silent: calls get no answer until the double is closed.
        redirects: addresses to which requests for files lead, by the path of the file.
        prefix: where its API is, as it says.
    """

    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    silent: bool = False
    functions: dict[str, _Function] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    prefix: str = _API
    waiting: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    def add(
        self,
        api_name: str,
        takes: Mapping[str, str],
        gives: Sequence[str],
        answer: Callable[..., Any],
        **defaults: Any,
    ) -> None:
        """Add an endpoint with the components of its parameters and results, and values of some parameters.

        `answer` gets the values by name; it returns the result, or a tuple of several. A Path is a file; an
        exception that it raises is the Space's error.
        """
        self.functions[api_name] = _Function(takes, gives, answer, defaults)

    def handle(self, request: HubRequest) -> Reply:
        self.headers.append(request.headers)
        endpoint = request.path.removeprefix(_API)
        if request.path == "/config":
            return json_reply(self.config())
        if endpoint == "/info":
            named = {name: function.description() for name, function in self.functions.items()}
            return json_reply({"named_endpoints": named, "unnamed_endpoints": {}})
        if endpoint == "/upload":
            return json_reply([self._uploaded(request.body)])
        if endpoint == "/queue/join":
            event = f"event-{len(self.waiting)}"
            self.waiting[request.json["session_hash"]] = (event, request.json)
            return json_reply({"event_id": event})
        if endpoint == "/queue/data":
            event, asked = self.waiting[request.query["session_hash"][0]]
            stream = {"Content-Type": "text/event-stream"}
            if self.silent:
                return Reply(200, self._silence(), stream)
            messages = [self.run(event, asked), {"msg": "close_stream"}]
            body = "".join(f"data: {json.dumps(message)}\n\n" for message in messages)
            return Reply(200, body.encode(), stream)
        if endpoint.startswith("/file="):
            if address := self.redirects.get(endpoint.removeprefix("/file=")):
                return Reply(302, b"", {"Location": address})
            content = self.files.get(endpoint.removeprefix("/file="))
            return Reply(404 if content is None else 200, content or b"")
        if endpoint == "/cancel":
            self.cancelled.append(request.json["event_id"])
        if request.method == "POST":
            return json_reply({"success": True})
        return json_reply({"error": "not found"}, 404)

    def _silence(self) -> Iterator[bytes]:
        yield b"\n\n"
        self.hang()

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
        about = {
            "version": "5.0.0",
            "protocol": "sse_v3",
            "api_prefix": self.prefix,
            "connect_heartbeat": False,
        }
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
            output = {"error": str(error)}
        done = {"msg": "process_completed", "event_id": event}
        return {**done, "output": output, "success": "data" in output}

    def _uploaded(self, body: bytes) -> str:
        """Store the file of a form."""
        head, _, content = body.partition(b"\r\n\r\n")
        boundary = head.split(b"\r\n", 1)[0]
        name = head.decode().partition('filename="')[2].partition('"')[0]
        return self._stored(name, content.split(b"\r\n" + boundary)[0])

    def _stored(self, name: str, content: bytes) -> str:
        path = f"/tmp/gradio/{len(self.files)}/{name}"
        self.files[path] = content
        return path

    def _received(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._received(part) for part in value]
        if not isinstance(value, dict):
            return value
        if "path" in value:
            return self.files[value["path"]]
        return {name: self._received(part) for name, part in value.items()}

    def _sent(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._sent(part) for part in value]
        if isinstance(value, dict):
            return {name: self._sent(part) for name, part in value.items()}
        if not isinstance(value, Path):
            return value
        return {"path": self._stored(value.name, value.read_bytes()), "meta": {"_type": "gradio.FileData"}}
