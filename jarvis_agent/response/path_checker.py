"""PathChecker: puts the paths of made files into an answer while it streams.

A path-like word is buffered until it is complete. If it is exactly the name of a made file, its path is put
in its place. A path below the output directory that is none of the known files is marked as missing. All else
passes unchanged, and so does everything in code (between backticks), and a word longer than any path. How the
text is divided into pieces makes no difference.
"""

import os
import re
from collections.abc import Iterable, Mapping

_TOKEN = re.compile(r"(?P<ticks>`+)|[A-Za-z0-9_.~/\\:@+%-]+")
_NO_SPACE = re.compile(r"\S*")
_STOPS = ".,;:!?"
_MAX_LENGTH = 4096  # characters of a path; operating systems allow no more


class PathChecker:
    """Filters one answer, by the names of made files with their paths, and the `known` paths that exist.

    A path in the `directory` of all outputs that does not exist is marked as `missing`.
    """

    def __init__(
        self,
        names: Mapping[str, str],
        directory: str = "",
        known: Iterable[str] = (),
        missing: str = "(no such file)",
    ) -> None:
        self._names = names
        self._directory = directory.rstrip(os.sep) + os.sep
        self._known = frozenset(known)
        self._missing = missing
        self._held = ""
        self._in_long_word = False
        self._ticks = 0

    def feed(self, text: str, *, final: bool = False) -> str:
        """Take the next piece, or the `final` one; returns what may be shown now."""
        text, place, pieces = self._held + text, 0, list[str]()
        while place < len(text):
            if self._in_long_word and (rest := _NO_SPACE.match(text, place)):
                pieces.append(rest.group())
                place = rest.end()
                self._in_long_word = place == len(text)
                continue
            token = _TOKEN.search(text, place)
            start, end = token.span() if token else (len(text), len(text))
            pieces.append(text[place:start])
            place = start
            is_long = end - start > _MAX_LENGTH
            if token is None or (end == len(text) and not final and not is_long):
                break
            pieces.append(token.group() if is_long else self._check(token))
            place, self._in_long_word = end, is_long
        self._held = text[place:]
        return "".join(pieces)

    def _check(self, token: re.Match[str]) -> str:
        """The text to show for a complete token."""
        text = token.group()
        if token["ticks"]:
            # Code ends with as many backticks as it began with.
            self._ticks = 0 if self._ticks == len(text) else self._ticks or len(text)
            return text
        path = text.rstrip(_STOPS)
        if self._ticks:
            return text
        if path in self._names:
            return self._names[path] + text[len(path) :]
        is_invented = path.startswith(self._directory) and not any(
            known == path or known.startswith(f"{path.rstrip(os.sep)}{os.sep}") for known in self._known
        )
        return f"{path} {self._missing}{text[len(path) :]}" if is_invented else text
