"""Adapters of texts: generated text, text read from images, transcripts, answers that are also spoken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.outputs.media import sound
from jarvis_agent.backends.outputs.validators import (
    Adapted,
    Adapter,
    find_text,
    read_rows,
    text,
    to_builtin,
)


def text_as(key: str) -> Adapter:
    """The adapter of a task whose output is {key: text}."""

    def adapter(raw: Any, call: Call) -> Adapted:
        found = find_text(raw, key, "generated_text", "text")
        return Adapted({key: found}, found)

    return adapter


def image_text(raw: Any, call: Call) -> Adapted:
    """{generated_text}, and the lines of a page if the model returns them."""
    found = find_text(raw, "generated_text", "text")
    lines = {"lines": to_builtin(raw["lines"])} if isinstance(raw, Mapping) and "lines" in raw else {}
    return Adapted({"generated_text": found, **lines}, found)


def transcript(raw: Any, call: Call) -> Adapted:
    """{text}, and chunks with their times in seconds if the model returns them."""
    found = find_text(raw, "text")
    output: dict[str, Any] = {"text": found}
    if isinstance(raw, Mapping) and raw.get("chunks"):
        output["chunks"] = read_rows(raw["chunks"], {"text": text, "timestamp": to_builtin})
    return Adapted(output, found)


def spoken_text(raw: Any, call: Call) -> Adapted:
    """{generated_text}, and under `audio` the spoken answer if the model speaks."""
    found = find_text(raw, "generated_text", "text")
    if not isinstance(raw, Mapping) or raw.get("audio") is None:
        return Adapted({"generated_text": found}, found)
    spoken = sound(raw, call)
    return Adapted({"generated_text": found, "audio": spoken.output}, found, spoken.files)
