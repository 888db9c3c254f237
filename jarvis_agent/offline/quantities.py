"""The numbers that a step names: how many, how far ahead, how wide and high, which box.

    amount("horizon", "forecast the next 12 rows of \\ue000")          # 12
    amount("width", "resize \\ue000 to 640x480")                        # 640
    amount("box", "crop \\ue000 to the box 10, 20, 200, 220")           # [10, 20, 200, 220]

A new argument of that kind is a row of PATTERNS.
"""

from __future__ import annotations

import re

_TIMES = r"(?:rows?|steps?|points?|values?|periods?|hours?|days?|weeks?|months?|quarters?|years?)"
_TO_NEXT = r"(?:\)?\s*(?:[,;/]|\bto\b|\band\b|-)\s*\(?|\s+)"
_PIXELS = r"(?:\s*(?:px|pixels?))?"

PATTERNS: dict[str, tuple[str, ...]] = {
    "horizon": (
        r"\b(?:next|coming|following|another)\s+(\d+)\b",
        rf"\b(\d+)\s+(?:more\s+|further\s+)?{_TIMES}\b",
        r"\bhorizon(?:\s+(?:of|is|=))?\s+(\d+)\b",
    ),
    "count": (r"\b(\d+)\s+(?:\w+\s+)?(?:frames?|pictures?|images?|stills?|screenshots?|photos?)\b",),
    "width": (
        rf"\b(\d+){_PIXELS}\s*(?:[x×*]|by)\s*\d+",
        rf"\b(\d+){_PIXELS}\s+(?:wide|in width|across)\b",
        r"\bwidth(?:\s+(?:of|to|is|=))?\s+(\d+)\b",
        rf"\bto\s+(\d+)\b(?!{_PIXELS}\s*(?:[x×*]|by\b|high|tall|in height))",
    ),
    "height": (
        rf"\b\d+{_PIXELS}\s*(?:[x×*]|by)\s*(\d+)",
        rf"\b(\d+){_PIXELS}\s+(?:high|tall|in height)\b",
        r"\bheight(?:\s+(?:of|to|is|=))?\s+(\d+)\b",
    ),
    "box": (rf"(-?\d+){_TO_NEXT}(-?\d+){_TO_NEXT}(-?\d+){_TO_NEXT}(-?\d+)",),
}
"""By argument: patterns, of which the first that is found counts; its groups are the numbers."""
_IN_WORDS = {
    "two": "2",
    "three": "3",
    "four": "4",
    "five": "5",
    "six": "6",
    "eight": "8",
    "ten": "10",
    "twelve": "12",
}


def amount(name: str, text: str) -> int | list[int] | None:
    """The number, or the list of numbers, that a step gives for an argument; None if it gives none."""
    if name in ("count", "horizon"):
        text = re.sub(r"\w+", lambda word: _IN_WORDS.get(word[0].lower(), word[0]), text)
    for pattern in PATTERNS.get(name, ()):
        if found := re.search(pattern, text, re.IGNORECASE):
            numbers = [int(group) for group in found.groups()]
            return numbers[0] if len(numbers) == 1 else numbers
    return None
