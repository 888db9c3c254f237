"""Downloads from the Hub that can be watched and given up.

    folder = fetch("org/model", {"config.json": 512, "model.safetensors": 90_000_000}, None, token)
    [str(download) for download in under_way()]         # ["org/model: 12 of 90 MB"]

Each file goes through huggingface_hub: its cache, its locks, and its way to go on with a half-written file.
It gives up a server that says nothing for ten seconds (HF_HUB_DOWNLOAD_TIMEOUT) after five further tries.
The threads are daemons, so that neither a cancelled call nor the end of the process waits for a dead server.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, wait
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Self

from jarvis_agent.backends.pool import abandoned
from jarvis_agent.core.errors import TransientError
from jarvis_agent.core.threads import in_daemon

_THREADS = 4
_LOOK = 0.1
"""Seconds between two looks whether the call was cancelled."""


@dataclass(eq=False, slots=True)
class Download:
    """A download that is under way: `done` of `total` bytes."""

    model: str
    total: int
    done: int = 0
    stopped: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __str__(self) -> str:
        unit, name = (1e9, "GB") if self.total >= 1e9 else (1e6, "MB")
        return f"{self.model}: {self.done / unit:.1f} of {self.total / unit:.1f} {name} downloaded"

    def advance(self, count: float) -> None:
        """Count bytes that have come.

        Raises:
            TransientError: nobody wants the rest.
        """
        if self.stopped:
            raise _given_up(self.model)
        with self._lock:
            self.done += int(count)


_under_way: list[Download] = []


def under_way() -> list[Download]:
    """The downloads of this process that have not ended, for a display."""
    return list(_under_way)


def fetch(model: str, sizes: Mapping[str, int], revision: str | None, token: str | None) -> Path:
    """Download files of one commit of a model, those that are cached excepted. Blocks.

    Args:
        sizes: bytes by path in the repository.

    Returns:
        The folder in the Hub's cache that holds them.

    Raises:
        TransientError: the call that wants them was cancelled; what has come is kept for the next try.
        Exception: whatever huggingface_hub raises.
    """
    from huggingface_hub import hf_hub_download

    download = Download(model, sum(sizes.values()))
    bar = _bar_of(download)

    def get(name: str, commit: str | None) -> Path:
        return Path(hf_hub_download(model, name, revision=commit, token=token, tqdm_class=bar))

    first, *rest = sizes
    _under_way.append(download)
    try:
        [path] = _in_daemons(lambda name: get(name, revision), [first], download)
        folder = path.parents[first.count("/")]
        _in_daemons(lambda name: get(name, folder.name), rest, download)
    finally:
        download.stopped = True
        _under_way.remove(download)
    return folder


def _in_daemons(work: Callable[[str], Path], names: Sequence[str], download: Download) -> list[Path]:
    """The work on every name, in a few threads; nothing waits for them once the call is cancelled."""
    left: SimpleQueue[str] = SimpleQueue()
    for name in names:
        left.put(name)
    jobs = [in_daemon(_work, work, left, download) for _ in range(min(_THREADS, len(names)))]
    waiting = set(jobs)
    while waiting:
        finished, waiting = wait(waiting, timeout=_LOOK, return_when=FIRST_EXCEPTION)
        for done in finished:
            done.result()
        if abandoned():
            raise _given_up(download.model)
    return [path for done in jobs for path in done.result()]


def _work(work: Callable[[str], Path], left: SimpleQueue[str], download: Download) -> list[Path]:
    made: list[Path] = []
    while not download.stopped:
        try:
            name = left.get_nowait()
        except Empty:
            break
        made.append(work(name))
    return made


def _given_up(model: str) -> TransientError:
    return TransientError(f"the download of {model} was given up, since the call was cancelled")


def _bar_of(download: Download) -> Any:
    """What huggingface_hub tells of the bytes that come: it takes a class in the manner of tqdm."""

    class Bar:
        def __init__(self, *args: Any, total: int = 0, initial: int = 0, **options: Any) -> None:
            self.total = total
            download.advance(initial)

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *error: object) -> None:
            return None

        def update(self, count: float | None = 1) -> None:
            download.advance(count or 0)

        def update_transfer(self, count: float | None = 1) -> None:
            """Bytes on the wire, which are counted already as bytes of the file."""

        def set_postfix_str(self, text: str, refresh: bool = False) -> None:
            """The rate is not shown."""

        set_transfer_postfix_str = set_postfix_str

        def close(self) -> None:
            """Nothing is held."""

    return Bar
