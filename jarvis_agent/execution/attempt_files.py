"""AttemptFiles: the files of one attempt, which are kept only if it succeeds.

    files = AttemptFiles(call.new_path)
    path = files.new_path(".png")
    files.rollback()                # the attempt failed: delete its files, refuse new ones

A thread cannot be cancelled. An abandoned one gets no further paths, and calls `cleanup` at its end.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from jarvis_agent.core.errors import AttemptTimeoutError, describe_error

logger = logging.getLogger(__name__)


class AttemptFiles:
    """Thread-safe list of the paths that one attempt was given."""

    def __init__(self, new_path: Callable[[str], Path]) -> None:
        """`new_path` returns an unused path for a suffix."""
        self._new_path = new_path
        self._paths: list[Path] = []
        self._is_over = False
        self._lock = threading.Lock()

    def new_path(self, suffix: str) -> Path:
        """A path for a file of this attempt.

        Raises:
            AttemptTimeoutError: the attempt is over.
        """
        # Outside the lock: this may wait for a disk, and `rollback` must not wait.
        path = self._new_path(suffix)
        with self._lock:
            if self._is_over:
                raise AttemptTimeoutError("the attempt is over, so it writes no further file")
            self._paths.append(path)
        return path

    def rollback(self) -> None:
        """End the attempt and delete its files, complete or partial."""
        with self._lock:
            self._is_over = True
        self.cleanup()

    def cleanup(self) -> None:
        """Delete the files if the attempt was rolled back; otherwise do nothing."""
        with self._lock:
            paths = list(self._paths) if self._is_over else []
        for path in paths:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                logger.warning("cannot delete %s of a failed attempt: %s", path, describe_error(error))
