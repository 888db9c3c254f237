"""PathGuard: an answer that streams by, with every file path in it checked.

    guard = PathChecker(made=[speech], known=[page], quoted=[brief.request])
    guard.feed("The speech is in /tmp/spe")      # "The speech is in "
    guard.feed("ech.wav, enjoy")                 # "/outputs/1/speech.wav, "
    guard.finish()                               # "enjoy"

A word is held back until it is whole. A path that exists, or that the request or a result names, passes. Any
other is replaced by the file that it must mean: the known one of the same name, else the only one made of
that type. If there is none, a path is marked; an http(s) address passes, since it may well lead somewhere.
So does a word that is longer than any path, as soon as that is known.
How the text was cut into pieces makes no difference.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any
from urllib.parse import urlsplit

from jarvis_agent.core.types import Resource

_KINDS: dict[str, str] = {
    suffix: kind
    for kind, suffixes in {
        "image": "png jpg jpeg gif webp bmp tif tiff svg",
        "audio": "wav mp3 flac ogg opus m4a aac",
        "video": "mp4 webm mov avi mkv",
        "table": "csv tsv xlsx parquet",
        "3d": "glb gltf obj ply stl",
        "file": "txt json pdf npy npz zip",
    }.items()
    for suffix in suffixes.split()
}
_LETTERS = r"\w.~/\\:@+%-"
_URL_LETTERS = r"[^\s\"'`<>()\[\]{}|*，。；：！？、（）「」『』《》“”‘’]"
_WORD = re.compile(rf"[{_LETTERS}]+", re.ASCII)
_URL = re.compile(rf"https?://{_URL_LETTERS}+", re.IGNORECASE)
_LONGEST = 4096
"""Letters of a path or address, which is what systems allow."""
_GOES_ON = {_WORD: re.compile(rf"[{_LETTERS}]*", re.ASCII), _URL: re.compile(rf"{_URL_LETTERS}*")}
_PREFIX = re.compile(r"(?:sandbox|attachment|file):(?://(?=/))?(?=[\w./~\\])", re.IGNORECASE)
_IN_PATH = re.compile(r"[./\\]")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_WORD_END = re.compile(r"[.:]*(?![\w.~/\\:@+%-])", re.ASCII)
_PLACEHOLDER = re.compile(
    r"[\[<{](?:[\w' -]{0,24}[ _-])?(?:file ?)?(?:path|filename)(?:[ _-][\w' -]{0,24})?[\]>}](?!\()",
    re.IGNORECASE | re.ASCII,
)
_PLACEHOLDER_LONGEST = 64
_PLACEHOLDER_KINDS = (
    (re.compile("image|picture|photo", re.IGNORECASE), "image"),
    (re.compile("audio|speech|sound|recording|voice", re.IGNORECASE), "audio"),
    (re.compile("video|clip", re.IGNORECASE), "video"),
)


class PathChecker:
    """Filters one answer.

    Args:
        made: what this run made; only these stand in for a path that is not there.
        known: other resources that may be named: given files, and those of earlier turns.
        quoted: plain data or texts (the request, outputs, errors) whose words may be repeated as they are.
        missing: what is written after a path that leads nowhere.
        looks: whether other paths are looked for on this machine; without it they count as missing.
    """

    def __init__(
        self,
        made: Iterable[Resource] = (),
        known: Iterable[Resource] = (),
        quoted: Iterable[Any] = (),
        missing: str = "(no such file)",
        looks: bool = True,
    ) -> None:
        made, known = list(made), [*made, *known]
        self._made = {str(resource.path): resource.kind for resource in made if resource.path is not None}
        self._paths = list(
            dict.fromkeys(str(resource.path) for resource in known if resource.path is not None)
        )
        self._named = _by(self._paths, lambda path: _pure(path).name)
        self._ending = _by(self._made, lambda path: _pure(path).suffix.lower())
        self._of_kind = _by(self._made, lambda path: self._made[path])
        self._allowed = {*self._paths, *(resource.name for resource in known if resource.name)}
        odd = sorted((name for name in self._allowed if not _WORD.fullmatch(name)), key=len, reverse=True)
        self._odd = _by(odd, lambda name: name[0])
        self._longest_odd = len(odd[0]) if odd else 0
        firsts = "".join(map(re.escape, self._odd))
        self._plain = re.compile(rf"[^\[<{{{firsts}{_LETTERS}]+", re.ASCII)
        for text in _texts(list(quoted)):
            self._allowed |= {match.group().rstrip(".:") for match in _WORD.finditer(text)}
            self._allowed |= {_without_stop(match.group()) for match in _URL.finditer(text)}
        self._missing = missing
        self._looks = looks
        self._held = ""
        self._overlong: re.Pattern[str] | None = None

    def feed(self, text: str) -> str:
        """Take the next piece; returns what may be shown now."""
        self._held += text
        return self._scan(final=False)

    def finish(self) -> str:
        """The answer has ended; returns what was held back."""
        return self._scan(final=True)

    def _scan(self, *, final: bool) -> str:
        shown: list[str] = []
        place = 0
        if self._overlong is not None and (rest := self._overlong.match(self._held)):
            place = rest.end()
            shown.append(rest.group())
        while place < len(self._held):
            self._overlong = None
            step = self._step(place, final)
            if step is None:
                break
            text, place = step
            shown.append(text)
        self._held = self._held[place:]
        return "".join(shown)

    def _step(self, place: int, final: bool) -> tuple[str, int] | None:
        """What to show for the text at `place`, and where it goes on; None if more must be known first."""
        text = self._held
        if plain := self._plain.match(text, place):
            return plain.group(), plain.end()
        odd = self._odd.get(text[place], ())
        if not final and len(text) - place < self._longest_odd:
            rest = text[place:]
            if any(len(name) > len(rest) and name.startswith(rest) for name in odd):
                return None
        for name in odd:
            if not text.startswith(name, place):
                continue
            end = _WORD_END.match(text, place + len(name))
            if not final and len(text) == (end.end() if end else _word_end(text, place + len(name))):
                return None
            if end:
                return name, place + len(name)
        if text[place] in "[<{":
            window = text[place : place + _PLACEHOLDER_LONGEST]
            if len(window) < _PLACEHOLDER_LONGEST and "\n" not in window and not final:
                return None
            if found := _PLACEHOLDER.match(window):
                return self._fill_in(found.group()), place + found.end()
        match = _URL.match(text, place) or _WORD.match(text, place)
        if match is None:
            return text[place], place + 1
        if match.end() - place > _LONGEST:
            self._overlong = _GOES_ON[match.re]
            return match.group(), match.end()
        if match.end() == len(text) and not final:
            return None
        judge = self._judge_url if match.re is _URL else self._judge_word
        return judge(match.group()), match.end()

    def _judge_word(self, word: str) -> str:
        word = _PREFIX.sub("", word, count=1)
        parts = [word] if _DRIVE.match(word) else word.split(":")
        return ":".join(self._judge(part) for part in parts)

    def _judge_url(self, url: str) -> str:
        core = _without_stop(url)
        suffix = PurePosixPath(urlsplit(core).path).suffix
        if core in self._allowed or suffix[1:].lower() not in _KINDS:
            return url
        return (self._right_one(core) or core) + url[len(core) :]

    def _judge(self, word: str) -> str:
        core = word.rstrip(".")
        if not self._looks_like_path(core) or core in self._allowed or self._is_there(core):
            return word
        return (self._right_one(core) or f"{core} {self._missing}") + word[len(core) :]

    def _looks_like_path(self, word: str) -> bool:
        if not _IN_PATH.search(word):
            return False
        name = _pure(word)
        if name.suffix[1:].lower() in _KINDS:
            return True
        depth = word.count("/") + word.count("\\")
        return depth > 1 and (word.startswith(("/", "~/", "./", "../")) or bool(_DRIVE.match(word)))

    def _is_there(self, word: str) -> bool:
        inside = word.rstrip("/\\") + os.sep
        if any(path.startswith(inside) for path in self._paths):
            return True
        try:
            return self._looks and Path(word).expanduser().exists()
        except (OSError, RuntimeError):
            return False

    def _right_one(self, wrong: str) -> str | None:
        """The file that a wrong path must mean; None if that is not clear."""
        name = _pure(wrong)
        same = self._named.get(name.name, [])
        best = max((_shared(path, wrong) for path in same), default=0)
        same = [path for path in same if _shared(path, wrong) == best]
        suffix = name.suffix.lower()
        alike = self._ending.get(suffix, [])
        of_kind = self._of_kind.get(_KINDS.get(suffix[1:], ""), [])
        for found in (same, alike, of_kind):
            if len(found) == 1:
                return found[0]
        return None

    def _fill_in(self, placeholder: str) -> str:
        kind = next((kind for words, kind in _PLACEHOLDER_KINDS if words.search(placeholder)), None)
        fitting = [path for path, made in self._made.items() if kind in (None, made)]
        return fitting[0] if len(fitting) == 1 else f"{placeholder} {self._missing}"


def _by(names: Iterable[str], key: Callable[[str], str]) -> dict[str, list[str]]:
    """Names by what they have in common, in their order."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(key(name), []).append(name)
    return found


def _texts(value: Any) -> Iterator[str]:
    """Every text in plain data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for entry in value.values():
            yield from _texts(entry)
    elif isinstance(value, Sequence):
        for entry in value:
            yield from _texts(entry)


def _word_end(text: str, place: int) -> int:
    match = _WORD.match(text, place)
    return match.end() if match else place


def _without_stop(url: str) -> str:
    return url.rstrip(".,;:!?")


def _pure(path: str) -> PurePath:
    return PureWindowsPath(path) if "\\" in path else PurePosixPath(path)


def _shared(one: str, other: str) -> int:
    """How many last parts two paths have in common."""
    pairs = zip(reversed(_pure(one).parts), reversed(_pure(other).parts), strict=False)
    count = 0
    for left, right in pairs:
        if left != right:
            break
        count += 1
    return count
