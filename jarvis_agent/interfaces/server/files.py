"""The two directories that clients of a server have to do with: what they sent, and what runs made.

uploads = Uploads(Path("outputs/uploads"), limit=500_000_000)
upload = uploads.save("cat.jpg", file)      # upload.name == "9f0c…/cat.jpg"

found = find_output(Path("outputs"), "20250101-120000-9f0c…", "0-canny.png")
"""

from __future__ import annotations

import errno
import re
import secrets
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from jarvis_agent.core.errors import InputError
from jarvis_agent.core.tasks.spec import Modality
from jarvis_agent.core.types import Frozen
from jarvis_agent.interfaces.server.retention import Folder, drop_oldest, folders_in
from jarvis_agent.media.files import sniff, sniff_bytes

_HEAD = 8192
_LONGEST_NAME = 60
_TOKEN = re.compile(r"[0-9a-f]{32}")
_SHOWN, _SAVED = frozenset({"image", "audio", "video"}), frozenset({"table", "3d"})
"""Kinds that a browser may show, and those that it may only save but is told the media type of."""


class Upload(Frozen):
    """A stored upload.

    Attributes:
        name: what a request calls it in its `files`.
        kind, mime: what it is, by its content.
        size: bytes.
    """

    name: str
    kind: Modality
    mime: str
    size: int


class Uploads:
    """Stores what clients send, each in a directory of its own whose name can not be guessed, for a time.

    Args:
        directory: where; what an earlier server left there counts too.
        limit: bytes of the largest file.
        seconds: how long a file is kept.
        total: bytes of all files together; the oldest make room for a new one.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        directory: Path,
        limit: int,
        *,
        seconds: float = 86_400.0,
        total: int = 20_000_000_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.directory = directory.absolute()
        self._limit = limit
        self._seconds = seconds
        self._total = total
        self._clock = clock
        self._lock = threading.Lock()
        found = folders_in(self.directory)
        self._stored = deque(folder for folder in found if _TOKEN.fullmatch(folder.path.name))

    def save(self, client_name: str, file: BinaryIO, size: int) -> Upload:
        """Store a file of `size` bytes.

        Raises:
            InputError: it is empty, too large, or of a kind that nothing here takes.
            OSError: it can not be written.
        """
        name = _plain(client_name)
        for most, setting in ((self._limit, "JARVIS_MAX_FILE_BYTES"), (self._total, "all uploads")):
            if size > most:
                raise InputError(f"{name} has {size:,} bytes, more than {most:,} ({setting})")
        head = file.read(_HEAD)
        if not head:
            raise InputError(f"{name} is empty (0 bytes)")
        kind, mime = sniff_bytes(head, Path(name))
        file.seek(0)
        folder = self.directory / secrets.token_hex(16)
        kept = Folder(folder, self._clock(), size)
        with self._lock:
            self._make_room(size)
            self._stored.append(kept)
        try:
            folder.mkdir(parents=True)
            with (folder / name).open("xb") as stored:
                shutil.copyfileobj(file, stored)
            self._check_still_there(kept)
        except OSError:
            with self._lock:
                if kept in self._stored:
                    self._stored.remove(kept)
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return Upload(name=f"{folder.name}/{name}", kind=kind, mime=mime, size=size)

    def sweep(self) -> None:
        """Delete the files whose time is over."""
        with self._lock:
            self._make_room(0)

    def _check_still_there(self, kept: Folder) -> None:
        with self._lock:
            if kept not in self._stored:
                raise OSError(errno.ENOSPC, "others were sent meanwhile, and there is no room for all")

    def _make_room(self, size: int) -> None:
        """Delete what is too old, and the oldest until `size` bytes more may be stored."""
        surplus = sum(folder.size for folder in self._stored) + size - self._total
        for _ in range(drop_oldest(self._stored, surplus, seconds=self._seconds, now=self._clock())):
            self._stored.popleft()


def _plain(name: str) -> str:
    """The last part of a client's file name, without what file systems and URLs stumble over."""
    last = re.split(r"[\\/]", name)[-1]
    return re.sub(r"[^\w.-]+", "-", last)[-_LONGEST_NAME:].strip("-.") or "file"


@dataclass(frozen=True, slots=True)
class Output:
    """A file that a run made. `shown`: whether a browser may show it; anything else it may only save."""

    path: Path
    mime: str
    shown: bool


def find_output(directory: Path, run: str, name: str) -> Output | None:
    """The file `name` of the run `run` below `directory`; None if there is none."""
    root = directory.resolve()
    path = root / run / name
    if any(part in ("", ".", "..") or re.search(r"[\\/\0]", part) for part in (run, name)):
        return None
    if not path.is_file() or path.resolve() != path:
        return None
    try:
        kind, mime = sniff(path)
    except InputError:
        return Output(path, "application/octet-stream", shown=False)
    if kind not in _SHOWN | _SAVED:
        mime = "application/octet-stream"
    return Output(path, mime, shown=kind in _SHOWN)
