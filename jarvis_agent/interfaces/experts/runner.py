"""ExpertRunner: runs the calls that agents send, in this process.

runner = ExpertRunner(settings)
async for line in runner.answer(body): ...       # lines of progress, then the reply
runner.models()                                   # what is loaded
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from jarvis_agent.backends import circuit_breaker
from jarvis_agent.backends.base import Backend, Call
from jarvis_agent.backends.experts.protocol import read_call, write_error, write_reply
from jarvis_agent.backends.experts.wire import write_line
from jarvis_agent.backends.jobs import Activity, activities
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.backends.pool import Key, ModelPool
from jarvis_agent.backends.registry import Factory, make_backends
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.interfaces.common.path_filter import PathRedactor, machine_directories
from jarvis_agent.media.run_directory import RunDirectory

REPORT_S = 1.0
"""Seconds between lines of progress, which also show that the server is there."""


@contextmanager
def call_folder() -> Iterator[Path]:
    """A folder for the files of a call, within the block."""
    with TemporaryDirectory(prefix="jarvis-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


class ExpertRunner:
    """The local backends, and the pool, of this process.

    `here`: whether models run in this process.
    """

    here: ClassVar[bool] = True

    def __init__(
        self, settings: Settings, backends: Iterable[Backend | Factory] | None = None, node: str = ""
    ) -> None:
        """`settings` limit what callers may ask for; replies name `node`; `backends` as for an agent."""
        self.settings = settings.model_copy(update={"experts": "none"})
        self._pool = ModelPool(settings.memory_limit)
        made = make_backends(self.settings, self._pool, backends)
        self.backends = {one.name: one for one in made if isinstance(one, LocalBackend)}
        self._node = node
        self._seen: dict[Key, dict[str, Any]] = {}
        nowhere = Path("/nowhere")
        self.redactor = PathRedactor(nowhere, nowhere, machine_directories(settings))

    def models(self) -> dict[str, Any]:
        """What is "loaded", each model with its bytes and calls, and the bytes by device; plain JSON."""
        loaded = [
            {**self._seen[key], "bytes": size} for key, size in self._pool.loaded.items() if key in self._seen
        ]
        return {"loaded": loaded, "memory": self._pool.used, "memory_limit": self.settings.memory_limit}

    async def close(self) -> None:
        """Free the models."""
        await self._pool.close()

    async def answer(self, body: bytes) -> AsyncGenerator[bytes, None]:
        """Run a call, or load its model before it comes: lines of progress, then the reply.

        Closing the iterator cancels the call, and ends the reservation.
        """
        shown: list[Activity] = []
        context = copy_context()
        context.run(activities.set, shown)
        task = asyncio.create_task(self._reply(body), context=context)
        try:
            while not (await asyncio.wait([task], timeout=REPORT_S))[0]:
                yield write_line(progress=[(one.model, str(one)) for one in list(shown)])
            yield task.result()
        finally:
            task.cancel()

    async def _reply(self, body: bytes) -> bytes:
        try:
            with call_folder() as folder:
                backend, call, depth = await asyncio.to_thread(self._read, body, folder)
                if depth is not None:
                    return await self._load(backend, call, depth)
                raw = await self.call(backend, call)
                return await asyncio.to_thread(write_reply, self._node, raw=raw, notes=call.notes)
        except Exception as error:
            return write_error(self._node, error, self.redactor.clean)

    def _read(self, body: bytes, folder: Path) -> tuple[LocalBackend, Call, int | None]:
        """The call and the backend that runs it. Blocks; its files are written to a folder."""
        call, depth = read_call(body, RunDirectory(self.settings, folder).new_path, self.settings)
        backend = self.backends.get(call.candidate.backend or "")
        if backend is None:
            raise UnsupportedError(f"the expert server has no backend {call.candidate.backend!r}")
        if reason := backend.unsupported_reason(call.spec, call.candidate):
            raise UnsupportedError(f"the expert server cannot run {call.candidate.id}: {reason}")
        return backend, call, depth

    async def call(self, backend: LocalBackend, call: Call) -> Any:
        """The raw output of a call. Raises as `Backend.run`."""
        row = self._row(backend, call)
        async with circuit_breaker.shared.call((backend.name, call.candidate.id)):
            raw = await backend.run(call)
        row["calls"] += 1
        return raw

    def _row(self, backend: LocalBackend, call: Call) -> dict[str, Any]:
        row = {"model": call.candidate.id, "backend": backend.name, "calls": 0}
        return self._seen.setdefault(backend.pool_key(call.spec, call.candidate, call.settings), row)

    async def _load(self, backend: LocalBackend, call: Call, depth: int) -> bytes:
        self._row(backend, call)
        loop, loaded = asyncio.get_running_loop(), asyncio.Event()

        def notify(what: str) -> None:
            if what == "loaded":
                loop.call_soon_threadsafe(loaded.set)

        release = backend.prepare(call.spec, call.candidate, call.settings, depth, notify)
        try:
            await loaded.wait()
        finally:
            release()
        return write_reply(self._node)
