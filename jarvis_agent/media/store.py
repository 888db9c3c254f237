"""The ResourceStore of a run: where its files go, and which files and URLs it may read.

A name in a plan was written by a language model, so it counts for nothing by itself. It is read only if it
is one of these:

- a file or URL that the user gave or named (`grant`), under the spelling in which he did;
- a file that this run, or an earlier turn of the same chat, has made (`admit`);
- a file below a directory that the settings allow.

    store = ResourceStore(settings)
    await store.grant("cat.jpg")
    image = await store.resolve("cat.jpg", "image")     # a Resource
    await store.resolve("/etc/passwd", "image")          # ForbiddenError
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import logging
import mimetypes
import os
import re
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from jarvis_agent.core.errors import ForbiddenError, InputError
from jarvis_agent.core.request import mentions
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import MEDIA, Modality
from jarvis_agent.core.types import Resource
from jarvis_agent.media.detect import detect_media_type, detect_suffix, disk_errors
from jarvis_agent.media.download import fetch
from jarvis_agent.media.limits import check_limits

logger = logging.getLogger(__name__)

_URL = re.compile(r"https?://", re.IGNORECASE)
_MARKS = " !'\"`<>[]()"
_DATA_URI = re.compile(r"data:(?P<mime>[\w.+/-]+)?(?:;[\w=-]+)*;base64,(?P<data>.*)", re.DOTALL)


class ResourceStore:
    """Files of one run. Thread-safe where backends use it (`new_path`).

    Making one touches no disk; `prepare` and `close` do, and are for a thread.
    """

    def __init__(
        self, settings: Settings, *, roots: Iterable[Path] = (), directory: Path | None = None
    ) -> None:
        """A store that writes to `directory`, by default a new one below `settings.output_dir`.

        `roots` are directories that may be read beside those of the settings.
        """
        run_id = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(8)}"
        self.settings = settings
        self._place = directory or settings.output_dir / run_id
        self._allowed = (*settings.allowed_dirs, *roots)
        self._granted: dict[str, Resource | InputError] = {}
        self._urls: dict[str, asyncio.Lock] = {}
        self._taken: set[str] | None = None
        self._kept: dict[str, Resource] = {}
        self._lock = threading.RLock()
        self._closed = False
        self._decoding = asyncio.Lock()

    @cached_property
    def directory(self) -> Path:
        """Where files are written; absolute."""
        return self._place.absolute()

    @cached_property
    def _roots(self) -> list[Path]:
        return [path.expanduser().resolve() for path in self._allowed]

    def prepare(self) -> None:
        """Make the directory, so that a place that can not be written is known before any work is done.

        What is in it already, from a process that died, keeps its name.

        Raises:
            InputError: it can not be made; the message says which.
        """
        try:
            with self._lock:
                if self._closed:
                    # Whoever asked was stopped meanwhile, and a directory that is made now would stay.
                    self._taken = set()
                    return
                self.directory.mkdir(parents=True, exist_ok=True)
                self._taken = {path.name for path in self.directory.iterdir()}
        except OSError as error:
            raise InputError(
                f"the output directory {self.directory} can not be made ({error.strerror or error}); "
                "choose another one with --out or JARVIS_OUTPUT_DIR"
            ) from error

    def close(self) -> None:
        """Remove the directory if the run wrote nothing. It is not made any more."""
        with self._lock, suppress(OSError):
            self._closed = True
            self.directory.rmdir()

    def new_path(self, suffix: str, stem: str = "file") -> Path:
        """A path in the run's directory that nobody else has been given; `suffix` is such as ".png"."""
        stem = re.sub(r"[^\w.-]+", "-", stem).strip("-.") or "file"
        with self._lock:
            taken = self._names()
            number = 1
            name = f"{stem}{suffix}"
            while name in taken:
                number += 1
                name = f"{stem}-{number}{suffix}"
            taken.add(name)
        return self.directory / name

    def _names(self) -> set[str]:
        """Names in the directory that are taken; it is made if it was not yet."""
        if self._taken is None:
            self.prepare()
        assert self._taken is not None
        return self._taken

    async def grant(self, name: str) -> Resource:
        """Allow a file or URL that the user gave, and say what it is.

        Raises:
            InputError: it can not be read or fetched.
            ForbiddenError: the settings do not let requests name files (a server), or the URL is private.
        """
        resource = self._granted[name] = await self._open(name)
        return resource

    async def grant_mention(self, name: str) -> Resource:
        """Allow what the words of a request name, which may be no file at all.

        A URL is fetched, and a file that can not be read is complained of, only when a task wants it; until
        then it is a Resource without a path, its kind guessed from its name.
        """
        if _URL.match(name):
            self._urls.setdefault(name, asyncio.Lock())
        else:
            try:
                return await self.grant(name)
            except InputError as error:
                # "What is in cat.jpg?" means the file photos/cat.jpg that comes with it.
                meant = self._by_file_name(name) if PurePosixPath(name).name == name else None
                if isinstance(meant, Resource):
                    return meant
                self._granted[name] = error
        return Resource(kind=_kind_by_name(name), name=name)

    def knows(self, name: str) -> bool:
        """Whether a name is that of a file which came with the request, or of one that a request may name."""
        is_bare = PurePosixPath(name).name == name
        if name in self._granted or (is_bare and self._by_file_name(name) is not None):
            return True
        try:
            path = self._place_of(name)
            return path.is_file() and (self.settings.allow_request_paths or self._below_roots(path))
        except (OSError, RuntimeError, ValueError):
            return False

    async def grant_outputs(self, answer: str) -> list[Resource]:
        """Allow the files of earlier runs that an answer of this chat names, if they are still there.

        A chat that comes as messages remembers what it made in no other way. A server's chats are told by
        strangers: there nothing is allowed.
        """
        if not self.settings.allow_request_paths:
            return []
        root = str(self.settings.output_dir.absolute())
        named = re.findall(rf"{re.escape(root)}[/\\][\w-]+[/\\][\w.-]*\w", answer, re.ASCII)
        found = [await self.grant_mention(name) for name in dict.fromkeys(named)]
        return [file for file in found if file.path is not None]

    def admit(self, resources: Iterable[Resource]) -> None:
        """Allow files that this chat has made or was given."""
        for resource in resources:
            if resource.path is not None:
                self._granted[str(resource.path)] = resource
                if resource.name and not isinstance(self._granted.get(resource.name), Resource):
                    self._granted[resource.name] = resource

    async def keep(self, block: Mapping[str, Any]) -> Resource:
        """Store a content block of a message (image, audio, video, file) as a file of this run.

        Raises:
            InputError: the block holds no data, or the data is of no known kind.
        """
        url = str(block.get("url") or "")
        data = str(block.get("base64") or "")
        if url and not url.startswith("data:"):
            return await self.grant(url)
        if not (data or url):
            told = block.get("file_id") or block.get("type")
            raise InputError(
                f"the attached file {told!r} holds no data; attach its bytes (base64) or its URL"
            )
        async with self._decoding:
            resource = await asyncio.to_thread(
                self._keep_data, data or url, str(block.get("mime_type") or "")
            )
        self.admit([resource])
        return resource

    async def recall(self, block: Mapping[str, Any]) -> Resource | None:
        """As `keep`, for an attachment of an earlier turn, which must not stop this one.

        Its URL is fetched only when a task wants it.

        Returns:
            None if it can not be used; why is logged.
        """
        url = str(block.get("url") or "")
        try:
            if url and not url.startswith("data:"):
                return await self.grant_mention(url)
            return await self.keep(block)
        except InputError as error:
            logger.warning("an attachment of an earlier turn is left out: %s", error)
            return None

    async def resolve(self, value: Any, kind: Modality) -> Resource:
        """The resource that an argument of kind `kind` means.

        Raises:
            InputError: there is no such file, or it is of another kind.
            ForbiddenError: the file or URL is not one that this run may read.
        """
        resource = value if isinstance(value, Resource) else await self._lookup(str(value).strip())
        if resource.kind != kind and kind in MEDIA - {"file"}:
            raise InputError(
                f"{resource.path or value} is {_article(resource.kind)}, and {_article(kind)} is needed"
            )
        if resource.path is not None:
            await asyncio.to_thread(check_limits, resource, self.settings)
        return resource

    async def text_of(self, value: str) -> str:
        """A text argument's text: that of the file which it names, if the user gave one of that name.

        Raises:
            InputError: the file is not there, or is no text in UTF-8.
        """
        found = self._granted.get(value.strip())
        if isinstance(found, InputError):
            raise found
        if (
            not isinstance(found, Resource)
            or found.kind not in ("text", "table", "data")
            or found.path is None
        ):
            return value
        try:
            return await asyncio.to_thread(found.path.read_text, encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{found.path} can not be read as text (UTF-8): {error}") from error

    async def path_of(self, value: str) -> str:
        """The path of the file that a value names, if the user gave one of that name; else the value.

        It is for tools that open files by themselves: the planner may have shortened the name, and a file
        that came with a message has no name but ours.
        """
        name = value.strip()
        found = self._granted.get(name) or (self._by_file_name(name) if self._is_one_path(name) else None)
        if not isinstance(found, Resource) or found.path is None:
            return value
        return value if await asyncio.to_thread(os.path.exists, value) else str(found.path)

    async def _lookup(self, name: str) -> Resource:
        if name in self._urls:
            async with self._urls[name]:
                return self._granted.get(name) or await self.grant(name)  # type: ignore[return-value]
        found = self._granted.get(name) or self._by_file_name(name)
        if isinstance(found, InputError):
            raise found
        if found is not None:
            return found
        if "://" in name:
            raise ForbiddenError(
                f"the plan names {name}, which is not in the request; only addresses that you give are read"
            )
        with _reading(name):
            return await asyncio.to_thread(self._open_below_roots, name)

    def _open_below_roots(self, name: str) -> Resource:
        path = Path(name).expanduser()
        if not self._below_roots(path):
            raise ForbiddenError(
                f"the plan names the file {name!r}, which neither the request nor the settings allow; "
                "name it in the request, pass it as a file, or add its directory to JARVIS_ALLOWED_DIRS"
            )
        return self._within_size(path, name)

    def _by_file_name(self, name: str) -> Resource | InputError | None:
        """The only granted file with the same last part of its name: language models shorten paths.

        They put marks around them too: `a.jpg`, <a.jpg>, ![](a.jpg).
        """
        plain = name.replace("\\", "/")
        wanted = {PurePosixPath(plain).name, PurePosixPath(plain.strip(_MARKS)).name}
        same = {
            id(found): found
            for known, found in self._granted.items()
            if PurePosixPath(known.replace("\\", "/")).name in wanted
        }
        return next(iter(same.values())) if len(same) == 1 else None

    def _is_one_path(self, value: str) -> bool:
        """Whether a value is a path as a whole, and no sentence that ends in one, and no URL."""
        if "://" in value:
            return False
        return mentions(value) == [value] or any(f"/{known}".endswith(f"/{value}") for known in self._granted)

    async def _open(self, name: str) -> Resource:
        with _reading(name):
            return await self._open_any(name)

    async def _open_any(self, name: str) -> Resource:
        if name.startswith("data:"):
            return await asyncio.to_thread(self._keep_data, name, "")
        if _URL.match(name):
            suffix = PurePosixPath(urlsplit(name).path).suffix[:8]
            path = await asyncio.to_thread(self.new_path, suffix, "download")
            path = await fetch(name, path, self.settings)
            return await asyncio.to_thread(_describe, path, name)
        return await asyncio.to_thread(self._open_file, name)

    def _open_file(self, name: str) -> Resource:
        path = self._place_of(name)
        if not self.settings.allow_request_paths and not self._below_roots(path):
            raise ForbiddenError(f"{name}: files of this machine are not read here; upload the file")
        return self._within_size(path, name)

    def _within_size(self, path: Path, name: str) -> Resource:
        resource = _describe(path, name)
        size, limit = path.stat().st_size, self.settings.max_file_bytes
        if size > limit:
            raise InputError(f"{name} has {size:,} bytes, more than {limit:,} (JARVIS_MAX_FILE_BYTES)")
        return resource

    def _keep_data(self, data: str, mime: str) -> Resource:
        limit = self.settings.max_file_bytes
        # Four letters for three bytes; it is not decoded to find out.
        if len(data) > limit * 4 // 3 + 256:
            raise InputError(f"an attached file has more than {limit:,} bytes (JARVIS_MAX_FILE_BYTES)")
        match = _DATA_URI.match(data)
        mime = (match["mime"] if match else None) or mime
        try:
            content = base64.b64decode(match["data"] if match else data, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InputError("an attached file is not valid base64") from error
        digest = hashlib.sha256(content).hexdigest()
        if digest in self._kept:
            return self._kept[digest]
        path = self._path_of(digest, detect_suffix(content, mime))
        with disk_errors("an attached file"):
            # A process that died may have left it, whole or in part.
            if not path.is_file() or path.read_bytes() != content:
                path.write_bytes(content)
        resource = self._kept[digest] = _describe(path, path.name)
        return resource

    def _path_of(self, digest: str, suffix: str) -> Path:
        """Where an attachment lies. Its name tells its content: a plan that was stored finds it again."""
        with self._lock:
            self._names().add(name := f"input-{digest[:12]}{suffix}")
        return self.directory / name

    def _place_of(self, name: str) -> Path:
        """Where a name leads: from the working directory, else from a directory that the settings allow."""
        path = Path(name).expanduser()
        if path.is_absolute() or (self.settings.allow_request_paths and path.exists()):
            return path
        return next((root / path for root in self._roots if (root / path).is_file()), path)

    def _below_roots(self, path: Path) -> bool:
        real = path.resolve()
        return any(real.is_relative_to(root) for root in self._roots)


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """A block that reads what `name` names; what the system has against the name becomes an InputError."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"{name} can not be read: {why}; check its name") from error


def _describe(path: Path, name: str) -> Resource:
    kind, mime = detect_media_type(path)
    # What ".." means behind a link is for the disk to say: it is the file that was looked at.
    place = path.resolve() if ".." in path.parts else path.absolute()
    return Resource(kind=kind, path=place, mime=mime, name=name)


def _kind_by_name(name: str) -> Modality:
    try:
        mime = mimetypes.guess_type(urlsplit(name).path)[0] or ""
    except ValueError:
        return "file"
    kinds: dict[str, Modality] = {"image": "image", "audio": "audio", "video": "video", "text": "text"}
    return kinds.get(mime.partition("/")[0], "file")


def _article(kind: str) -> str:
    return f"an {kind} file" if kind[0] in "aeiou" else f"a {kind} file"
