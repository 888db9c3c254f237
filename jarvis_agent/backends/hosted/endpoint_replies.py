"""Replies of inference endpoints whose handlers do not have the Hub's forms.

read_reply(b'"a cat"', caption)                              # "a cat"
read_reply(b'{"data": [{"b64_json": "iVB…"}]}', draw, open)     # what `open` makes of the first picture
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.chat_model import answer_output
from jarvis_agent.backends.outputs.validators import describe_value
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.text import brief_text


def read_reply(reply: bytes, call: Call, open_file: Callable[[bytes, Call], Any] | None = None) -> Any:
    """The raw output in a reply: JSON, a text, or for a task that makes a file the first one, also in base64.

    Args:
        open_file: makes a raw output of a file; raises an exception if it is of another kind.

    Raises:
        UnsupportedError: the reply has no meaning for the task; the message describes it.
    """
    value = _parse(reply)
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    texts = [one for one in value.values() if isinstance(one, str)] if isinstance(value, Mapping) else []
    if open_file is not None:
        made = []
        for content in _files_in(value):
            with suppress(Exception):  # libraries raise errors of any kind for what they cannot read
                made.append(open_file(content, call))
        if made[1:]:
            call.notes.append(f"the first of {len(made)} results of {call.candidate.id} was taken")
        if made:
            return made[0]
    elif isinstance(value, str) and _is_prose(value):
        return answer_output(call.spec, value)
    elif isinstance(value, Mapping | list) and "error" not in value:
        is_text = len(texts) == 1 and call.spec.outputs[0] == "text"
        return answer_output(call.spec, texts[0]) if is_text else value
    raise UnsupportedError(f"{call.spec.name} cannot be read from its answer, {_describe(reply, value)}")


def _parse(reply: bytes) -> Any:
    """A reply as JSON, else as text, else as bytes."""
    with suppress(ValueError):
        return json.loads(reply)
    with suppress(UnicodeDecodeError):
        return reply.decode()
    return reply


def _is_prose(text: str) -> bool:
    return bool(text.strip()) and not text.lstrip().lower().startswith(("<!doctype", "<html"))


def _files_in(value: Any) -> Iterator[bytes]:
    """What may be files: bytes, and texts in base64, also in data URLs, with and without padding."""
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, str):
        text = "".join(value.rpartition("base64,")[2].split()).translate({ord("-"): "+", ord("_"): "/"})
        with suppress(ValueError):
            yield base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), validate=True)
    elif isinstance(value, Mapping | list):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _files_in(part)


def _describe(reply: bytes, value: Any) -> str:
    if isinstance(value, Mapping) and "error" in value:
        return f"the error {brief_text(str(value['error']), 200)}"
    if isinstance(value, str) and value.strip():
        return f"the text {brief_text(repr(value), 80)}" if _is_prose(value) else "a web page"
    return describe_value(value) if value and not isinstance(value, bytes) else f"{len(reply):,} bytes"
