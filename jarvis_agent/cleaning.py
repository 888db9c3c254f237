r"""Text without what a terminal would obey and XML does not allow.

clean("\x1b[31mred\x1b[0m")       # "red"
"""

from __future__ import annotations

import re

_SEQUENCES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movements
    r"|\x1b[\]PX^_][^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # OSC and its kin: titles, links, clipboard
    r"|\x1b[ -/]*[0-~]?"
)
_TURNING = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""What changes the direction of the text that follows, and so can make it read as something else."""

_CONTROLS = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_TURNING}]")


def clean(text: str) -> str:
    """The text without what a terminal obeys: escape sequences and controls other than tab and newline."""
    return _CONTROLS.sub("", _SEQUENCES.sub("", text))


def clean_json(text: str) -> str:
    """The same JSON; control characters that JSON allows and terminals may obey are escaped."""
    return re.sub(rf"[\x7f-\x9f{_TURNING}]", lambda match: f"\\u{ord(match[0]):04x}", text)
