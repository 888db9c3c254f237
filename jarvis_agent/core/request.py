"""Requests to an agent, made from text, a dict or LangChain messages."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
from langchain_core.messages.utils import convert_to_messages
from langchain_core.prompt_values import PromptValue
from pydantic import Field, ValidationError, field_validator

from jarvis_agent.core.content import media_blocks, message_text
from jarvis_agent.core.errors import InputError, TooLongError, describe_error
from jarvis_agent.core.images import is_pil_image, png_of
from jarvis_agent.core.text import brief_text
from jarvis_agent.core.types import Frozen

MAX_TEXT_BYTES = 1_000_000
"""Longest text of one request, its chat history included."""

_FORMS = 'a request is a text, or a dict such as {"input": "…", "files": ["a.jpg"]} or {"messages": […]}'
_MESSAGES = 'a list of messages such as {"role": "user", "content": "…"}'
_TAKES = {"input": "a text", "chat_history": _MESSAGES, "messages": _MESSAGES}


class Request(Frozen):
    """A request to the agent.

        Request.of("How many cats are in a.jpg?")
        Request.of({"input": "…", "files": ["a.jpg"], "chat_history": [HumanMessage("…"), AIMessage("…")]})
        Request.of({"messages": [HumanMessage([{"type": "text", "text": "…"}, {"type": "image", "url": …}])]})

    Attributes:
        input: the text of the request.
        files: paths, http(s) URLs, bytes or PIL images; a single one needs no list. Bytes and images become
            data URIs.
        chat_history: earlier messages of the chat, oldest first.
        messages: LangChain messages instead of `input`: the last human one is the request, its content blocks
            are files, and earlier messages are the history.
    """

    input: str = ""
    files: list[str] = Field(default_factory=list)
    chat_history: list[AnyMessage] = Field(default_factory=list)
    messages: list[AnyMessage] = Field(default_factory=list)

    @field_validator("chat_history", "messages", mode="before")
    @classmethod
    def _as_messages(cls, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        messages = [_message(item, is_last=item is value[-1]) for item in value]
        return [message for message in messages if message is not None]

    @field_validator("files", mode="before")
    @classmethod
    def _as_names(cls, value: Any) -> Any:
        return [_file_name(item) for item in (value if isinstance(value, list | tuple) else [value])]

    @classmethod
    def of(
        cls, value: str | Mapping[str, Any] | Request | list[BaseMessage] | BaseMessage | PromptValue
    ) -> Request:
        """Convert any input of `JarvisAgent.invoke`.

        Raises:
            InputError: the value has another form; the message names the field and its accepted values.
        """
        if isinstance(value, Request):
            return value
        if isinstance(value, str):
            return cls(input=value)
        if isinstance(value, PromptValue):
            value = value.to_messages()
        if isinstance(value, list | BaseMessage):
            value = {"messages": value if isinstance(value, list) else [value]}
        try:
            return cls.model_validate(value)
        except (NotImplementedError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{_FORMS}; {_fault(error)}") from error

    @property
    def text(self) -> str:
        """The text of the request, from `input` or the last human message."""
        _, message = self._parts()
        return (message_text(message) if message is not None else self.input).strip()

    @property
    def history(self) -> list[BaseMessage]:
        """The messages before the request."""
        return [*self.chat_history, *self._parts()[0]]

    @property
    def blocks(self) -> list[dict[str, Any]]:
        """Content blocks of the request's message other than text."""
        _, message = self._parts()
        return media_blocks(message) if message is not None else []

    def check_length(self) -> None:
        """Refuse more than `MAX_TEXT_BYTES` of text, earlier messages included.

        Raises TooLongError: there are more.
        """
        texts = [self.input, *map(message_text, (*self.chat_history, *self.messages))]
        size = sum(len(text.encode(errors="surrogatepass")) for text in texts)
        if size > MAX_TEXT_BYTES:
            raise TooLongError(
                f"the request has {size:,} bytes of text with its chat history, more than "
                f"{MAX_TEXT_BYTES:,}; attach a long text as a file"
            )

    def _parts(self) -> tuple[list[AnyMessage], BaseMessage | None]:
        """The messages before the request, and its own, if it is not `input`."""
        places = [i for i, message in enumerate(self.messages) if isinstance(message, HumanMessage)]
        if self.input.strip() or not places:
            return self.messages, None
        return self.messages[: places[-1]], self.messages[places[-1]]


_KINDS: dict[str, type[BaseMessage]] = {
    **dict.fromkeys(("user", "human"), HumanMessage),
    **dict.fromkeys(("assistant", "ai"), AIMessage),
}
"""The roles whose messages are read in a history."""


def _message(item: Any, *, is_last: bool) -> Any:
    """A message as LangChain reads it; None for an earlier one of another role, such as a tool's.

    One odd part must not end a chat whose messages are sent again with each request.
    """
    if not isinstance(item, dict) or "role" not in item:  # pydantic validates dumped messages
        is_odd = isinstance(item, dict) and "type" not in item and not is_last
        return None if is_odd else item if isinstance(item, dict) else convert_to_messages([item])[0]
    if kind := _KINDS.get(str(item["role"])):
        content = item.get("content") or item.get("refusal") or ""
        parts = content if isinstance(content, list) else [content]
        texts = [part for part in parts if is_last or isinstance(part, str | dict)]
        return kind(content if isinstance(content, str) else texts)
    return convert_to_messages([item])[0] if is_last else None


def _file_name(item: Any) -> str:
    """A path or URL as it is; other forms of a file as a data URI. Raises ValueError."""
    if isinstance(item, str | PurePath):
        return str(item)
    mime, content = ("image/png", png_of(item)) if is_pil_image(item) else ("", item)
    if isinstance(content, bytes | bytearray):
        return f"data:{mime};base64,{base64.b64encode(content).decode()}"
    raise ValueError(f"a file is a path, a URL, bytes or a PIL image, not of type {type(item).__name__}")


def _fault(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        # The lines after LangChain's first one link to its manual.
        reason = describe_error(error).splitlines()[0]
        return f"a message of this one cannot be read: {brief_text(reason, 100)}"
    first = error.errors(include_url=False)[0]
    field = str(first["loc"][0]) if first["loc"] else ""
    if field == "files":
        return f"files: {first['msg'].removeprefix('Value error, ')}"
    if field in _TAKES:
        return f"{field}: this takes {_TAKES[field]}, not {brief_text(repr(first['input']), 100)}"
    if field:
        return f"{field}: there is no such field"
    return f"this one cannot be read: {first['msg']}"
