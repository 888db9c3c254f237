"""OpenAI's chat completions over the agent, for the `openai` client, ChatOpenAI and chat programs.

Earlier messages are the chat history. Images, recordings and documents are parts. The reply is Markdown with
URLs of the files that the run made, which may be named in later messages. What a later message calls "it" is
a result: a turn is known again by its messages, as long as this process remembers it. A stream reports the
tasks as `delta.reasoning_content`, and the answer as `delta.content`.

Source: https://platform.openai.com/docs/api-reference/chat
"""

import asyncio
import json
import re
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import aclosing
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from pydantic import BaseModel, Field
from sse_starlette import EventSourceResponse
from starlette.exceptions import HTTPException

from jarvis_agent.agent.memory import ChatMemory
from jarvis_agent.core.concurrency import cancel_and_wait
from jarvis_agent.core.content import message_text
from jarvis_agent.core.context import ChatTurn
from jarvis_agent.core.errors import MissingExtraError, NoCandidateError, public_message
from jarvis_agent.core.request import Request as AgentRequest
from jarvis_agent.core.types import TaskResult
from jarvis_agent.execution.run import Event, Run
from jarvis_agent.interfaces.common.access import openai_error
from jarvis_agent.interfaces.common.limits import unless_disconnected
from jarvis_agent.interfaces.common.locks import digest
from jarvis_agent.interfaces.common.progress import format_event
from jarvis_agent.interfaces.common.uploads_and_outputs import FileUrls
from jarvis_agent.interfaces.server.errors import http_error_of
from jarvis_agent.interfaces.server.workspaces import Own
from jarvis_agent.response.markdown import lines_with_markup, to_markdown

MODEL = "jarvis"
"""The only model that chats."""

_MODEL: dict[str, Any] = {
    "id": MODEL,
    "object": "model",
    "created": int(time.time()),
    "owned_by": MODEL,
    # What a request may hold, in the form of OpenRouter's models.
    "architecture": {
        "input_modalities": ["text", "image", "audio", "video", "file"],
        "output_modalities": ["text"],
    },
}

_STATUS_WAIT_S = 5.0

_FILE_LIST = re.compile(r"\A\s*<attached_files>(.*?)</attached_files>\s*", re.DOTALL)
"""The files of a message, which Open WebUI lists before its text."""
_IMAGE_NAME = re.compile(r'content_type="image/[^"]*" name="([^"]*)"')

_T = TypeVar("_T")


class ChatCompletionRequest(BaseModel):
    """The body of a request; other fields of OpenAI's, such as `temperature`, are ignored."""

    model: str
    messages: Annotated[list[dict[str, Any]], Field(min_length=1, fail_fast=True)]
    stream: bool | None = False
    stream_options: dict[str, Any] | None = None


def _recall(
    memory: ChatMemory, owner: str, messages: Iterable[AnyMessage]
) -> tuple[list[ChatTurn], list[AnyMessage]]:
    """The turns that are known again, with files that still exist, and the other messages. Blocks.

    Clients send the answers again as text alone, with all that was said.
    """
    turns, others = list[ChatTurn](), list[AnyMessage]()
    for message in messages:
        remembered: tuple[ChatTurn, ...] = ()
        if isinstance(message, AIMessage) and others and isinstance(others[-1], HumanMessage):
            remembered = memory.turns(_turn_key(owner, others[-1], message_text(message)))
        if remembered and all(file.path and file.path.exists() for file in remembered[-1].resources):
            others.pop()
            turns.append(remembered[-1])
        else:
            others.append(message)
    return turns, others


def _turn_key(owner: str, message: BaseMessage, answer: str) -> str:
    """What stands for a turn. Programs change the space in and around an answer."""
    return digest(json.dumps([owner, message.content, answer.split()]))


def _without_file_list(message: dict[str, Any]) -> dict[str, Any]:
    """A message of Open WebUI without its list of files, and its images with their names."""
    match message.get("content"):
        case str(text):
            return {**message, "content": _FILE_LIST.sub("", text, count=1)}
        case [{"type": "text", "text": str(text)}, *parts] if listed := _FILE_LIST.match(text):
            names = _IMAGE_NAME.findall(listed[1])
            images = [part for part in parts if isinstance(part, dict) and part.get("type") == "image_url"]
            if len(names) == len(images):
                named = {
                    id(image): image | {"filename": name} for image, name in zip(images, names, strict=True)
                }
                parts = [named.get(id(part), part) for part in parts]
            return {**message, "content": [{"type": "text", "text": text[listed.end() :]}, *parts]}
    return message


class OpenAIRoute(APIRoute):
    """A route whose errors have OpenAI's shape."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def reporting(request: Request) -> Response:
            try:
                return await handle(request)
            except Exception as error:
                status, content = openai_error_of(error)
                # A client that sends a failed request again would start the whole run again.
                headers = {"x-should-retry": "true" if status == 429 else "false"}
                return JSONResponse(content, status, headers | dict(getattr(error, "headers", None) or {}))

        return reporting


router = APIRouter(prefix="/v1", tags=["openai"], route_class=OpenAIRoute)
"""The routes. Their agents may read uploads and files of earlier runs; `app.state.chats` knows the turns."""


def openai_error_of(error: Exception) -> tuple[int, dict[str, Any]]:
    """The HTTP status of an error, and its JSON."""
    param: str | None = None
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        param = ".".join(map(str, first["loc"][1:])) or None
        why = first["msg"].removeprefix("Value error, ")
        status, message = 400, f"{param}: {why}" if param else why
    elif isinstance(error, NoCandidateError | MissingExtraError):
        status, message = 404, public_message(error)
    else:
        known = http_error_of(error)
        status, message = 400 if known.status_code == 422 else known.status_code, known.detail
    code = {404: "model_not_found", 429: "rate_limit_exceeded"}.get(status, "")
    return status, openai_error(status, message, code, param)


def _head(kind: str) -> dict[str, Any]:
    """What a reply, or each chunk of one, begins with."""
    name = f"chatcmpl-{secrets.token_hex(12)}"
    return {"id": name, "object": kind, "created": int(time.time()), "model": MODEL}


def _usage(run: Run) -> dict[str, int]:
    """The tokens of all calls of the language model."""
    read = sum(usage.input_tokens for usage in run.usage.values())
    written = sum(usage.output_tokens for usage in run.usage.values())
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


async def start_stream(request: Request, work: Awaitable[_T]) -> asyncio.Task[_T]:
    """Start the work before a stream, and wait for it for a while.

    An error until then has an HTTP status of its own. Later, the client waits for the work in the stream,
    whose first bytes and comments keep proxies from giving up.
    """
    first = asyncio.ensure_future(work)
    try:
        await unless_disconnected(request, asyncio.wait([first], timeout=_STATUS_WAIT_S))
        if first.done():
            first.result()
    except BaseException:
        first.cancel()
        raise
    return first


async def _stream(
    first: asyncio.Task[Event],
    events: AsyncGenerator[Event, None],
    urls: FileUrls,
    remember: Callable[[str], Awaitable[None]],
    *,
    with_usage: bool,
) -> AsyncIterator[str]:
    """The data of the server-sent events of a run; an error ends them, without "[DONE]".

    `remember` gets the whole answer.
    """
    head, answered, results, line = _head("chat.completion.chunk"), False, list[TaskResult](), ""
    sent = list[str]()

    def chunk(finish: str | None = None, **delta: str) -> str:
        sent.append(delta.get("content", ""))
        return json.dumps({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    try:
        async with aclosing(events):
            try:
                yield chunk(role="assistant", content="")
                event = await first
            finally:  # The client may have gone before it ends.
                await cancel_and_wait([first])
            while event.run is None:
                results += [event.result] if event.result is not None else []
                if event.kind == "token":
                    answered = True
                    # Texts that were read are escaped in whole lines.
                    line += event.text
                    end = line.rfind("\n") + 1 if lines_with_markup(results) else len(line)
                    if end:
                        yield chunk(content=urls.to_urls(to_markdown(line[:end], results)))
                    line = line[end:]
                elif text := format_event(event):
                    yield chunk(reasoning_content=urls.to_urls(f"{text}\n"))
                event = await anext(events)
            if line:
                yield chunk(content=urls.to_urls(to_markdown(line, results)))
        answer = "" if answered else urls.to_urls(to_markdown(event.run.answer, event.run.results))
        yield chunk(content=answer + urls.markdown(event.run))
        await remember("".join(sent))
        yield chunk(finish="stop")
        if with_usage:
            yield json.dumps({**head, "choices": [], "usage": _usage(event.run)})
        yield "[DONE]"
    except Exception as error:
        yield json.dumps(openai_error_of(error)[1])


@router.get("/models")
async def models() -> dict[str, Any]:
    """List the only model."""
    return {"object": "list", "data": [_MODEL]}


@router.get("/models/{name:path}")
async def model_of_name(name: str) -> dict[str, Any]:
    """Return the only model."""
    if name != MODEL:
        raise HTTPException(404, f"there is no model {name[:100]!r}; use {MODEL!r}")
    return _MODEL


@router.post("/chat/completions", response_model=None)
async def complete(
    body: ChatCompletionRequest, request: Request, workspace: Own
) -> Response | dict[str, Any]:
    """Run the last message of the user; with `stream`, as server-sent events."""
    await model_of_name(body.model)
    owner, memory, urls = request.state.owner, request.app.state.chats, FileUrls(workspace.runs, request)
    query = AgentRequest.of({"messages": urls.to_paths([*map(_without_file_list, body.messages)])})
    turns, messages = await asyncio.to_thread(_recall, memory, owner, query.messages)
    agent, query = workspace.stateless.copy(history=turns), AgentRequest(messages=messages)
    thread: RunnableConfig = {"configurable": {"thread_id": secrets.token_hex(12)}}

    async def remember(answer: str) -> None:
        question = next(message for message in reversed(messages) if isinstance(message, HumanMessage))
        turn = (await agent.aget_state(thread)).turns[-1]
        memory.add(_turn_key(owner, question, urls.to_paths(answer)), turn)

    if body.stream:
        events = agent.aevents(query, thread)
        first = await start_stream(request, anext(events))  # it comes after the files are read
        with_usage = bool((body.stream_options or {}).get("include_usage"))
        return EventSourceResponse(_stream(first, events, urls, remember, with_usage=with_usage), sep="\n")
    run = await unless_disconnected(request, agent.ainvoke(query, thread))
    answer = urls.to_urls(to_markdown(run.answer, run.results)) + urls.markdown(run)
    await remember(answer)
    message = {"role": "assistant", "content": answer}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return {**_head("chat.completion"), "choices": choices, "usage": _usage(run)}
