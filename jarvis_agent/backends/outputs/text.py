"""Adapters of what was written: texts, readings of pages, transcripts, answers that are spoken too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.outputs.validators import plain, rows, text, text_under
from jarvis_agent.backends.outputs.adapted import Adapted, Adapter
from jarvis_agent.backends.outputs.sounds import sound

if TYPE_CHECKING:
    from jarvis_agent.backends.base import Call


def text_as(key: str, *others: str) -> Adapter:
    """The adapter of a task whose output is {key: text}, where that may also come under other keys."""

    def adapter(raw: Any, call: Call) -> Adapted:
        written = text_under(raw, key, *others, "generated_text", "text")
        return Adapted({key: written}, written)

    return adapter


def image_text(raw: Any, call: Call) -> Adapted:
    """{generated_text}, and the lines of a page that was read."""
    written = text_under(raw, "generated_text", "text")
    lines = {"lines": plain(raw["lines"])} if isinstance(raw, Mapping) and "lines" in raw else {}
    return Adapted({"generated_text": written, **lines}, written)


def transcript(raw: Any, call: Call) -> Adapted:
    """{text}, and chunks with their times in seconds where the model tells them."""
    written = text_under(raw, "text")
    output: dict[str, Any] = {"text": written}
    if isinstance(raw, Mapping) and raw.get("chunks"):
        output["chunks"] = [
            {"text": text(row["text"]), "timestamp": plain(row["timestamp"])}
            for row in rows(raw["chunks"], "text", "timestamp")
        ]
    return Adapted(output, written)


def spoken_text(raw: Any, call: Call) -> Adapted:
    """{generated_text}, and under `audio` what was spoken, where the model speaks."""
    written = text_under(raw, "generated_text", "text")
    if not isinstance(raw, Mapping) or raw.get("audio") is None:
        return Adapted({"generated_text": written}, written)
    heard = sound(raw, call)
    return Adapted({"generated_text": written, "audio": heard.output}, written, heard.files)
