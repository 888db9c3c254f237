"""Results in the content of a message, so that the language model which called for them sees them.

kinds = visible_kinds("auto", model)                     # {"image"}: by the profile of the calling model
message_content("image: /out/a.png", resources, kinds)   # [{"type": "text", …}, {"type": "image", …}]
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable
from typing import Any, Literal

from jarvis_agent.core.errors import BadInputError
from jarvis_agent.core.types import Resource

ContentForm = Literal["text", "blocks", "auto"]
"""Form of the content of a message: text with the paths of files, or LangChain's content blocks.

"auto": the images as blocks, if the calling model takes images in tool messages by its `profile`.
"""

MAX_SIDE = 1024
"""Longest side of an image in a content block, in pixels. A larger one is scaled down."""

MAX_BLOCK_BYTES = 4_000_000
"""Largest file in a content block. Of a larger one, the text has the path."""


def visible_kinds(content: ContentForm, model: Any) -> frozenset[str]:
    """The kinds of content blocks, other than text, that a message for this model has: "image" and "file".

    Args:
        content: the form of the content.
        model: the calling chat model, for "auto"; None, or one without a profile, takes text only.
    """
    if content == "blocks":
        return frozenset({"image", "file"})
    model = getattr(model, "bound", model)
    profile = getattr(model, "profile", None) or {}
    # OpenAI's profiles are true of the Responses API. Chat Completions rejects images in tool messages.
    sees = profile.get("image_inputs") and profile.get("image_tool_message")
    sees = sees and getattr(model, "use_responses_api", True)
    return frozenset({"image"}) if content == "auto" and sees else frozenset()


def message_content(text: str, resources: Iterable[Resource], kinds: frozenset[str]) -> Any:
    """The text, or content blocks: the text first, then the files of these kinds. Blocks: reads the files.

    A file that is too large, or that cannot be read any more, is left out. Sound and video are blocks of the
    type "file": LangChain's tools turn content with their own types into text.
    """
    blocks = [block for file in resources if (block := _block(file, kinds)) is not None]
    return [{"type": "text", "text": text}, *blocks] if blocks else text


def _block(file: Resource, kinds: frozenset[str]) -> dict[str, Any] | None:
    kind = "image" if file.kind == "image" else "file"
    if file.path is None or kind not in kinds:
        return None
    try:
        if kind == "image" and (image := _scaled_down(file)):
            return image
        if file.path.stat().st_size > MAX_BLOCK_BYTES:
            return None
        name = {} if kind == "image" else {"filename": file.path.name}
        return {**file.to_content_block(), "type": kind, **name}
    except (BadInputError, OSError):
        return None


def _scaled_down(file: Resource) -> dict[str, Any] | None:
    """An image that is scaled down; None if its file is small enough as it is."""
    image = file.to_pil()
    if max(image.size) <= MAX_SIDE and file.mime in ("image/png", "image/jpeg", "image/webp"):
        return None
    image.thumbnail((MAX_SIDE, MAX_SIDE))
    name, content = ("png" if image.mode == "RGBA" else "jpeg"), io.BytesIO()
    image.save(content, name)
    data = base64.b64encode(content.getvalue()).decode()
    return {"type": "image", "base64": data, "mime_type": f"image/{name}"}
