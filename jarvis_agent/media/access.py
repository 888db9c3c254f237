"""The access policy of a run: which files and URLs it may read.

Names in a plan come from a language model and are not trusted. A name is readable only if it is

- a file or URL that the user attached or named in the request;
- a file that this run, or an earlier turn of the same chat, has produced;
- a file below a directory that the settings allow.

    policy = AccessPolicy(settings)
    policy.allow("cat.jpg", policy.open("cat.jpg"))
    policy.find("`cat.jpg`")                        # the Resource
    policy.open("/etc/passwd", is_planned=True)     # ForbiddenError
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import translate
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from urllib.request import url2pathname

from jarvis_agent.core import file_mentions
from jarvis_agent.core.errors import ForbiddenError, InputError
from jarvis_agent.core.file_mentions import LETTER, LONGEST_PATH, FoldedText, NameIndex, has_ending, is_name
from jarvis_agent.core.forks import cached_property
from jarvis_agent.core.notes import Note, limit_of
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.text import brief_text
from jarvis_agent.core.types import Resource
from jarvis_agent.media.detect import detect_media_type

_REFUSED_IN_PLAN = (
    "the plan names {name!r}, which neither the request nor the settings allow; name it in the request, "
    "or pass it as a file"
)
_REFUSED_IN_REQUEST = "{name}: files of this machine are not read here; upload the file"
_REFUSED_TO_TOOL = "the tool may not read {name!r}; give an http(s) URL, "
_FILES_FOR_TOOL = "a file that a tool produced, one passed as `files=`, or one in the working directory"
_FILES_FOR_CLIENT = "a data URI, an upload or an earlier result"
_MOST_FOLDERS, _MOST_LISTED = 256, 10_000  # folders that are listed for a run, and files and folders of each
# Where a path starts that is not a name in the working directory.
_FOLDER = re.compile(r"(?:~[\w.-]*|[A-Za-z]:)?[/\\]+|(?<!\.)(?:\.\.?[/\\]+)+")
_WILD = r"(?:[*?]|\[!?(?:\w-\w)+\]|(?<=[\w./\\-])\[!?[\w-]+\]|\{[\w.-]+(?:,[\w.-]+)+\}|\{[0-9]+\.\.[0-9]+\})"
PATTERN = re.compile(
    rf"(?:\*\*/)?(?:(?<!{LETTER})(?<![.*?-])(?:{LETTER}|[.-])*{_WILD}(?:{LETTER}|[.-]|{_WILD})*(?:{LETTER}|(?<=\}}))"
    rf"|(?<=\*\*/)(?:{LETTER}|[.-])+|(?<=[/\\])\*)"
    rf"(?!\.?(?:{LETTER}|\*)|\?+{LETTER})"
)
"""A pattern for names in a folder: *.png, p?.png, [0-3].{jpg,png}, p{1..9}.png; below it **/*.png."""
_MOST_NUMBERS = 1000  # of p{1..9}.png
_FILE_INSIDE = re.compile(r"[^\s\"'”’」』]{0,255}\.\w")
QUOTES = " !'\"`<>[]()"
"""Characters that language models put around names: `a.jpg`, <a.jpg>, ![](a.jpg)."""


class AccessPolicy:
    """The names that a run may read, and the file behind each of them."""

    def __init__(self, settings: Settings, *, for_tool: bool = False) -> None:
        """A tool called outside a plan reads the working directory too, unless its callers are untrusted."""
        self.for_tool = for_tool
        self._settings = settings
        self._is_local = settings.allow_request_paths
        to_tool = _REFUSED_TO_TOOL + (_FILES_FOR_TOOL if self._is_local else _FILES_FOR_CLIENT)
        self._refused = to_tool if for_tool else _REFUSED_IN_PLAN
        self._granted: dict[str, Resource] = {}
        self._listed: dict[Path, NameIndex[Path]] = {}

    @cached_property
    def _roots(self) -> list[Path]:
        working = [Path.cwd()] if self.for_tool and self._is_local else []
        return [path.expanduser().resolve() for path in (*self._settings.allowed_dirs, *working)]

    @cached_property
    def _folders(self) -> list[Path]:
        return [Path.cwd(), *self._roots] if self._is_local else self._roots

    def allow(self, name: str, file: Resource) -> None:
        """Allow a file under a name."""
        self._granted[name] = file
        self.__dict__.pop("_index", None)

    @cached_property
    def _index(self) -> NameIndex[Resource]:
        """The allowed files by their names and the ends of their paths.

        Only letters and digits count: clients rename the files that they send, so that "my memo#1.flac"
        arrives as "my-memo-1.flac".
        """
        names = ((name, end) for name in self._granted for end in _ends_of(name))
        pairs = ((end, self._granted[name]) for name, end in names if "/" in name or has_ending(end))
        return NameIndex(pairs, loose=True)

    def find(self, value: str) -> Resource | None:
        """The file allowed under this name; a shortened or quoted name counts too, as models write them.

        An absolute path, a URL and a text other than a name are looked up whole.
        """
        for plain in (value, value.strip(QUOTES)) if len(value) <= LONGEST_PATH else ():
            if plain in self._granted:
                return self._granted[plain]
            is_short = is_name(plain) and not _expanded(plain).is_absolute()
            for name in () if "://" in plain else _ends_of(plain) if is_short else (plain,):
                if file := self.find_end(name):
                    return file
        return None

    def find_end(self, name: str, *, strict: bool = False) -> Resource | None:
        """The only allowed file whose path ends with this name; `strict`: that looks like it."""
        path = _expanded(name)
        same = (file for file in self._granted.values() if file.path == path)
        alike = same if path.is_absolute() else self._index.find(name, strict=strict)
        files = {file.path or id(file): file for file in alike}
        return files.popitem()[1] if len(files) == 1 else None

    def allowed_in(self, text: str) -> Iterator[tuple[int, int]]:
        """Where a text has names that may be those of allowed files."""
        folded = FoldedText(text, loose=True)
        for start in folded.starts():
            ends = (end for end in self._index.ends(folded, start) if folded.is_whole(start, end))
            yield from ((start, end) for end in islice(ends, 1))

    def known_names(self, text: str) -> Iterator[tuple[int, int]]:
        """Where a text has names of allowed files, and of files, folders and patterns that it may name.

        Folders are listed instead of guessing where a name starts and ends. Blocks.
        """
        yield from self.allowed_in(text)
        folded = FoldedText(text)
        for start in folded.starts():
            yield from ((start, place.end) for place in self._places(folded, start))

    def files_in(self, name: str) -> list[str]:
        """The names of the files in a folder, or of those that fit a pattern, sorted; none for another name.

        Clients of a server cannot name folders. Blocks.
        """
        if len(name) > LONGEST_PATH or not self._is_local:
            return []
        place = self._place(name) or (None if has_ending(name) else self._place(f"{name}/"))
        if place is None or not place.pattern:
            return []
        folder = name.removesuffix(pattern := place.pattern)
        folder += "" if folder != name or folder.endswith(("/", "\\")) else "/"
        inside = place.path.rglob("*") if pattern.startswith("**/") else self._list(place.path)
        below = (each.relative_to(place.path) for each in inside)
        visible = (each for each in below if not any(part[0] == "." for part in each.parts))
        names = (each.as_posix() for each in islice(visible, _MOST_LISTED) if (place.path / each).is_file())
        translated = translate(file_mentions.fold(pattern.replace("**/", "*")))  # which escapes braces
        fitting = re.compile(re.sub(r"\\\{(.+?)\\\}", _any_of, translated))
        return sorted(folder + each for each in names if fitting.match(file_mentions.fold(each)))

    def _list(self, folder: Path) -> NameIndex[Path]:
        """What is in a folder; nothing if it cannot be read."""
        if folder not in self._listed:
            paths = list[Path]()
            with suppress(OSError, ValueError):
                paths += islice(folder.iterdir(), _MOST_LISTED if len(self._listed) < _MOST_FOLDERS else 0)
            self._listed[folder] = NameIndex((path.name, path) for path in paths)
        return self._listed[folder]

    def _place(self, name: str) -> _Place | None:
        """What a whole name means."""
        return next((place for place in self._places(FoldedText(name), 0) if place.end == len(name)), None)

    def _places(self, text: FoldedText, start: int) -> Iterator[_Place]:
        """What the name that starts here means in each folder, or as a path of its own."""
        folders, at, is_path = self._folders, start, False
        if self._is_local and (prefix := _FOLDER.match(text.text, start)):
            folders = [_expanded(prefix[0].replace("\\", "/"))]
            at, is_path = prefix.end(), prefix[0][0] in ".~"
        return filter(None, (self._walk(folder, text, at, is_path) for folder in folders))

    def _walk(self, folder: Path, text: FoldedText, at: int, is_path: bool) -> _Place | None:
        """The longest name that starts here in a folder: of a file, or of a folder or pattern."""
        listed = self._list(folder)
        for end in listed.ends(text, at):
            alike = listed.find(text.text[at:end])
            path = alike[0] if len(alike) == 1 else folder
            is_folder = len(alike) == 1 and path.is_dir()
            if is_folder and text.text[end : end + 1] in ("/", "\\"):
                return self._walk(path, text, end + 1, is_path=True)
            if text.can_end(end) if is_path else not is_folder and text.is_whole(at, end):
                return _Place(end, path, "*" if is_folder else "")
        pattern = PATTERN.match(text.text, at) if self._is_local else None
        if pattern and (has_ending(re.sub(r"\{([\w.-]+)[^}]*\}", r"\1", pattern[0])) or pattern[0] == "*"):
            return _Place(pattern.end(), folder, pattern[0])
        if is_path and text.can_end(at) and not _FILE_INSIDE.match(text.text, at):
            return _Place(at, folder, "*")
        return None

    def open(self, name: str, *, is_planned: bool = False) -> Resource:
        """Describe a file that the user names, or that only the plan, or a tool's caller, names. Blocks.

        Raises InputError: it is missing, unreadable or too large. ForbiddenError: no allowed directory
        contains it, and the user may name no other, or has not.
        """
        if len(name) > LONGEST_PATH:
            why = f"{len(name):,} characters, too many for a path or URL; give one"
            raise InputError(f"{brief_text(name, 60)} has {why}")
        path = self._locate(name)
        if is_planned and (granted := self.find_end(str(path.absolute()))):
            return granted
        is_url = "://" in name.lower().removeprefix("file://")
        is_listed = self._is_below_roots(path) and not (is_planned and is_url)
        if not (is_listed or (self._is_local and not is_planned)):
            refused = self._refused if is_planned else _REFUSED_IN_REQUEST
            advice = Note("JARVIS_ALLOWED_DIRS names directories that may be read")
            raise ForbiddenError(refused.format(name=self.shown(name)), advice=advice)
        try:
            resource = describe_file(path, name, self.shown(name))
        except InputError as error:
            # Clients of a server are not told what else is there.
            is_missing = self._is_local and isinstance(error.__cause__, FileNotFoundError)
            if not is_missing or (similar := self._list(path.parent).closest(path.name)) is None:
                raise
            meant = Path(name).with_name(similar.name)
            missing = "{file} does not exist; did you mean {other}?"
            raise InputError(missing, file=name, other=meant) from error
        size, limit = path.stat().st_size, self._settings.max_file_bytes
        if size > limit:
            extent = f"{size:,} bytes, more than {limit:,}"
            raise InputError(f"{self.shown(name)} has {extent}", advice=limit_of("JARVIS_MAX_FILE_BYTES"))
        return resource

    def find_planned(self, value: str) -> Resource | None:
        """The file in an allowed directory whose path the whole value is. Blocks."""
        with suppress(OSError, RuntimeError, ValueError):
            path = _expanded(value)
            if path.suffix and path.is_file() and self._is_below_roots(path):
                return self.open(value, is_planned=True)
        return None

    def shown(self, name: str) -> str:
        """A name as errors have it. A client of a server sees its last part alone."""
        return name if self._is_local else re.split(r"[/\\]", name.rstrip("/\\"))[-1]

    def _locate(self, name: str) -> Path:
        """The path of a name: relative to the working directory, else to an allowed directory."""
        if name.lower().startswith("file://"):
            name = url2pathname(name[len("file://") :])
        path = Path(name)
        paths = list(filter(self._is_below_roots, (root / path for root in self._roots)))
        if self._is_local:  # To a client, "~bob" would tell who has an account here.
            paths = [path, _expanded(name), *paths]  # "~1.jpg" may be a name
        exact = next((path for path in paths if path.exists()), None)
        place = None if exact else self._place(name)
        return exact or (path if place is None or place.pattern else place.path)

    def _is_below_roots(self, path: Path) -> bool:
        real = path.resolve()
        # Results belong to their thread, also where their directory lies in a directory that all may read.
        results = self._settings.output_dir.expanduser().resolve()
        is_result = real.is_relative_to(results)
        roots = [root for root in self._roots if not (is_result and root in results.parents)]
        return any(map(real.is_relative_to, roots))


class _Place(NamedTuple):
    """Where a name in a text ends, and what it means: a path, or what fits a pattern in that folder."""

    end: int
    path: Path
    pattern: str


def _any_of(braces: re.Match[str]) -> str:
    """What a pattern has in braces as a regular expression: "jpg,png", or numbers as in "1..12"."""
    first, _, last = braces[1].partition(r"\.\.")
    is_range = first.isdecimal() and last.isdecimal()
    numbers = islice(range(int(first), int(last) + 1), _MOST_NUMBERS) if is_range else ()
    return f"(?:{'|'.join(map(str, numbers)) if is_range else braces[1].replace(',', '|')})"


def _ends_of(name: str) -> list[str]:
    """A path and the ends of it: "a/b.png", "b.png"."""
    parts = name.replace("\\", "/").split("/")
    return [name, *("/".join(parts[first:]) for first in range(1, len(parts)) if parts[-1])]


def _expanded(name: str) -> Path:
    """The path that a name is; "~" stays if there is no such user."""
    return Path(os.path.expanduser(name))  # noqa: PTH111


def describe_file(path: Path, name: str, called: str = "") -> Resource:
    """A file as a Resource with this name; errors call it so, or as it is `called`. Blocks.

    Raises InputError: it is unreadable, or of no kind.
    """
    kind, mime = detect_media_type(path, called or name)
    # The file system resolves ".." behind a link, so the path is that of the file that was inspected.
    place = path.resolve() if ".." in path.parts else path.absolute()
    return Resource(kind=kind, path=place, mime=mime, name=name)


@contextmanager
def name_errors(name: str) -> Iterator[None]:
    """Turn errors of the system for a name into an InputError."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{name} cannot be read; check its name", detail=why) from error
