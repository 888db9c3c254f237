"""RepetitionFilter: end a reply that repeats one block of text over and over, as small models do.

repetition = RepetitionFilter()
repetition.feed("I see a cat. " * 40)    # 24 times "I see a cat. "
repetition.found                         # True
"""

from __future__ import annotations

_COPIES = 3
_SHORTEST = 300
"""Characters that all copies of a block have at least, so that "ha ha ha" and a row of dashes pass."""

_LONGEST_BLOCK = 2000
_STEP = 50
"""Most characters between two checks, and the length of the text that is looked for."""


class RepetitionFilter:
    """Filters one reply. `found` is true once its end repeats one block at least three times."""

    def __init__(self) -> None:
        self.found = False
        self._tail = ""

    def feed(self, text: str) -> str:
        """Return the text, up to the end of the last copy that is needed to recognise a repetition."""
        for place in range(0, len(text), _STEP):
            self._tail = (self._tail + text[place : place + _STEP])[-_COPIES * _LONGEST_BLOCK :]
            if self._ends_in_copies():
                self.found = True
                return text[: place + _STEP]
        return text

    def _ends_in_copies(self) -> bool:
        place = end = max(0, len(self._tail) - _STEP)
        while end and (place := self._tail.rfind(self._tail[end:], 0, place + _STEP - 1)) >= 0:
            period = end - place
            last = self._tail[-max(_COPIES * period, _SHORTEST) :]
            if len(last) >= max(_COPIES * period, _SHORTEST) and last[period:] == last[:-period]:
                return True
        return False
