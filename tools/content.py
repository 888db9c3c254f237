"""What a tool returned, as content blocks and plain JSON.

tool = with_content_blocks(tool)        # a PIL image that it returns becomes an image block
media_blocks(message.artifact)          # the images, audio and videos of an artifact
json_output(message, text)              # the artifact, else the dict or list in the text, else the text
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from pydantic_core import to_jsonable_python

from jarvis_agent.core.display import is_pil_image, png_of
from jarvis_agent.core.tasks.spec import MEDIA

_MCP_BLOCKS = ("text", "image", "audio", "resource", "resource_link")


def with_content_blocks(tool: BaseTool) -> BaseTool:
    """A copy of a tool made from functions; what LangChain would turn into its repr becomes a block.

    These are PIL images and bytes, alone or in a list. A list of texts becomes JSON, and None an empty text.
    """
    functions = {
        name: wrap(function)
        for name, wrap in (("func", _sync), ("coroutine", _async))
        if (function := getattr(tool, name, None)) is not None
    }
    return tool.model_copy(update=functions) if functions else tool


def _sync(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        return _as_content(function(*args, **kwargs))

    return run


def _async(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    async def run(*args: Any, **kwargs: Any) -> Any:
        return _as_content(await function(*args, **kwargs))

    return run


def _as_content(value: Any) -> Any:
    if value is None:
        return ""
    items = value if isinstance(value, list) else [value]
    if items is value and items and all(isinstance(item, str) for item in items):
        return json.dumps(items, ensure_ascii=False)
    if not any(_is_media(item) for item in items):
        return value
    blocks: list[Any] = []
    for item in items:
        other = item if isinstance(item, Mapping) else {"type": "text", "text": str(item)}
        blocks += media_blocks(item) if _is_media(item) else [other]
    return blocks


def _is_media(value: Any) -> bool:
    return isinstance(value, bytes) or is_pil_image(value)


def media_blocks(artifact: Any) -> list[Mapping[str, Any]]:
    """The images, audio and videos of an artifact: content blocks, PIL images or bytes."""
    if isinstance(artifact, list | tuple):
        return [block for item in artifact for block in media_blocks(item)]
    if isinstance(artifact, Mapping) and artifact.get("type") in MEDIA and "base64" in artifact:
        return [artifact]
    if not _is_media(artifact):
        return []
    kind, content = ("file", artifact) if isinstance(artifact, bytes) else ("image", png_of(artifact))
    return [{"type": kind, "base64": base64.b64encode(content).decode()}]


def json_output(message: ToolMessage, text: str) -> Any:
    """The artifact as JSON, unless it is a file or unknown; else the JSON in the text, or the text."""
    artifact = _structured(message.artifact)
    if not media_blocks(artifact):
        output = to_jsonable_python(artifact, fallback=_type_name)
        if output is not None and output != _type_name(artifact):
            return output
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _type_name(value: Any) -> str:
    return f"<{type(value).__name__}>"


def _structured(artifact: Any) -> Any:
    """An artifact as it is; of an MCP tool, its structured content, unless that repeats content blocks."""
    if not (isinstance(artifact, Mapping) and artifact.keys() == {"structured_content"}):
        return artifact
    content = artifact["structured_content"]
    if isinstance(content, Mapping) and content.keys() == {"result"}:  # the MCP SDK wraps what is no object
        content = content["result"]
    first = content[0] if isinstance(content, list) and content else content
    return None if isinstance(first, Mapping) and first.get("type") in _MCP_BLOCKS else content
