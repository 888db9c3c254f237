"""What goes over the wire: LangServe's form of things, and more kinds of things.

LangServe's own serializer can not write the error in an event such as "on_tool_error", and ends the stream.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
from langserve.serialization import WellKnownLCSerializer
from pydantic import BaseModel

from jarvis_agent.core.errors import JarvisError


class WholeSerializer(WellKnownLCSerializer):  # type: ignore[misc]
    """LangServe's serializer, which has a form for everything."""

    def dumps(self, obj: Any) -> bytes:
        """`obj` as JSON."""
        return orjson.dumps(obj, default=_plain, option=orjson.OPT_NON_STR_KEYS)


def _plain(value: Any) -> Any:
    """A value of a kind that JSON does not know. Of foreign ones only the kind is told: it may be secret."""
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, Path | JarvisError):
        return str(value)
    return f"<{type(value).__name__}>"
