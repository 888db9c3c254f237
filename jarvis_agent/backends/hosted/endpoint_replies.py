"""Replies of inference endpoints and Spaces in forms of their own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.outputs.validators import describe_value
from jarvis_agent.core.content import decode_base64
from jarvis_agent.core.errors import InputError, UnsupportedError
from jarvis_agent.core.notes import Note
from jarvis_agent.core.text import brief_text


def read_reply(reply: bytes, call: Call, open_file: Callable[[bytes, Call], Any] | None = None) -> Any:
    """The raw output in a reply: JSON, a text, or what `open_file` makes of its first file."""
    value: Any = reply
    with suppress(UnicodeDecodeError):
        value = reply.decode()
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    if isinstance(value, Mapping) and "error" in value:
        raise UnsupportedError(f"{call.spec.name} failed there: {brief_text(str(value['error']), 200)}")
    if open_file is not None:
        made = []
        for content in _files_in(value):
            with suppress(Exception):  # libraries raise errors of any kind for what they cannot read
                made.append(open_file(content, call))
        if made[1:]:
            first = "the first of {number} results of {model} was taken"
            call.notes.append(Note(first, number=len(made), model=call.candidate.id))
        if made:
            return made[0]
    elif call.spec.outputs[0] == "text" and (text := text_in(value)) is not None:
        return text
    elif isinstance(value, Mapping | list):
        return value
    raise UnsupportedError(f"{call.spec.name} cannot be read from its answer, {describe_value(value)}")


def text_in(value: Any) -> str | None:
    """A text, a number, the only text of a dict, or the last message of a chat; None for anything else."""
    match value:
        case str():
            is_page = value.lstrip()[:9].lower().startswith(("<!doctype", "<html"))
            return value if value.strip() and not is_page else None
        case int() | float():
            return str(value)
        case [{"type": "text", "text": only}] | [*_, {"role": "assistant", "content": only}] | [only]:
            return text_in(only)
        case Mapping() if "error" not in value:
            texts = [part for part in value.values() if isinstance(part, str)]
            return text_in(texts[0]) if len(texts) == 1 else None
    return None


def _files_in(value: Any) -> Iterator[bytes]:
    """What may be files: bytes, and texts in base64, also in data URLs."""
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, str):
        with suppress(InputError):
            yield decode_base64(value.rpartition("base64,")[2])
    elif isinstance(value, Mapping | list):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _files_in(part)
