"""A task's arguments as the message of a chat, in the form that OpenAI's API and those like it take.

    messages({"text": "What is it?", "image": resource})
    # [{"role": "user", "content": [{"type": "text", …}, {"type": "image_url", …}]}]

Files are sent inside the message: images as data URLs, recordings as `input_audio`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jarvis_agent.core.errors import BadInputError, UnsupportedError
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Resource

MAX_BYTES = 20_000_000
"""Largest file that is put into a message, in bytes; the usual limit of those who serve such models."""

_ANSWERS = frozenset({"question-answering", "visual-question-answering", "document-question-answering"})
_SOUNDS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def messages(inputs: Mapping[str, Any], text: str | None = None) -> list[dict[str, Any]]:
    """One message of the user: `text` (else the argument of that name) and the files among the inputs.

    Raises:
        BadInputError: a file is too large to be sent.
        UnsupportedError: a file is of a kind that can not be put into a message.
    """
    said = text if text is not None else str(inputs.get("text") or "")
    files = [value for value in inputs.values() if isinstance(value, Resource)]
    if not files:
        return [{"role": "user", "content": said}]
    content = [{"type": "text", "text": said}, *(_part(file) for file in files)]
    return [{"role": "user", "content": content}]


def answer_of(spec: TaskSpec, said: str) -> Any:
    """What a model wrote as a raw output of the task: answers stand in a list, with no score."""
    return [{"answer": said, "score": None}] if spec.name in _ANSWERS else said


def _part(file: Resource) -> dict[str, Any]:
    mime = file.mime or ""
    if file.kind == "image":
        return {"type": "image_url", "image_url": {"url": f"data:{mime or 'image/png'};base64,{_sent(file)}"}}
    if file.kind == "audio" and mime in _SOUNDS:
        return {"type": "input_audio", "input_audio": {"data": _sent(file), "format": _SOUNDS[mime]}}
    raise UnsupportedError(f"{mime or file.kind} can not be put into a message of a chat")


def _sent(file: Resource) -> str:
    """A file's content in base64."""
    path = Path(file.path or "")
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise BadInputError(f"{path.name} has {size:,} bytes, and {MAX_BYTES:,} can be sent; make it smaller")
    return base64.b64encode(path.read_bytes()).decode()
