"""OpenAI's chat completions over the agent, for the `openai` client, ChatOpenAI and chat programs.

    client = openai.OpenAI(base_url="http://localhost:8000/v1", api_key="any")
    client.chat.completions.create(model="jarvis", messages=[{"role": "user", "content": "…"}])

Requests are stateless: earlier messages are the chat history. Images and recordings are content parts. The
reply is Markdown with URLs of the files that the run made, which may be named in later messages. A stream
reports the tasks as `delta.reasoning_content`, and the answer as `delta.content`.

Source: https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field, field_validator, model_validator
from sse_starlette import EventSourceResponse
from starlette.exceptions import HTTPException

from jarvis_agent.agent.agent import JarvisAgent
from jarvis_agent.core.errors import DeadlineError, InputError
from jarvis_agent.core.request import Request as AgentRequest
from jarvis_agent.execution.run import Event, Run

MODEL = "jarvis"
"""The only model."""

_T = TypeVar("_T")
_logger = logging.getLogger(__name__)


class _ImageUrl(BaseModel):
    url: Annotated[str, Field(pattern=r"^(?i:data:[^,]*;base64,|https?://)")]


class _AudioData(BaseModel):
    data: str
    format: Annotated[str, Field(pattern=r"^[\w.+-]+$")]


class _Part(BaseModel):
    type: Literal["text", "image_url", "input_audio"]
    text: str | None = None
    image_url: _ImageUrl | None = None
    input_audio: _AudioData | None = None

    @model_validator(mode="after")
    def _has_content(self) -> Self:
        if getattr(self, self.type) is None:
            raise ValueError(f"{self.type} is missing")
        return self

    def to_block(self, urls: _FileUrls) -> dict[str, Any]:
        """The part as LangChain's content block."""
        if self.type == "image_url" and self.image_url:
            return {"type": "image", "url": urls.to_paths(self.image_url.url)}
        if self.type == "input_audio" and (audio := self.input_audio):
            return {"type": "audio", "base64": audio.data, "mime_type": f"audio/{audio.format}"}
        return {"type": "text", "text": urls.to_paths(self.text or "")}


class _ChatMessage(BaseModel):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: list[_Part] = Field(default_factory=list)

    @field_validator("content", mode="before")
    @classmethod
    def _as_parts(cls, value: Any) -> Any:
        return [{"type": "text", "text": value}] if isinstance(value, str) else [] if value is None else value


class ChatCompletionRequest(BaseModel):
    """The body of a request; other fields of OpenAI's, such as `temperature`, are ignored."""

    model: str
    messages: Annotated[list[_ChatMessage], Field(min_length=1)]
    stream: bool | None = False
    stream_options: dict[str, Any] | None = None


class _OpenAIRoute(APIRoute):
    """A route whose errors have OpenAI's shape."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def reporting(request: Request) -> Response:
            try:
                return await handle(request)
            except Exception as error:
                status, content = _describe(error)
                # A client that sends a failed request again would start the whole run again.
                return JSONResponse(content, status, headers={"x-should-retry": "false"})

        return reporting


def _describe(error: Exception) -> tuple[int, dict[str, Any]]:
    """The HTTP status of an error, and its JSON. What is not the client's business is only logged."""
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        status, message = 400, f"{'.'.join(map(str, first['loc'][1:]))}: {first['msg']}".removeprefix(": ")
    elif isinstance(error, HTTPException):
        status, message = error.status_code, str(error.detail)
    elif isinstance(error, InputError):
        status, message = 400, str(error)
    elif isinstance(error, DeadlineError):
        status, message = 504, str(error)
    else:
        _logger.error("a chat completion failed", exc_info=error)
        status, message = 500, "Internal Server Error"
    kind = "invalid_request_error" if status < 500 else "server_error"
    code = "model_not_found" if status == 404 else None
    return status, {"error": {"message": message, "type": kind, "param": None, "code": code}}


class _FileUrls:
    """The URLs of files of runs, and their paths."""

    def __init__(self, runs: Path, request: Request) -> None:
        self._base = f"{request.base_url}outputs/"
        self._roots = [f"{root}/" for root in (runs.absolute(), runs.resolve())]

    def to_urls(self, text: str) -> str:
        """Replace paths by URLs."""
        for root in self._roots:
            text = text.replace(root, self._base)
        return text

    def to_paths(self, text: str) -> str:
        """Replace URLs by paths, which the agent checks like any other path in a request."""
        return text.replace(self._base, self._roots[0])

    def markdown(self, run: Run) -> str:
        """Links to the files of a run that its answer does not show; images are displayed."""
        answer, links = self.to_urls(run.answer), []
        for resource in run.resources:
            url = self.to_urls(str(resource.path or ""))
            if url.startswith(self._base):
                link = f"[{Path(url).name}]({quote(url, safe=':/[]%')})"
                is_shown = f"]({url}" in answer if resource.kind == "image" else url in answer
                links += [] if is_shown else [f"!{link}" if resource.kind == "image" else link]
        return "".join(f"\n\n{link}" for link in dict.fromkeys(links))


def _head(kind: str) -> dict[str, Any]:
    """What a reply, or each chunk of one, begins with."""
    name = f"chatcmpl-{secrets.token_hex(12)}"
    return {"id": name, "object": kind, "created": int(time.time()), "model": MODEL}


def _usage(run: Run) -> dict[str, int]:
    """The tokens of all calls of the language model."""
    read = sum(usage.input_tokens for usage in run.usage.values())
    written = sum(usage.output_tokens for usage in run.usage.values())
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _progress(event: Event) -> str:
    """A line about a task; empty for other events."""
    if event.task is None:
        return ""
    name, result = f"{event.task.id} {event.task.task}", event.result
    if event.kind == "finished" and result is not None:
        model, error = f" by {result.model}" if result.model else "", result.error
        return f"{name}: {result.status}{model}{f': {error}' if error else ''}\n"
    states = {"task": "planned", "started": "running"}
    return f"{name}: {states[event.kind]}\n" if event.kind in states else ""


async def _unless_disconnected(request: Request, work: Coroutine[Any, Any, _T]) -> _T:
    """Await `work`, and cancel it when the client goes. The body has been read."""
    working, leaving = asyncio.create_task(work), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise HTTPException(499, "the client has disconnected")
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.wait([working, leaving])


async def _stream(
    first: Event, events: AsyncGenerator[Event, None], urls: _FileUrls, *, with_usage: bool
) -> AsyncIterator[str]:
    """The data of the server-sent events of a run; an error ends them, without "[DONE]"."""
    head, event, answered = _head("chat.completion.chunk"), first, False

    def chunk(finish: str | None = None, **delta: str) -> str:
        return json.dumps({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk(role="assistant", content="")
    try:
        async with aclosing(events):
            while event.run is None:
                if event.kind == "token":
                    answered = True
                    yield chunk(content=urls.to_urls(event.text))
                elif line := _progress(event):
                    yield chunk(reasoning_content=urls.to_urls(line))
                event = await anext(events)
        yield chunk(content=("" if answered else urls.to_urls(event.run.answer)) + urls.markdown(event.run))
        yield chunk(finish="stop")
        if with_usage:
            yield json.dumps({**head, "choices": [], "usage": _usage(event.run)})
        yield "[DONE]"
    except Exception as error:
        yield json.dumps(_describe(error)[1])


def openai_routes(agent: JarvisAgent, runs: Path) -> APIRouter:
    """Return the routes below `/v1`.

    Args:
        agent: an agent for untrusted requests, without a checkpointer. It may read files below `runs`.
        runs: the directory of its runs, whose files have the URLs `/outputs/{run}/{name}`.
    """
    router = APIRouter(prefix="/v1", tags=["openai"], route_class=_OpenAIRoute)
    model = {"id": MODEL, "object": "model", "created": int(time.time()), "owned_by": MODEL}

    @router.get("/models")
    async def models() -> dict[str, Any]:
        """List the only model."""
        return {"object": "list", "data": [model]}

    @router.post("/chat/completions", response_model=None)
    async def complete(body: ChatCompletionRequest, request: Request) -> Response | dict[str, Any]:
        """Run the last message of the user; with `stream`, as server-sent events."""
        if body.model != MODEL:
            raise HTTPException(404, f"there is no model {body.model[:100]!r}; use {MODEL!r}")
        urls = _FileUrls(runs, request)
        told = [
            {"role": message.role, "content": [part.to_block(urls) for part in message.content]}
            for message in body.messages
            if message.role != "tool"
        ]
        asked = AgentRequest.of({"messages": told})
        if body.stream:
            # The first event comes after the files are read, so that their errors have a status of their own.
            events = agent.events(asked)
            first = await _unless_disconnected(request, anext(events))
            with_usage = bool((body.stream_options or {}).get("include_usage"))
            return EventSourceResponse(_stream(first, events, urls, with_usage=with_usage), sep="\n")
        run = await _unless_disconnected(request, agent.ainvoke(asked))
        message = {"role": "assistant", "content": urls.to_urls(run.answer) + urls.markdown(run)}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        return {**_head("chat.completion"), "choices": choices, "usage": _usage(run)}

    return router
