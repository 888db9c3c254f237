"""The directory that a run writes to, `outputs/<run id>/` by default."""

import hashlib
import logging
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from jarvis_agent.core.errors import AttemptTimeoutError, InputError, describe_error
from jarvis_agent.core.forks import fork_safe
from jarvis_agent.core.settings import Settings
from jarvis_agent.media.detect import detect_suffix

RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{16}")
"""The name of a run's directory, which cannot be guessed."""

logger = logging.getLogger(__name__)


class RunDirectory:
    """A directory, its unique file names, and its end. Every method is thread-safe, and blocks.

    The constructor does not touch the disk. `path` is absolute.
    """

    def __init__(self, settings: Settings, path: Path | None = None) -> None:
        """`path` is that of an interrupted run; by default, a new one below `settings.output_dir`."""
        run_id = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(8)}"
        self.path = (path or settings.output_dir / run_id).absolute()
        self._taken: set[str] = set()
        self._is_prepared = False
        self._is_closed = False
        self._lock = fork_safe(threading.RLock())

    def prepare(self) -> None:
        """Create the directory, so that a wrong output directory is an InputError before any work is done.

        Files of an interrupted run are kept, and their names are not reused.
        """
        with disk_errors("the output directory"), self._lock:
            # The run may have been stopped meanwhile; a directory created now would stay behind.
            if not (self._is_prepared or self._is_closed):
                self.path.mkdir(parents=True, exist_ok=True)
                self._taken.update(path.name for path in self.path.iterdir())
                self._is_prepared = True

    def new_path(self, suffix: str, stem: str = "file") -> Path:
        """An unused path; `suffix` starts with a dot, as in ".png"."""
        stem = re.sub(r"[^\w.-]+", "-", stem).strip("-.") or "file"
        with self._lock:
            self.prepare()
            name, number = f"{stem}{suffix}", 1
            while name in self._taken:
                number += 1
                name = f"{stem}-{number}{suffix}"
            self._taken.add(name)
        return self.path / name

    def save_input(self, content: bytes, mime: str, name: str = "") -> Path:
        """Write a file named after its content, so that a resumed plan finds it under the same name."""
        digest = hashlib.sha256(content).hexdigest()[:12]
        path = self.path / f"input-{digest}{detect_suffix(content, mime, name)}"
        self.prepare()
        with disk_errors("an attached file"):
            # An interrupted run may have written a part of it.
            if not path.is_file() or path.read_bytes() != content:
                path.write_bytes(content)
        return path

    def close(self) -> None:
        """Remove the directory if it is empty. `prepare` does not create it afterwards."""
        with self._lock, suppress(OSError):
            self._is_closed = True
            self.path.rmdir()


class AttemptFiles:
    """Thread-safe list of the paths that one attempt was given.

        files = AttemptFiles(call.new_path)
        path = files.new_path(".png")
        files.rollback()                # the attempt failed: delete its files, refuse new ones

    A thread cannot be cancelled. An abandoned one gets no further paths, and calls `cleanup` at its end.
    """

    def __init__(self, new_path: Callable[[str], Path]) -> None:
        """`new_path` returns an unused path for a suffix."""
        self._new_path = new_path
        self._paths: list[Path] = []
        self._is_over = False

    def new_path(self, suffix: str) -> Path:
        """A path for a file of this attempt. Raises AttemptTimeoutError: the attempt is over."""
        self._paths.append(path := self._new_path(suffix))  # before the check, so that `rollback` has it
        if self._is_over:
            raise AttemptTimeoutError("the attempt is over, so it writes no further file")
        return path

    def rollback(self) -> None:
        """End the attempt and delete its files, complete or partial."""
        self._is_over = True
        self.cleanup()

    def cleanup(self) -> None:
        """Delete the files if the attempt was rolled back; otherwise do nothing."""
        for path in [*self._paths] if self._is_over else ():
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                logger.warning("cannot delete %s of a failed attempt: %s", path, describe_error(error))


@contextmanager
def disk_errors(what: str) -> Iterator[None]:
    """Turn an `OSError` while `what` is written into an `InputError`."""
    try:
        yield
    except OSError as error:
        advice = "check the directory of --out or JARVIS_OUTPUT_DIR, and the space on its disk"
        raise InputError(f"{what} cannot be written", detail=error, advice=advice) from error
