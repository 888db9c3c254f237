"""The numbers that a step names: how many, how far ahead, how wide and high, which box.

    amount("horizon", "forecast the next 12 rows of \\ue000")          # 12
    amount("width", "resize \\ue000 to 640x480")                        # 640
    amount("box", "crop \\ue000 to the box 10, 20, 200, 220")           # [10, 20, 200, 220]

The patterns are in data/patterns.toml; the first that is found counts, and its groups are the numbers.
"""

from __future__ import annotations

import re

from jarvis_agent.offline.patterns import patterns

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
    for form in patterns(f"quantities.{name}"):
        if found := form.search(text):
            numbers = [int(group) for group in found.groups()]
            return numbers[0] if len(numbers) == 1 else numbers
    return None
