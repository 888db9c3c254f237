"""The files of one attempt: kept if it succeeds, removed if it does not, even those that come late.

    drafts = AttemptFiles(step.new_path)
    path = drafts.new_path(".png")
    drafts.discard()                # the attempt has failed: the file goes, and no other is begun

A thread can not be stopped. One that goes on when nobody waits for it any more is refused further paths, and
calls `sweep` at its end, for it may have written meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from jarvis_agent.core.errors import AttemptTimeoutError, describe_error

logger = logging.getLogger(__name__)


class AttemptFiles:
    """See the module. Threads may use it."""

    def __init__(self, new_path: Callable[[str], Path]) -> None:
        """`new_path` makes a path that nobody else has; it takes a suffix."""
        self._new_path = new_path
        self._paths: list[Path] = []
        self._over = False
        self._lock = threading.Lock()

    def new_path(self, suffix: str) -> Path:
        """A path for a file of this attempt.

        Raises:
            TooSlowError: the attempt is over.
        """
        # This may wait for a disk, and whoever discards must not wait for it.
        path = self._new_path(suffix)
        with self._lock:
            if self._over:
                raise AttemptTimeoutError("nobody waits for this any more, so it writes no file")
            self._paths.append(path)
        return path

    def discard(self) -> None:
        """The attempt is over: remove what it has written, whole or half."""
        with self._lock:
            self._over = True
        self.sweep()

    def sweep(self) -> None:
        """Remove what was written, if the attempt was discarded; nothing otherwise."""
        with self._lock:
            paths = list(self._paths) if self._over else []
        for path in paths:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                logger.warning("%s is of no use and can not be removed: %s", path, describe_error(error))
