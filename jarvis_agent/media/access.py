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

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cached_property
from itertools import islice
from pathlib import Path, PurePosixPath

from jarvis_agent.core.errors import ForbiddenError, InputError
from jarvis_agent.core.file_mentions import LONGEST_PATH, mentions
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

    @cached_property
    def _roots(self) -> list[Path]:
        return [path.expanduser().resolve() for path in self._allowed]

    def allow(self, name: str, file: Resource) -> None:
        """Allow a file under a name."""
        self._granted[name] = file

    def allow_resources(self, resources: Iterable[Resource]) -> None:
        """Allow files that this chat has produced or received, by path and by name."""
        for resource in resources:
            if resource.path is not None:
                self._granted[str(resource.path)] = resource
                if resource.name:
                    self._granted.setdefault(resource.name, resource)

    def find(self, name: str) -> Resource | None:
        """The file allowed under this name, or under the file name at its end."""
        return self._granted.get(name) or self._by_file_name(name)

    def find_path(self, value: str) -> Resource | None:
        """As `find`, for a value that may be a text: only a whole path is matched by its file name."""
        return self._granted.get(value) or (self._by_file_name(value) if self._is_path(value) else None)

    def named_in(self, text: str) -> dict[str, Resource]:
        """The allowed files whose name with its extension, path or URL is in a text, by what is there."""
        known = {name: None for key, file in self._granted.items() for name in (key, str(file.path))}
        names = {name for key in known for name in (key, PurePosixPath(key.replace("\\", "/")).name)}
        there = {name: self.find(name) for name in names if name in text and PurePosixPath(name).suffix}
        return {name: file for name, file in there.items() if file is not None}

    def find_bare(self, name: str) -> Resource | None:
        """The allowed file with this file name, without a folder; None if several have it."""
        return self._by_file_name(name) if PurePosixPath(name).name == name else None

    def is_known(self, name: str) -> bool:
        """Whether a name is allowed already, or is a file that a request may name."""
        if name in self._granted or self.find_bare(name) is not None:
            return True
        try:
            path = self._locate(name)
            return path.is_file() and (self._settings.allow_request_paths or self._is_below_roots(path))
        except (OSError, RuntimeError, ValueError):
            return False

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
            is_readable = self._is_path(value) and path.is_file() and self._is_below_roots(path)
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

    def _by_file_name(self, name: str) -> Resource | None:
        """The only allowed file with the same file name; language models shorten paths and quote them.

        Of several, as runs of a chat make them, it is the only one in a folder of the same name.
        """
        plain = name.replace("\\", "/")
        for length in (1, 2):
            wanted = {PurePosixPath(text).parts[-length:] for text in (plain, plain.strip(QUOTES))}
            same = {
                id(file): file
                for known, file in self._granted.items()
                if PurePosixPath(known.replace("\\", "/")).parts[-length:] in wanted
            }
            if len(same) == 1:
                return same.popitem()[1]
        return None

    def _is_path(self, value: str) -> bool:
        if len(value) > LONGEST_PATH or "://" in value:
            return False
        return mentions(value) == [value] or any(f"/{known}".endswith(f"/{value}") for known in self._granted)

    def _locate(self, name: str) -> Path:
        """The path of a name: relative to the working directory, else to an allowed directory."""
        path = Path(name)
        if self._settings.allow_request_paths:  # To a client, "~bob" would tell who has an account here.
            path = path.expanduser()
        if path.is_absolute() or (self._settings.allow_request_paths and path.exists()):
            return path
        return next((root / path for root in self._roots if (root / path).is_file()), path)

    def _is_below_roots(self, path: Path) -> bool:
        real = path.resolve()
        # Results belong to their thread, also where their directory lies in a directory that all may read.
        results = self._settings.output_dir.expanduser().resolve()
        is_result = real.is_relative_to(results)
        return any(
            real.is_relative_to(root) and not (is_result and root in results.parents) for root in self._roots
        )


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
