"""PathChecker: checks the file paths in an answer while it streams.

    checker = PathChecker(made=[speech], quoted=[request])
    checker.feed("The speech is in /tmp/spe")      # "The speech is in "
    checker.feed("ech.wav, enjoy")                 # "/outputs/1/speech.wav, "
    checker.finish()                               # "enjoy"

A path-like word is buffered until it is complete. It passes if it exists, or if the request or a result names
it. Otherwise it is replaced by the known file of the same name, or by the only file made of its type. If
there is none, a path is marked as missing and a URL passes. A word longer than any path passes unchecked.
How the text is split into pieces makes no difference.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from jarvis_agent.core.text import map_texts
from jarvis_agent.core.types import Resource

_SUFFIXES = {
    "image": "png jpg jpeg gif webp bmp tif tiff svg",
    "audio": "wav mp3 flac ogg opus m4a aac",
    "video": "mp4 webm mov avi mkv",
    "table": "csv tsv xlsx parquet",
    "3d": "glb gltf obj ply stl",
    "file": "txt json pdf npy npz zip",
}
_KINDS = {f".{suffix}": kind for kind, suffixes in _SUFFIXES.items() for suffix in suffixes.split()}
_PLACEHOLDER_KINDS = {
    "image": "image|picture|photo",
    "audio": "audio|speech|sound|recording|voice",
    "video": "video|clip",
}
_TOKEN = re.compile(
    r"(?P<placeholder>[\[<{](?:[\w' -]{0,24}[ _-])?(?:file ?)?(?:path|filename)(?:[ _-][\w' -]{0,24})?"
    r"[\]>}](?!\())"
    r"|(?P<open>[\[<{][\w' -]{0,64}[\]>}]?\Z)"  # may become a placeholder
    r"|(?P<path>https?://[^\s\"'`<>()\[\]{}|*，。；：！？、（）「」『』《》“”‘’]+|[A-Za-z0-9_.~/\\:@+%-]+)",
    re.IGNORECASE,
)
_PREFIX = re.compile(r"\A(?:sandbox|attachment|file):(?://(?=/))?(?=[\w./~\\])", re.IGNORECASE)
_SCHEME = re.compile(r"(https?:/|[A-Za-z]:)[\\/]", re.IGNORECASE)
_HOST_OR_QUERY = re.compile(r"https?://[^/?#]*|[?#].*", re.IGNORECASE)
_ROOT = re.compile(r"~?/|\.\.?/|[A-Za-z]:[\\/]")
_NO_SPACE = re.compile(r"\S*")
_MAX_LENGTH = 4096  # characters of a path; operating systems allow no more


class PathChecker:
    """Filters one answer.

    Args:
        made: resources of this run; only these replace a path that does not exist.
        names: names that stand for paths: {"0-canny.png": "/outputs/1/0-canny.png"}.
        known: other resources that may be named: given files, and those of earlier turns.
        quoted: plain data or texts (the request, outputs, errors) whose words may be repeated.
        missing: the mark after a path that does not exist.
        looks: whether to look for other paths on this machine; if False they count as missing.
    """

    def __init__(
        self,
        made: Iterable[Resource] = (),
        known: Iterable[Resource] = (),
        quoted: Iterable[Any] = (),
        missing: str = "(no such file)",
        looks: bool = True,
        names: Mapping[str, str] | None = None,
    ) -> None:
        made, known = list(made), [*made, *known]
        self._made = {str(resource.path): resource.kind for resource in made if resource.path is not None}
        self._paths = {str(resource.path): None for resource in known if resource.path is not None}
        self._quoted = [*self._paths, *(resource.name for resource in known)]
        map_texts(list(quoted), self._quoted.append)
        self._full = names or {}
        self._missing = missing
        self._looks = looks
        self._held = ""
        self._in_long_word = False

    @cached_property
    def _allowed(self) -> set[str]:
        return {name for text in self._quoted for name in _names(text)}

    def finish(self) -> str:
        """End the answer; returns what was held back."""
        return self.feed("", final=True)

    def feed(self, text: str, *, final: bool = False) -> str:
        """Take the next piece; returns what may be shown now."""
        text, place, shown = self._held + text, 0, list[str]()
        while place < len(text):
            if self._in_long_word and (rest := _NO_SPACE.match(text, place)):
                shown.append(rest.group())
                place = rest.end()
                self._in_long_word = place == len(text)
                continue
            token = _TOKEN.search(text, place)
            start, end = token.span() if token else (len(text), len(text))
            shown.append(text[place:start])
            place = start
            is_long = end - start > _MAX_LENGTH
            if token is None or (end == len(text) and not final and not is_long):
                break
            shown.append(token.group() if is_long else self._check(token))
            place, self._in_long_word = end, is_long
        self._held = text[place:]
        return "".join(shown)

    def _check(self, token: re.Match[str]) -> str:
        """The text to show for a complete token."""
        text = token.group()
        if token.lastgroup == "placeholder":
            return self._fill_in(text)
        return ":".join(map(self._check_path, _split(text))) if token.lastgroup == "path" else text

    def _check_path(self, text: str) -> str:
        path = text.rstrip(".,;:!?")
        if path in self._full:
            return self._full[path] + text[len(path) :]
        if not _looks_like_path(path) or self._exists(path) or path in self._allowed:
            return text
        unknown = path if "://" in path else f"{path} {self._missing}"
        return (self._replacement(path) or unknown) + text[len(path) :]

    def _exists(self, path: str) -> bool:
        directory = path.rstrip("/\\") + os.sep
        if any(known.startswith(directory) for known in self._paths):
            return True
        return self._looks and os.path.exists(os.path.expanduser(path))  # noqa: PTH110, PTH111 - never raises

    def _replacement(self, wrong: str) -> str | None:
        """The file that a wrong path must mean: the only one of its name, suffix or kind; else None."""
        name, suffix = _file_name(wrong), _file_name(wrong).suffix.lower()
        candidates = (
            [path for path in self._paths if path.endswith(f"{os.sep}{wrong}")],
            [path for path in self._paths if _file_name(path) == name],
            [path for path in self._made if _file_name(path).suffix.lower() == suffix],
            [path for path, kind in self._made.items() if kind == _KINDS.get(suffix)],
        )
        return next((found[0] for found in candidates if len(found) == 1), None)

    def _fill_in(self, placeholder: str) -> str:
        named = {kind for kind, words in _PLACEHOLDER_KINDS.items() if re.search(words, placeholder.lower())}
        fitting = [path for path, kind in self._made.items() if not named or kind in named]
        return fitting[0] if len(fitting) == 1 else f"{placeholder} {self._missing}"


def _names(text: str) -> Iterator[str]:
    """The URLs and possible paths in a text."""
    tokens = (token.group() for token in _TOKEN.finditer(text) if token.lastgroup == "path")
    return (part.rstrip(".,;:!?") for token in tokens for part in _split(token))


def _split(word: str) -> list[str]:
    """The parts of a word that may be paths, which are separated by colons."""
    word = _PREFIX.sub("", word)
    return [word] if _SCHEME.match(word) else word.split(":")


def _looks_like_path(word: str) -> bool:
    depth = word.count("/") + word.count("\\")
    return _file_name(word).suffix.lower() in _KINDS or (depth > 1 and _ROOT.match(word) is not None)


def _file_name(path: str) -> PurePosixPath:
    return PurePosixPath(_HOST_OR_QUERY.sub("", path).replace("\\", "/").rpartition("/")[2])
