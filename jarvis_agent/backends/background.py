"""The expert server of an agent: that of its settings, else the one that its user started in the background.

    server = find_server(settings)       # an ExpertServer, or None

A background server writes its address and its key to a file of the user, and holds a lock beside it while it
runs.
"""

from __future__ import annotations

import json
import os
import platform
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from jarvis_agent.backends.remote import ExpertServer
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.settings import Settings

_LOCK_S = 2.0
"""Seconds to wait for the lock: another process may try it just now."""

_STOP_S = 30.0
"""Seconds to wait for the end of a server, which lets its calls end."""


def runtime_file() -> Path:
    """The file of this user's background server on this machine."""
    names = os.environ.get("XDG_RUNTIME_DIR"), os.environ.get("XDG_CACHE_HOME")
    folder = Path(next(filter(None, names), None) or Path.home() / ".cache") / "jarvis_agent"
    return folder / f"experts-{platform.node()}.json"


def find_server(settings: Settings) -> ExpertServer | None:
    """The server of the settings, else the background server, if it runs; None: there is none."""
    if settings.experts == "none":
        return None
    if settings.experts is None:
        return find_background()
    key = settings.experts_key.get_secret_value() if settings.experts_key else None
    return ExpertServer(settings.experts, key)


def find_background() -> ExpertServer | None:
    """The server that this user started in the background, if it runs."""
    try:
        file = runtime_file()
        found = json.loads(file.read_text(encoding="utf-8"))
        with _lock(file).acquire(timeout=0):
            return None  # it has ended
    except Timeout:
        return ExpertServer(found["address"], found["key"], may_be_absent=True)
    except (OSError, ValueError, RuntimeError):  # `Path.home` raises RuntimeError
        return None


def stop_background() -> bool:
    """End the background server; False: there is none, or it does not end."""
    if not find_background():
        return False
    os.kill(json.loads(runtime_file().read_text(encoding="utf-8"))["pid"], signal.SIGTERM)
    try:
        with _lock(runtime_file()).acquire(timeout=_STOP_S):
            return True
    except Timeout:
        return False


@contextmanager
def publish_address(address: str, key: str | None) -> Iterator[None]:
    """Let the agents of this user find a server within the block.

    Raises:
        ConfigError: there is one already.
    """
    file = runtime_file()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with _lock(file).acquire(timeout=_LOCK_S):
            file.unlink(missing_ok=True)
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
                json.dump({"address": address, "key": key, "pid": os.getpid()}, opened)
            try:
                yield
            finally:
                file.unlink(missing_ok=True)
    except Timeout as error:
        raise ConfigError("an expert server runs in the background already") from error


def _lock(file: Path) -> FileLock:
    return FileLock(file.with_suffix(".lock"))
