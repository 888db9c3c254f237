"""The files of a run: one directory for what it writes, and the resources that its tasks read.

store = ResourceStore(settings)
await store.grant("cat.jpg")
image = await store.resolve("cat.jpg", "image")     # a Resource
await store.resolve("/etc/passwd", "image")         # ForbiddenError, see media/access.py
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from jarvis_agent.core.concurrency import run_cpu_bound
from jarvis_agent.core.errors import InputError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import MEDIA, Modality
from jarvis_agent.core.types import Resource
from jarvis_agent.media.access import AccessPolicy, describe_file, disk_errors, name_errors
from jarvis_agent.media.detect import detect_suffix, kind_by_name
from jarvis_agent.media.documents import load_text
from jarvis_agent.media.download import fetch
from jarvis_agent.media.limits import check_limits

logger = logging.getLogger(__name__)

_URL = re.compile(r"https?://", re.IGNORECASE)
_DATA_URI = re.compile(r"data:(?P<mime>[\w.+/-]+)?(?:;[\w=-]+)*;base64,(?P<data>.*)", re.DOTALL)
_MAX_NAME = 1000
_TEXTS = frozenset({"text", "table", "data", "file"})
"""Kinds of files that stand for their text in an argument that is a text."""


class ResourceStore:
    """Files of one run, written to `directory` (an absolute path). `new_path` is thread-safe.

    The constructor does not touch the disk. `prepare` and `close` block; call them in a thread.
    """

    def __init__(self, settings: Settings, *, directory: Path | None = None, for_tool: bool = False) -> None:
        """Create a store.

        Args:
            settings: limits and the access policy.
            directory: where files are written; by default a new directory below `settings.output_dir`.
            for_tool: serve a tool called outside a plan. It may fetch any public URL (see AccessPolicy).
        """
        run_id = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(8)}"
        self.settings = settings
        self.directory = (directory or settings.output_dir / run_id).absolute()
        self._access = AccessPolicy(settings, for_tool=for_tool)
        self._urls: dict[str, asyncio.Lock] = {}
        self._taken: set[str] = set()
        self._prepared = False
        self._attachments: dict[str, Resource] = {}
        self._lock = threading.RLock()
        self._closed = False
        self._decoding = asyncio.Lock()

    def prepare(self) -> None:
        """Create the directory, so that a wrong output directory is reported before any work is done.

        Files of an interrupted run in the directory are kept, and their names are not reused.

        Raises:
            InputError: the directory cannot be created.
        """
        try:
            with self._lock:
                # The run may have been stopped meanwhile; a directory created now would stay behind.
                if not (self._prepared or self._closed):
                    self.directory.mkdir(parents=True, exist_ok=True)
                    self._taken.update(path.name for path in self.directory.iterdir())
                    self._prepared = True
        except OSError as error:
            raise InputError(
                f"the output directory {self.directory} cannot be created ({error.strerror or error}); "
                "choose another one with --out or JARVIS_OUTPUT_DIR"
            ) from error

    def close(self) -> None:
        """Remove the directory if it is empty. `prepare` does not create it afterwards."""
        with self._lock, suppress(OSError):
            self._closed = True
            self.directory.rmdir()

    def new_path(self, suffix: str, stem: str = "file") -> Path:
        """An unused path in the run's directory; `suffix` starts with a dot, as in ".png"."""
        stem = re.sub(r"[^\w.-]+", "-", stem).strip("-.") or "file"
        with self._lock:
            self.prepare()
            name, number = f"{stem}{suffix}", 1
            while name in self._taken:
                number += 1
                name = f"{stem}-{number}{suffix}"
            self._taken.add(name)
        return self.directory / name

    async def grant(self, name: str) -> Resource:
        """Allow a file, URL or data URI that the user gives, and return it as a Resource.

        Raises:
            InputError: it cannot be read or fetched.
            ForbiddenError: the settings forbid paths in requests (a server), or the URL is private.
        """
        with name_errors(name):
            resource = await self._open(name)
        if name.startswith("data:"):
            self.admit([resource])
        else:
            self._access.allow(name, resource)
        return resource

    async def grant_mention(self, name: str) -> Resource:
        """Allow a name found in the text of a request.

        A URL is fetched when a task first uses it. The error of an unreadable file is raised then too.

        Returns:
            The file, or a Resource without a path whose kind is guessed from the name.
        """
        if _URL.match(name):
            self._urls.setdefault(name, asyncio.Lock())
        else:
            try:
                return await self.grant(name)
            except InputError as error:
                # "What is in cat.jpg?" means the attached file photos/cat.jpg.
                attached = self._access.find_bare(name)
                if isinstance(attached, Resource):
                    return attached
                self._access.allow(name, error)
        return Resource(kind=kind_by_name(name), name=name)

    def knows(self, name: str) -> bool:
        """Whether a name is an attached file, or a file that a request may name. Blocks."""
        return self._access.is_known(name)

    async def grant_outputs(self, answer: str) -> list[Resource]:
        """Allow the existing files of earlier runs that an answer of this chat names.

        Returns:
            The files. None without `allow_request_paths`, because clients of a server are untrusted.
        """
        if not self.settings.allow_request_paths:
            return []
        root = str(self.settings.output_dir.absolute())
        named = re.findall(rf"{re.escape(root)}[/\\][\w-]+[/\\][\w.-]*\w", answer, re.ASCII)
        found = [await self.grant_mention(name) for name in dict.fromkeys(named)]
        return [file for file in found if file.path is not None]

    def admit(self, resources: Iterable[Resource]) -> None:
        """Allow files that this chat has produced or received."""
        self._access.admit(resources)

    async def keep(self, block: Mapping[str, Any]) -> Resource:
        """Store a content block of a message (image, audio, video, file) as a file of this run.

        Raises:
            InputError: the block holds no data, or data of an unknown type.
        """
        url = str(block.get("url") or "")
        data = str(block.get("base64") or "")
        if url and not url.startswith("data:"):
            return await self.grant(url)
        if not (data or url):
            label = block.get("file_id") or block.get("type")
            raise InputError(f"the attached file {label!r} has no data; attach its bytes (base64) or its URL")
        mime = str(block.get("mime_type") or "")
        async with self._decoding:
            resource = await asyncio.to_thread(self._save_attachment, data or url, mime)
        self.admit([resource])
        return resource

    async def recall(self, block: Mapping[str, Any]) -> Resource | None:
        """Store an attachment of an earlier turn; its URL is fetched when a task first uses it.

        Returns:
            None if it cannot be used. The reason is logged, and the turn continues.
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
        """The resource for an argument of the given kind.

        Raises:
            InputError: the file is missing, too large, or of another kind.
            ForbiddenError: this run may not read the file or URL.
        """
        resource = value if isinstance(value, Resource) else await self._lookup(str(value).strip())
        if resource.kind != kind and kind in MEDIA - {"file"}:
            wrong = f"{resource.path or value} is {_article(resource.kind)}"
            raise InputError(f"{wrong}, and {_article(kind)} is needed")
        if resource.path is not None:
            await asyncio.to_thread(check_limits, resource, self.settings)
        return resource

    async def text_of(self, value: str | Resource) -> str:
        """The text of a resource, or of the file that a value names; the value itself if it names none.

        Raises:
            InputError: the file is missing, or its text cannot be read.
            MissingExtraError: it is a document, and the extra `community` is not installed.
        """
        found = value if isinstance(value, Resource) else await self._find_text(value.strip())
        if found is not None and found.path is not None and found.text is None and found.kind in _TEXTS:
            return await run_cpu_bound(load_text, found.path)
        return value if isinstance(value, str) else value.as_text()

    async def _find_text(self, name: str) -> Resource | None:
        if len(name) > _MAX_NAME:
            return None
        found = self._access.find_path(name) or await asyncio.to_thread(self._access.find_planned, name)
        if isinstance(found, InputError):
            raise found
        return found

    async def path_of(self, value: str) -> str:
        """The path of the allowed file that a value names, for tools that open files; else the value.

        The planner may have shortened the name, and an attachment has only a generated one.
        """
        found = self._access.find_path(value.strip())
        path = found.path if isinstance(found, Resource) else None
        return value if path is None or await asyncio.to_thread(os.path.exists, value) else str(path)

    async def _lookup(self, name: str) -> Resource:
        if self._access.for_tool and _URL.match(name):
            self._urls.setdefault(name, asyncio.Lock())
        if name in self._urls:
            async with self._urls[name]:
                fetched = self._access.find_path(name)
                return fetched if isinstance(fetched, Resource) else await self.grant(name)
        found = self._access.find(name)
        if isinstance(found, InputError):
            raise found
        if found is not None:
            return found
        if "://" in name:
            raise self._access.refusal(name)
        with name_errors(name):
            return await asyncio.to_thread(self._access.open_planned, name)

    async def _open(self, name: str) -> Resource:
        if name.startswith("data:"):
            return await asyncio.to_thread(self._save_attachment, name, "")
        if _URL.match(name):
            suffix = PurePosixPath(urlsplit(name).path).suffix[:8]
            path = await asyncio.to_thread(self.new_path, suffix, "download")
            path = await fetch(name, path, self.settings)
            return await asyncio.to_thread(describe_file, path, name)
        return await asyncio.to_thread(self._access.open_requested, name)

    def _save_attachment(self, data: str, mime: str) -> Resource:
        limit = self.settings.max_file_bytes
        if len(data) > limit * 4 // 3 + 256:  # Four base64 letters encode three bytes.
            raise InputError(f"an attached file has more than {limit:,} bytes (JARVIS_MAX_FILE_BYTES)")
        match = _DATA_URI.match(data)
        mime = (match["mime"] if match else None) or mime
        try:
            content = base64.b64decode(match["data"] if match else data, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InputError("an attached file is not valid base64") from error
        digest = hashlib.sha256(content).hexdigest()
        if digest in self._attachments:
            return self._attachments[digest]
        # Named after its content: a resumed plan finds it under this name.
        path = self.directory / f"input-{digest[:12]}{detect_suffix(content, mime)}"
        self.prepare()
        with disk_errors("an attached file"):
            # An interrupted run may have written a part of it.
            if not path.is_file() or path.read_bytes() != content:
                path.write_bytes(content)
        resource = self._attachments[digest] = describe_file(path, path.name)
        return resource


def _article(kind: str) -> str:
    return f"an {kind} file" if kind[0] in "aeiou" else f"a {kind} file"
