"""Results as content blocks of messages, so that a language model sees what it called for."""

import base64
from collections.abc import Collection, Iterable
from typing import Any, Literal

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.block_translators import register_translator

from jarvis_agent.core.errors import BadInputError
from jarvis_agent.core.images import to_portable
from jarvis_agent.core.types import Resource

ContentForm = Literal["text", "blocks"]
"""Form of the content of a message: text with the paths of files, or LangChain's content blocks."""

_KINDS = {"text": (), "images": ("image",), "blocks": ("image", "file")}
"""The kinds of content blocks, other than text, of a form."""

MAX_SIDE = 1024
"""Longest side of an image in a content block, in pixels. A larger one is scaled down."""

MAX_BLOCK_BYTES = 4_000_000
"""Largest file in a content block. Of a larger one, the text has the path."""

PROVIDER = "jarvis_agent"
"""The `model_provider` of answers. Their `content_blocks` are the text, and the blocks kept beside it."""

_MOVED = {"type": "text", "text": "The files of the messages above:"}


def messages_for(model: Any, messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """The messages as a chat model can read them: with the files that it takes, where it takes them.

    Chat Completions takes images of users alone, so those of a tool, and of an answer of this agent, follow
    in a human message. Files that the model does not take by its `profile` are left out; the text before
    them has their paths.
    """
    readable, moved = list[BaseMessage](), list[Any]()
    for message in messages:
        if moved and not isinstance(message, ToolMessage):
            readable.append(HumanMessage([_MOVED, *moved]))
            moved = []
        if isinstance(message, ToolMessage) and isinstance(message.content, list):
            kept = [block for block in message.content if _takes(model, _kind(block), "tool_message")]
            moved += [block for block in message.content if block not in kept]
            message = message.model_copy(update={"content": kept})
        elif message.response_metadata.get("model_provider") == PROVIDER:
            moved += [block for block in message.content_blocks if _kind(block) != "text"]
            message = message.model_copy(update={"content": str(message.text)})
        moved = [_typed(block) for block in moved if _takes(model, _kind(block), "inputs")]
        readable.append(message)
    return [*readable, HumanMessage([_MOVED, *moved])] if moved else readable


def _takes(model: Any, kind: str, where: Literal["inputs", "tool_message"]) -> bool:
    """Whether a chat model takes content of a kind, by its profile."""
    model = getattr(model, "bound", model)
    profile = getattr(model, "profile", None) or {}
    # OpenAI's profiles are true of the Responses API. Chat Completions takes only text in tool messages.
    of_tools = where == "inputs" or getattr(model, "use_responses_api", True)
    return kind == "text" or bool(
        of_tools and profile.get(f"{kind}_inputs") and profile.get(f"{kind}_{where}")
    )


def _kind(block: Any) -> str:
    """The kind of a block, in the words of profiles: "text", "image", "audio", "video", "pdf" or another."""
    if not isinstance(block, dict):
        return "text"
    kind = str(block.get("mime_type") or block.get("type")).removeprefix("application/")
    return kind.partition("/")[0]


def _typed(block: dict[str, Any]) -> dict[str, Any]:
    """Sound and video as blocks of their own types, which tools of LangChain cannot return."""
    kind = _kind(block)
    return {**block, "type": kind} if kind in ("audio", "video") else block


def message_content(
    text: str, resources: Iterable[Resource], content: ContentForm | Literal["images"]
) -> Any:
    """The text, or content blocks: the text first, then the files, or only the images. Reads the files.

    A file that is too large, or that cannot be read any more, is left out. Sound and video are blocks of the
    type "file": LangChain's tools turn content with their own types into text.
    """
    blocks = [block for file in resources if (block := _block(file, _KINDS[content])) is not None]
    return [{"type": "text", "text": text}, *blocks] if blocks else text


def _answer_blocks(message: AIMessage) -> list[Any]:
    plain = message.model_copy(update={"response_metadata": {}})
    return [*plain.content_blocks, *message.additional_kwargs.get("blocks", ())]


register_translator(PROVIDER, _answer_blocks, _answer_blocks)


def _block(file: Resource, kinds: Collection[str]) -> dict[str, Any] | None:
    kind = "image" if file.kind == "image" else "file"
    if file.path is None or kind not in kinds:
        return None
    try:
        if kind == "image":
            content, mime = to_portable(file.path, file.mime, MAX_SIDE)
            if len(content) > MAX_BLOCK_BYTES:
                return None
            return {"type": kind, "base64": base64.b64encode(content).decode(), "mime_type": mime}
        if file.path.stat().st_size > MAX_BLOCK_BYTES:
            return None
        return {**file.to_content_block(), "type": kind, "filename": file.path.name}
    except (BadInputError, OSError):
        return None
