r"""Text without what a terminal would obey and XML does not allow, or what can not be encoded.

clean("\x1b[31mred\x1b[0m")       # "red"
sound("one \ud83d\ude00, \ud800")  # "one 😀, \ufffd"
"""

from __future__ import annotations

import re
from typing import Any

_SEQUENCES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movements
    r"|\x1b[\]PX^_][^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # OSC and its kin: titles, links, clipboard
    r"|\x1b[ -/]*[0-~]?"
)
_TURNING = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""What changes the direction of the text that follows, and so can make it read as something else."""

_CONTROLS = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_TURNING}]")

_SURROGATE = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """The text without what a terminal obeys: escape sequences and controls other than tab and newline."""
    return _CONTROLS.sub("", _SEQUENCES.sub("", text))


def clean_json(text: str) -> str:
    """The same JSON; control characters that JSON allows and terminals may obey are escaped."""
    return re.sub(rf"[\x7f-\x9f{_TURNING}]", lambda match: f"\\u{ord(match[0]):04x}", text)


def sound(text: str) -> str:
    """The text with surrogate pairs joined and lone ones replaced: what can be encoded."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def sound_data(data: Any) -> Any:
    """Plain data with every text in it made `sound`; what is none (an object) stays as it is."""
    if isinstance(data, str):
        return sound(data)
    if isinstance(data, dict):
        return {sound_data(name): sound_data(part) for name, part in data.items()}
    return type(data)(map(sound_data, data)) if type(data) in (list, tuple) else data
