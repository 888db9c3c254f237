"""A server on this machine that speaks OpenAI's chat completions, from a script.

    with OpenAIDouble({"plan": "[]", "chat": "Hello!"}) as server:
        llm = ChatOpenAI(base_url=server.base_url, model="double", api_key="any")
        assert llm.invoke("hi").text …
        assert server.requests[0].body["messages"]

Replies are scripted as for ScriptedLLM, with these pieces: texts, pauses (numbers of seconds), DROP (the
connection breaks), GARBAGE (bytes that are no event), HANG (silence until the server closes), REFUSE (a
refusal), a `ToolUse` (the model calls a tool that it was given); or the whole reply is a `Failure`. The stage
is told from the title of the prompt, as in the sets "default" and "paper".
"""

import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from jarvis_agent.testing.llm import Script


class Mishap(Enum):
    DROP = "the connection breaks"
    GARBAGE = "bytes that are no event"
    HANG = "silence until the server closes"
    REFUSE = "the model refuses"


DROP, GARBAGE, HANG, REFUSE = Mishap.DROP, Mishap.GARBAGE, Mishap.HANG, Mishap.REFUSE


@dataclass(frozen=True, slots=True)
class Failure:
    """An HTTP error instead of a reply, such as 401, 429 or 500."""

    status: int
    message: str = "it failed"
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The model's call of a tool, with its arguments."""

    name: str
    args: Mapping[str, Any]

    def as_json(self, place: int) -> dict[str, Any]:
        """The call in OpenAI's format, with its index in the reply."""
        function = {"name": self.name, "arguments": json.dumps(self.args)}
        return {"index": place, "id": f"call-{place}", "type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class Received:
    body: Mapping[str, Any]
    key: str

    @property
    def prompt(self) -> str:
        return "\n".join(str(message["content"]) for message in self.body["messages"])

    @property
    def stage(self) -> str:
        """Which of our stages asked; "" if none did."""
        return next((stage for stage, title in _TITLES if self.prompt.startswith(title)), "")


_TITLES = (
    ("repair", "#1 Task Planning Stage: repair"),
    ("plan", "#1 Task Planning Stage"),
    ("select", "#2 Model Selection Stage"),
    ("respond", "#4 Response Generation Stage"),
    ("chat", "You are JARVIS"),
)


class OpenAIDouble:
    """The server; runs while its `with` block is open.

    Args:
        replies: the script. A callable is given the request's body.
        key: the only key that is let in; None: any.
        rejects: fields of a request that are answered with 400, such as "response_format".
        chunk: characters of a streamed piece; 0: whole texts.
        answers: JSON by path of GET requests; other paths have a list of one model.

    `requests` are those that came so far, and `asked` the paths of GET requests.
    """

    def __init__(
        self,
        replies: Any,
        *,
        key: str | None = None,
        rejects: tuple[str, ...] = (),
        chunk: int = 8,
        answers: Mapping[str, Any] | None = None,
    ) -> None:
        self.requests: list[Received] = []
        self.asked: list[str] = []
        self.answers = answers or {}
        self.key = key
        self.rejects = rejects
        self.chunk = chunk
        self.closing = threading.Event()
        self._script = Script(replies)
        self._server: ThreadingHTTPServer | None = None

    @property
    def base_url(self) -> str:
        assert self._server is not None, "the double runs only inside its with block"
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def stages(self) -> list[str]:
        return [request.stage for request in self.requests]

    def __enter__(self) -> Self:
        handler = type("Handler", (_Handler,), {"double": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: Received) -> Any:
        """The reply to a request: a Failure, or a tuple of pieces."""
        self.requests.append(request)
        if self.key is not None and request.key != self.key:
            return Failure(401, f"Incorrect API key provided: {request.key}.")
        rejected = [field for field in self.rejects if field in request.body]
        if rejected:
            return Failure(400, f"Unrecognized request argument supplied: {rejected[0]}")
        try:
            reply = self._script.next(request.stage, request.body)
        except AssertionError as error:
            return Failure(400, str(error))
        return reply if isinstance(reply, tuple | Failure) else (reply,)

    def cut(self, text: str) -> Iterator[str]:
        size = self.chunk or len(text) or 1
        return (text[place : place + size] for place in range(0, len(text), size))


class _Handler(BaseHTTPRequestHandler):
    double: OpenAIDouble
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing."""

    def do_GET(self) -> None:
        self.double.asked.append(self.path)
        listed = {"object": "list", "data": [{"id": "double", "object": "model"}]}
        self._json(200, self.double.answers.get(self.path, listed))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = Received(body, self.headers.get("Authorization", "").removeprefix("Bearer "))
        reply = self.double.answer(request)
        if isinstance(reply, Failure):
            self._fail(reply)
        elif body.get("stream"):
            self._stream(request, reply)
        else:
            self._whole(request, reply)

    def _fail(self, failure: Failure) -> None:
        wait = {} if failure.retry_after is None else {"Retry-After": str(failure.retry_after)}
        error = {"message": failure.message, "type": "double", "code": str(failure.status)}
        self._json(failure.status, {"error": error}, wait)

    def _json(self, status: int, data: Any, headers: Mapping[str, str] | None = None) -> None:
        content = json.dumps(data).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _whole(self, request: Received, reply: tuple[Any, ...]) -> None:
        said = "".join(piece for piece in reply if isinstance(piece, str))
        refusal = "I cannot help with that." if REFUSE in reply else None
        if DROP in reply or GARBAGE in reply or HANG in reply:
            self._break(HANG in reply)
            return
        message: dict[str, Any] = {"role": "assistant", "content": said, "refusal": refusal}
        if uses := _tool_uses(reply):
            message["tool_calls"] = uses
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if uses else "stop"}
        self._json(200, _envelope("chat.completion", [choice], _usage(request, said)))

    def _stream(self, request: Received, reply: tuple[Any, ...]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._event(_delta({"role": "assistant", "content": ""}))
        said = ""
        for piece in reply:
            if isinstance(piece, int | float):
                self.double.closing.wait(piece)
            elif piece is GARBAGE:
                self._send(b"data: \xff\xfe{not json\n\n")
            elif piece is REFUSE:
                self._event(_delta({"refusal": "I cannot help with that."}))
            elif isinstance(piece, Mishap):
                self._break(piece is HANG)
                return
            elif not isinstance(piece, ToolUse):
                said += piece
                for part in self.double.cut(piece):
                    self._event(_delta({"content": part}))
        if uses := _tool_uses(reply):
            self._event(_delta({"tool_calls": uses}))
        ending = "content_filter" if REFUSE in reply else "tool_calls" if uses else "stop"
        self._event(_delta({}, ending))
        if (request.body.get("stream_options") or {}).get("include_usage"):
            self._event(_envelope("chat.completion.chunk", [], _usage(request, said)))
        self._send(b"data: [DONE]\n\n")
        self._send(b"")

    def _break(self, hang: bool) -> None:
        """Break the reply off, at once or when the server closes."""
        if hang:
            self.double.closing.wait()
        self.close_connection = True

    def _event(self, data: Any) -> None:
        self._send(b"data: " + json.dumps(data).encode() + b"\n\n")

    def _send(self, content: bytes) -> None:
        try:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True


def _tool_uses(reply: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [use.as_json(place) for place, use in enumerate(p for p in reply if isinstance(p, ToolUse))]


def _delta(delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    return _envelope("chat.completion.chunk", [{"index": 0, "delta": delta, "finish_reason": finish}])


def _envelope(kind: str, choices: list[Any], usage: Mapping[str, int] | None = None) -> dict[str, Any]:
    about = {"id": "double-1", "object": kind, "created": 0, "model": "double"}
    return {**about, "choices": choices, "usage": usage}


def _usage(request: Received, said: str) -> dict[str, int]:
    """Tokens, counted as words."""
    asked, answered = len(request.prompt.split()), len(said.split())
    return {"prompt_tokens": asked, "completion_tokens": answered, "total_tokens": asked + answered}
