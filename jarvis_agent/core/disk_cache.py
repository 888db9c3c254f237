"""A directory of small JSON values by key, good for some days: what need not be asked a second time.

    shelf = Shelf(Path("~/.cache/jarvis/plans"), days=7)
    shelf.put(["plan", "How many cats are in a.jpg?"], {"tasks": [...]})
    shelf.get(["plan", "How many cats are in a.jpg?"])        # the value; None once it is too old

A value is a file that is named by the hash of its key, written whole or not at all, so that processes can
share a shelf, and nobody but their owner can read it. Keys are not kept, so that requests can not be read
from it; values are. What is too old is deleted: when it is found, and all of it now and then.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

_DAY = 86_400.0
_BETWEEN_SWEEPS = 3_600.0
_OURS = re.compile(r"[0-9a-f]{64}\.(?:json|[0-9a-f]{8})")
"""The names of values, and of drafts that a process which died has left."""


class Shelf:
    """See the module. A shelf that can not be read or written is as good as an empty one; the log tells."""

    def __init__(self, directory: Path, days: float, clock: Callable[[], float] = time.time) -> None:
        """`directory` is made when it is needed; `clock` gives seconds."""
        self.directory = directory.expanduser()
        self._longest = days * _DAY
        self._clock = clock
        self._next_sweep = 0.0

    def get(self, key: Any) -> Any | None:
        """The value that was put for a key of plain JSON, if it is not too old."""
        place = self._place(key)
        try:
            kept = json.loads(place.read_text(encoding="utf-8"))
            age = self._clock() - kept["at"]
            if age > self._longest:
                place.unlink(missing_ok=True)
            return kept["value"] if 0 <= age <= self._longest else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("the cache file %s can not be read: %s", place, error)
            return None

    def put(self, key: Any, value: Any) -> None:
        """Keep a value of plain JSON."""
        place = self._place(key)
        draft = place.with_suffix(f".{secrets.token_hex(4)}")
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            text = json.dumps({"at": self._clock(), "value": value}, ensure_ascii=False)
            with open(draft, "x", encoding="utf-8", opener=_for_me_alone) as file:
                file.write(text)
            draft.replace(place)
        except OSError as error:
            with suppress(OSError):
                draft.unlink()
            logger.warning("the cache file %s can not be written: %s", place, error)
        else:
            self._sweep()

    def _sweep(self) -> None:
        """Delete what is too old, once an hour: most keys never come again."""
        now = self._clock()
        if now < self._next_sweep:
            return
        self._next_sweep = now + _BETWEEN_SWEEPS
        try:
            files = [file for file in self.directory.iterdir() if _is_ours(file)]
        except OSError as error:
            logger.warning("what is too old in %s can not be looked for: %s", self.directory, error)
            return
        for file in files:
            try:
                if now - file.stat().st_mtime > self._longest:
                    file.unlink()
            except FileNotFoundError:
                continue  # another process sweeps too
            except OSError as error:
                logger.warning("%s is too old and can not be deleted: %s", file, error)

    def _place(self, key: Any) -> Path:
        text = json.dumps(key, sort_keys=True, default=str)
        return self.directory / f"{hashlib.sha256(text.encode()).hexdigest()}.json"


def _is_ours(file: Path) -> bool:
    return _OURS.fullmatch(file.name) is not None


def _for_me_alone(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
