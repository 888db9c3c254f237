"""Daemon threads that run blocking work and stay for the next, since libraries keep state by thread.

    workers = WorkerThreads(8)
    workers.submit(work)
    workers.stop(10.0)

A process can end although a thread is stuck, which a `ThreadPoolExecutor` does not allow.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

logger = logging.getLogger(__name__)


class WorkerThreads:
    """At most `size` threads, started when needed. `submit` is called by one thread at a time."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._unfinished: set[Future[None]] = set()
        self._lock = threading.Lock()

    @property
    def unfinished(self) -> set[Future[None]]:
        """Work that is queued or running."""
        with self._lock:
            return set(self._unfinished)

    def submit(self, work: Callable[[], None]) -> None:
        """Run the work when a thread is free. Its errors are logged."""
        done: Future[None] = Future()

        def run() -> None:
            try:
                work()
            except BaseException:
                logger.exception("a worker of the model pool failed")
            with self._lock:
                self._unfinished.discard(done)
            done.set_result(None)

        with self._lock:
            self._unfinished.add(done)
            grows = len(self._threads) < min(len(self._unfinished), self._size)
        self._queue.put(run)
        if grows:
            name = f"jarvis-model-{len(self._threads)}"
            self._threads.append(threading.Thread(target=self._serve, name=name, daemon=True))
            self._threads[-1].start()

    def stop(self, seconds: float) -> None:
        """End the threads after their work; wait up to `seconds` for them."""
        for _ in self._threads:
            self._queue.put(None)
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _serve(self) -> None:
        while (work := self._queue.get()) is not None:
            work()
            del work
