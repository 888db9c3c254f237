"""ExpertReplica: the actor of a Ray Serve deployment, which runs the models of one local backend.

A replica is the pool of one process: it loads models at their first call, keeps the most recently used, and
computes calls that wait together as a batch. Ray Serve sends a call to a replica that has its model.
"""

from __future__ import annotations

import asyncio
import tempfile
from itertools import count
from pathlib import Path
from pydoc import locate

import ray
from ray import serve

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.backends.ray.protocol import read_call, write_reply
from jarvis_agent.backends.ray.wire import Parts
from jarvis_agent.core.settings import Settings

MAX_MODELS = 64
"""Models of a replica that Ray Serve knows of; memory sets a lower limit."""


class ExpertReplica:
    """Runs calls of `backend`, the import path of a LocalBackend, with `memory` bytes of weights."""

    def __init__(self, backend: str, memory: int) -> None:
        kind = locate(backend)
        if not (isinstance(kind, type) and issubclass(kind, LocalBackend)):
            raise ImportError(f"{backend} is not installed on this node")
        self._memory = memory
        self._backend = kind(ModelPool(memory), Settings())
        node = ray.get_runtime_context().get_node_id()[:8]
        self._node = f"{ray.util.get_node_ip_address()} ({node})"

    @serve.multiplexed(max_num_models_per_replica=MAX_MODELS)  # type: ignore[untyped-decorator]
    async def _note_model(self, model: str) -> str:
        """Tell Ray Serve that the model is here. The pool loads it."""
        return model

    async def run(self, request: Parts) -> Parts:
        """Run a call; a failure is in the reply."""
        await self._note_model(serve.get_multiplexed_model_id())
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            try:
                call = await asyncio.to_thread(self._read, request, Path(folder))
                raw = await self._backend.run(call)
                return await asyncio.to_thread(write_reply, self._node, raw=raw, notes=call.notes)
            except Exception as error:
                return write_reply(self._node, error=error)

    async def load(self, request: Parts) -> None:
        """Load the model of a call that comes later. The call itself ends a wait that is no longer useful."""
        await self._note_model(serve.get_multiplexed_model_id())
        call = self._read(request, Path())
        key = self._backend.pool_key(call.spec, call.candidate, call.settings)
        if key in self._backend.pool.keys:
            return
        loop, loaded = asyncio.get_running_loop(), asyncio.Event()

        def notify(what: str) -> None:
            if what == "loaded":
                loop.call_soon_threadsafe(loaded.set)

        release = self._backend.prepare(call.spec, call.candidate, call.settings, 0, notify)
        try:
            await loaded.wait()
        finally:
            release()

    def _read(self, request: Parts, folder: Path) -> Call:
        number = count()
        return read_call(request, lambda suffix: folder / f"{next(number)}{suffix}", self._memory)
