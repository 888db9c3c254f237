"""The access policy of a run: which files and URLs it may read.

Names in a plan come from a language model and are not trusted. A name is readable only if it is

- a file or URL that the user attached or named in the request;
- a file that this run, or an earlier turn of the same chat, has produced;
- a file below a directory that the settings allow.

    policy = AccessPolicy(settings)
    policy.allow("cat.jpg", policy.open_requested("cat.jpg"))
    policy.find("`cat.jpg`")                    # the Resource
    policy.open_planned("/etc/passwd")          # ForbiddenError
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from jarvis_agent.core.errors import ForbiddenError, InputError
from jarvis_agent.core.file_mentions import LETTER, LONGEST_PATH, MOST_NAMES, FoldedText, NameIndex, is_name
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Resource
from jarvis_agent.media.detect import detect_media_type

_REFUSED_IN_PLAN = (
    "the plan names {name!r}, which neither the request nor the settings allow; name it in the request, "
    "pass it as a file, or add its directory to JARVIS_ALLOWED_DIRS"
)
_REFUSED_TO_TOOL = (
    "the tool may not read {name!r}; give an http(s) URL, a file that a tool produced, one passed as "
    "`files=`, or one in the working directory or in JARVIS_ALLOWED_DIRS"
)
_REFUSED_TO_CLIENT = (
    "the tool may not read {name!r}; give an http(s) URL, a data URI, an upload or an earlier result"
)
_MOST_COMPARED = 2_000
"""Files of a folder that are compared with a name that is not in it."""
_MOST_LISTED = 10_000
"""Files and folders of a folder that a text may name."""
_FOLDER = re.compile(r"(?:~[\w.-]*|[a-z]:)?[/\\]+|(?:\.\.?[/\\]+)+")
"""Where a path starts that is not a name in the working directory."""
PATTERN = re.compile(
    rf"(?:(?<!{LETTER})(?<![.*?-])(?:{LETTER}|[.-])*[*?](?:{LETTER}|[.*?-])*{LETTER}|(?<=[/\\])\*)"
    rf"(?!\.?(?:{LETTER}|\*)|\?+{LETTER})"
)
"""A pattern for names in one folder: *.png, page?.png, or after a folder *."""
_HAS_ENDING = re.compile(r"[^\s\"']{0,255}\.\w")
_ENDING = re.compile(r"[^.]\.\w*[^\W\d]\w*\Z")
QUOTES = " !'\"`<>[]()"
"""Characters that language models put around names: `a.jpg`, <a.jpg>, ![](a.jpg)."""


class AccessPolicy:
    """The names that a run may read, and the file behind each of them."""

    def __init__(self, settings: Settings, *, for_tool: bool = False) -> None:
        """A tool called outside a plan reads the working directory too, unless its callers are untrusted."""
        self.for_tool = for_tool
        self._settings = settings
        working = [Path.cwd()] if for_tool and settings.allow_request_paths else []
        self._allowed = (*settings.allowed_dirs, *working)
        self._granted: dict[str, Resource] = {}
        self._listed: dict[Path, NameIndex[os.DirEntry[str]]] = {}

    @cached_property
    def _roots(self) -> list[Path]:
        return [path.expanduser().resolve() for path in self._allowed]

    def allow(self, name: str, file: Resource) -> None:
        """Allow a file under a name."""
        self._granted[name] = file
        self.__dict__.pop("_indexes", None)

    def allow_resources(self, resources: Iterable[Resource]) -> None:
        """Allow files that this chat has produced or received, by path and by name."""
        for resource in resources:
            if resource.path is not None:
                self.allow(str(resource.path), resource)
                if resource.name:
                    self._granted.setdefault(resource.name, resource)

    @cached_property
    def _indexes(self) -> tuple[NameIndex[Resource], NameIndex[Resource]]:
        """The allowed files by their names, which are the ends of their paths: as written, and by letters.

        Clients rename the files that they send, so that "my memo#1.flac" arrives as "my-memo-1.flac".
        """
        names = {
            (name, id(file)): (name, file)
            for known, file in self._granted.items()
            for name in _ends_of(known)
            if "/" in known or _ENDING.search(name) or (file.path and file.path.name == name)
        }
        return NameIndex(names.values()), NameIndex(names.values(), loose=True)

    def find(self, name: str) -> Resource | None:
        """The file allowed under this name, or under one that looks alike, or the file name at its end.

        Language models shorten paths and quote them.
        """
        if name in self._granted:
            return self._granted[name]
        for plain in dict.fromkeys((name, name.strip(QUOTES))):
            for end in _ends_of(plain):
                if file := self.find_end(end) or self.find_end(end, loose=True):
                    return file
        return None

    def find_end(self, name: str, *, loose: bool = False) -> Resource | None:
        """The only allowed file whose path ends with this name; `loose` compares letters and digits alone."""
        files = {file.path or id(file): file for file in self._indexes[loose].find(name)}
        return files.popitem()[1] if len(files) == 1 else None

    def find_renamed(self, name: str) -> Resource | None:
        """The only allowed file whose name has these letters. A client may write its own path of it."""
        return self.find_end(name, loose=True) if self._settings.allow_request_paths else self.find(name)

    def find_path(self, value: str) -> Resource | None:
        """As `find`, for a value that may be a text: only a whole path is matched by its file name."""
        if value in self._granted or len(value) > LONGEST_PATH or "://" in value:
            return self._granted.get(value)
        return self.find(value) if is_name(value) or self.find_end(value) else None

    def named_in(self, text: str) -> dict[str, Resource]:
        """The allowed files that a text names, by the names that it has for them."""
        names = {text[start:end] for start, end in self._spans(FoldedText(text), [])}
        return {name: file for name in names if (file := self.find(name))}

    def known_names(self, text: str) -> Iterator[tuple[int, int]]:
        """Where a text has names of allowed files, and of files, folders and patterns that it may name.

        Folders are listed instead of guessing where a name starts and ends. Blocks.
        """
        folders = self._roots
        if self._settings.allow_request_paths:
            folders = [Path.cwd(), *folders]
        return self._spans(FoldedText(text), folders)

    def _spans(self, text: FoldedText, folders: list[Path]) -> Iterator[tuple[int, int]]:
        texts = (text, FoldedText(text.text, loose=True)) if self._granted else ()
        for index, folded in zip(self._indexes, texts, strict=False):
            for start in filter(folded.can_start, index.starts(folded)):
                ends = (end for end in index.ends(folded, start) if _is_whole(folded, start, end))
                yield from (folded.span(start, end) for end in islice(ends, 1))
        starts = (start for folder in folders for start in self._list(folder).starts(text))
        paths = (match.start() for form in (_FOLDER, PATTERN) for match in form.finditer(text.folded))
        for start in filter(text.can_start, chain(starts, paths if folders else ())):
            yield from (text.span(start, place.end) for place in self._places(text, start, folders))

    def files_in(self, name: str) -> list[str]:
        """The names of the files in a folder, or of those that fit a pattern, sorted; none for another name.

        Clients of a server cannot name folders. Blocks.
        """
        if not self._settings.allow_request_paths:
            return []
        place = self._place(name)
        if place is None and not _ENDING.search(name):  # an attached folder may lack its slash
            name = f"{name}/"
            place = self._place(name)
        if place is None or not place.is_pattern:
            return []
        name = name if place.name != "*" or name.endswith(("*", "/", "\\")) else f"{name}/"
        folder = name[: max(name.rfind("/"), name.rfind("\\")) + 1]
        shown = (each.name for each in self._list(place.folder) if each.name[0] != "." and each.is_file())
        return sorted(folder + each for each in shown if fnmatchcase(FoldedText(each).folded, place.name))

    def _list(self, folder: Path) -> NameIndex[os.DirEntry[str]]:
        """What is in a folder; nothing if it cannot be read."""
        if folder not in self._listed:
            entries: list[os.DirEntry[str]] = []
            with suppress(OSError, ValueError), os.scandir(folder) as listed:
                if len(self._listed) < MOST_NAMES:
                    entries += islice(listed, _MOST_LISTED)
            self._listed[folder] = NameIndex((entry.name, entry) for entry in entries)
        return self._listed[folder]

    def _place(self, name: str) -> _Place | None:
        """What a whole name means."""
        text = FoldedText(name)
        folders = [Path.cwd(), *self._roots] if self._settings.allow_request_paths else self._roots
        return next((p for p in self._places(text, 0, folders) if p.end == len(text.folded)), None)

    def _places(self, text: FoldedText, start: int, folders: list[Path]) -> Iterator[_Place]:
        """What the name that starts here means in each folder, or as a path."""
        prefix = _FOLDER.match(text.folded, start) if self._settings.allow_request_paths else None
        if prefix is None:
            found = (self._walk(folder, text, start, is_path=False) for folder in folders)
        else:
            written = text.text[slice(*text.span(start, prefix.end()))]
            try:
                folder = Path(written.replace("\\", "/")).expanduser()
            except RuntimeError:  # there is no such user
                return
            found = (self._walk(folder, text, prefix.end(), is_path=written[0] in ".~") for _ in range(1))
        yield from filter(None, found)

    def _walk(self, folder: Path, text: FoldedText, at: int, *, is_path: bool) -> _Place | None:
        """The longest name that starts here in a folder: of a file, or of a folder or pattern."""
        start, goes_on = at, True
        while goes_on:
            goes_on, listed = False, self._list(folder)
            for end in listed.ends(text, at):
                entries = listed.find(text.text[slice(*text.span(at, end))])
                inside = entries[0] if len(entries) == 1 and entries[0].is_dir() else None
                if inside and text.folded[end : end + 1] in ("/", "\\"):
                    folder, at, goes_on, is_path = Path(inside.path), end + 1, True, True
                    break
                if inside and is_path and text.can_end(end):
                    return _Place(end, Path(inside.path), "*", is_pattern=True)
                if not inside and (_is_whole(text, start, end) or (is_path and text.can_end(end))):
                    name = entries[0].name if len(entries) == 1 else ""
                    return _Place(end, folder, name)
        pattern = PATTERN.match(text.folded, at) if self._settings.allow_request_paths else None
        if pattern and (_ENDING.search(pattern[0]) or pattern[0] == "*"):
            return _Place(pattern.end(), folder, pattern[0], is_pattern=True)
        if is_path and text.can_end(at) and not _HAS_ENDING.match(text.folded, at):
            return _Place(at, folder, "*", is_pattern=True)
        return None

    def open_requested(self, name: str) -> Resource:
        """Describe a file that the user names. Blocks.

        Raises:
            InputError: it is missing, unreadable or too large.
            ForbiddenError: `allow_request_paths` is off and no allowed directory contains it.
        """
        path = self._locate(name)
        if not self._settings.allow_request_paths and not self._is_below_roots(path):
            raise ForbiddenError(
                f"{self.shown(name)}: files of this machine are not read here; upload the file"
            )
        return self._within_size(path, name)

    def open_planned(self, name: str) -> Resource:
        """Describe a file that only the plan, or a tool's caller, names. Blocks.

        Raises:
            InputError: it is missing, unreadable or too large.
            ForbiddenError: no allowed directory contains it.
        """
        path = self._locate(name)
        if not self._is_below_roots(path):
            raise self.refusal(name)
        return self._within_size(path, name)

    def refusal(self, name: str) -> ForbiddenError:
        """The error for a file or URL that may not be read."""
        to_tool = _REFUSED_TO_TOOL if self._settings.allow_request_paths else _REFUSED_TO_CLIENT
        refused = to_tool if self.for_tool else _REFUSED_IN_PLAN
        return ForbiddenError(refused.format(name=self.shown(name)))

    def shown(self, name: str) -> str:
        """A name as errors have it. A client of a server sees its last part alone.

        A whole path would be altered by the filter of private paths only if such a path exists.
        """
        return name if self._settings.allow_request_paths else re.split(r"[/\\]", name.rstrip("/\\"))[-1]

    def find_planned(self, value: str) -> Resource | None:
        """The file in an allowed directory whose path the whole value is. Blocks."""
        try:
            path = Path(value).expanduser()
            is_readable = is_name(value) and path.is_file() and self._is_below_roots(path)
        except (OSError, RuntimeError, ValueError):
            return None
        return self.open_planned(value) if is_readable else None

    def _within_size(self, path: Path, name: str) -> Resource:
        try:
            resource = describe_file(path, name)
        except InputError as error:
            is_missing = isinstance(error.__cause__, FileNotFoundError)
            # Clients of a server are not told what else is there.
            similar = _similar_file(path) if is_missing and self._settings.allow_request_paths else None
            if similar is None:
                raise
            raise InputError(
                f"{name} does not exist; did you mean {Path(name).with_name(similar)}?"
            ) from error
        size, limit = path.stat().st_size, self._settings.max_file_bytes
        if size > limit:
            raise InputError(f"{name} has {size:,} bytes, more than {limit:,} (JARVIS_MAX_FILE_BYTES)")
        return resource

    def _locate(self, name: str) -> Path:
        """The path of a name: relative to the working directory, else to an allowed directory."""
        if name.lower().startswith("file://"):
            name = unquote(name[len("file://") :])
        path = Path(name)
        if self._settings.allow_request_paths:  # To a client, "~bob" would tell who has an account here.
            if path.exists():  # "~1.jpg" may be a name
                return path
            path = path.expanduser()
            if path.exists():
                return path
        if not path.is_absolute():
            exact = next((root / path for root in self._roots if (root / path).is_file()), None)
            if exact is not None:
                return exact
        place = self._place(name)
        return path if place is None or place.is_pattern else place.folder / place.name

    def _is_below_roots(self, path: Path) -> bool:
        real = path.resolve()
        # Results belong to their thread, also where their directory lies in a directory that all may read.
        results = self._settings.output_dir.expanduser().resolve()
        is_result = real.is_relative_to(results)
        return any(
            real.is_relative_to(root) and not (is_result and root in results.parents) for root in self._roots
        )


class _Place(NamedTuple):
    """Where a name in a text ends, and what it means: a name in a folder ("": several), or a pattern."""

    end: int
    folder: Path
    name: str
    is_pattern: bool = False


def _ends_of(name: str) -> list[str]:
    """A path and the ends of it: "a/b.png", "b.png"."""
    parts = name.replace("\\", "/").split("/")
    return [name, *("/".join(parts[first:]) for first in range(1, len(parts)) if parts[-1])]


def _is_whole(text: FoldedText, start: int, end: int) -> bool:
    """Whether a known name here is meant as one: it has an ending, or stands in quotation marks."""
    has_ending = _ENDING.search(text.folded[start:end]) is not None
    return text.can_end(end) and (has_ending or text.is_quoted(start, end))


def describe_file(path: Path, name: str) -> Resource:
    """A file as a Resource with this name. Blocks.

    Raises:
        InputError: the file cannot be read, or its type is not supported.
    """
    kind, mime = detect_media_type(path)
    # The file system resolves ".." behind a link, so the path is that of the file that was inspected.
    place = path.resolve() if ".." in path.parts else path.absolute()
    return Resource(kind=kind, path=place, mime=mime, name=name)


def _similar_file(missing: Path) -> str | None:
    """The most similar name of a file in the same folder, or None."""
    if not missing.parent.is_dir():
        return None
    files = (file for file in islice(missing.parent.iterdir(), _MOST_COMPARED) if file.is_file())
    names = {file.name.lower(): file.name for file in files}
    close = get_close_matches(missing.name.lower(), names, n=1, cutoff=0.85)
    return names[close[0]] if close else None


@contextmanager
def name_errors(name: str) -> Iterator[None]:
    """Turn errors of the system for a name into an InputError."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"{name} cannot be read: {why}; check its name") from error
