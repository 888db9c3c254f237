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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NoReturn

from jarvis_agent.testing.hub import HubRequest, Reply, ReplyServer, json_reply
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


class OpenAIDouble(ReplyServer):
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
        self._script = Script(replies)
        super().__init__()

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    def stages(self) -> list[str]:
        return [request.stage for request in self.requests]

    def handle(self, request: HubRequest) -> Reply:
        if request.method == "GET":
            self.asked.append(request.path)
            listed = {"object": "list", "data": [{"id": "double", "object": "model"}]}
            return json_reply(self.answers.get(request.path, listed))
        received = Received(request.json, request.headers.get("authorization", "").removeprefix("Bearer "))
        reply = self.answer(received)
        if isinstance(reply, Failure):
            error = {"message": reply.message, "type": "double", "code": str(reply.status)}
            response = json_reply({"error": error}, reply.status)
            if reply.retry_after is not None:
                response.headers["Retry-After"] = str(reply.retry_after)
            return response
        if received.body.get("stream"):
            return Reply(200, self._stream(received, reply), {"Content-Type": "text/event-stream"})
        return self._whole(received, reply)

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

    def _whole(self, request: Received, reply: tuple[Any, ...]) -> Reply:
        said = "".join(piece for piece in reply if isinstance(piece, str))
        refusal = "I cannot help with that." if REFUSE in reply else None
        if DROP in reply or GARBAGE in reply or HANG in reply:
            self._break(HANG in reply)
        message: dict[str, Any] = {"role": "assistant", "content": said, "refusal": refusal}
        if uses := _tool_uses(reply):
            message["tool_calls"] = uses
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if uses else "stop"}
        return json_reply(_envelope("chat.completion", [choice], _usage(request, said)))

    def _stream(self, request: Received, reply: tuple[Any, ...]) -> Iterator[bytes]:
        yield _event(_delta({"role": "assistant", "content": ""}))
        said = ""
        for piece in reply:
            if isinstance(piece, int | float):
                self.closing.wait(piece)
            elif piece is GARBAGE:
                yield b"data: \xff\xfe{not json\n\n"
            elif piece is REFUSE:
                yield _event(_delta({"refusal": "I cannot help with that."}))
            elif isinstance(piece, Mishap):
                self._break(piece is HANG)
            elif not isinstance(piece, ToolUse):
                said += piece
                size = self.chunk or len(piece) or 1
                for place in range(0, len(piece), size):
                    yield _event(_delta({"content": piece[place : place + size]}))
        if uses := _tool_uses(reply):
            yield _event(_delta({"tool_calls": uses}))
        ending = "content_filter" if REFUSE in reply else "tool_calls" if uses else "stop"
        yield _event(_delta({}, ending))
        if (request.body.get("stream_options") or {}).get("include_usage"):
            yield _event(_envelope("chat.completion.chunk", [], _usage(request, said)))
        yield b"data: [DONE]\n\n"

    def _break(self, hang: bool) -> NoReturn:
        """Break the connection off, at once or when the server closes."""
        if hang:
            self.hang()
        raise ConnectionAbortedError


def _event(data: Any) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


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
