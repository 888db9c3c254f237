"""ExpertReplica: the actor of a Ray Serve deployment, which runs the models of one local backend.

A replica is the pool of one process: it loads models at their first call, keeps the most recently used, and
computes calls that wait together as a batch. Ray Serve sends a call to a replica that has its model.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter, defaultdict
from itertools import count
from pathlib import Path
from pydoc import locate
from typing import Any

import ray
from ray import serve

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.jobs import activities
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.backends.pool import Key, ModelPool
from jarvis_agent.backends.ray.cluster import GATEWAY, NAMESPACE, actor_name
from jarvis_agent.backends.ray.protocol import read_call, write_reply
from jarvis_agent.backends.ray.wire import Parts, fetch, store
from jarvis_agent.core.settings import Settings

MAX_MODELS = 64
"""Models of a replica that Ray Serve knows of; memory sets a lower limit."""

REPORT_S = 1.0
"""Seconds between reports of what a replica downloads or writes."""


class ExpertReplica:
    """Runs calls of `backend`, the import path of a LocalBackend, with `memory` bytes of weights."""

    def __init__(self, backend: str, memory: int) -> None:
        kind = locate(backend)
        if not (isinstance(kind, type) and issubclass(kind, LocalBackend)):
            raise ImportError(f"{backend} is not installed on this node")
        self._memory = memory
        self._backend = kind(Settings(), ModelPool(memory))
        node = ray.get_runtime_context().get_node_id()[:8]
        self._node = f"{ray.util.get_node_ip_address()} ({node})"
        self._calls: Counter[Key] = Counter()
        self._loads: defaultdict[Key, set[asyncio.Event]] = defaultdict(set)
        self._reporting: asyncio.Task[None] | None = None

    @serve.multiplexed(max_num_models_per_replica=MAX_MODELS)  # type: ignore[untyped-decorator]
    async def _note_model(self, model: str) -> str:
        """Tell Ray Serve that the model is here. The pool loads it."""
        return model

    async def run(self, request: Parts) -> Parts:
        """Run a call; a failure is in the reply."""
        await self._note_model(serve.get_multiplexed_model_id())
        self._start_reports()
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            try:
                call = await asyncio.to_thread(self._read, request, Path(folder))
                raw = await self._run(call)
                return await asyncio.to_thread(self._write, raw, call)
            except Exception as error:
                return write_reply(self._node, error=error)

    async def _run(self, call: Call) -> Any:
        key = self._key(call)
        self._calls[key] += 1
        try:
            return await self._backend.run(call)
        finally:
            for loaded in self._loads.pop(key, ()):  # ended earlier, they would stop what the call waits for
                loaded.set()
            self._calls -= Counter([key])  # removes it at 0

    async def load(self, request: Parts) -> Parts:
        """Load the model of a call that comes later. The call itself ends a wait that is no longer useful."""
        await self._note_model(serve.get_multiplexed_model_id())
        self._start_reports()
        try:
            call = await asyncio.to_thread(self._read, request, Path())
            await self._load(call)
        except Exception as error:
            return write_reply(self._node, error=error)
        return write_reply(self._node)

    async def _load(self, call: Call) -> None:
        key = self._key(call)
        if key in self._calls or key in self._backend.pool.keys:
            return
        loop, loaded = asyncio.get_running_loop(), asyncio.Event()

        def notify(what: str) -> None:
            if what == "loaded":
                loop.call_soon_threadsafe(loaded.set)

        self._loads[key].add(loaded)
        release = self._backend.prepare(call.spec, call.candidate, call.settings, 0, notify)
        try:
            await loaded.wait()
        finally:
            self._loads[key].discard(loaded)
            release()

    def _key(self, call: Call) -> Key:
        return self._backend.pool_key(call.spec, call.candidate, call.settings)

    def _start_reports(self) -> None:
        if self._reporting is None:
            self._reporting = asyncio.get_running_loop().create_task(self._report())

    async def _report(self) -> None:
        """Tell the gateway what this process downloads or writes."""
        replica = serve.get_replica_context().replica_id.unique_id
        gateway = await asyncio.to_thread(ray.get_actor, actor_name(GATEWAY), NAMESPACE)
        while True:
            await asyncio.sleep(REPORT_S)
            if lines := {one.model: f"{one} on {self._node}" for one in list(activities.get())}:
                gateway.report.remote(replica, lines)

    def _write(self, raw: Any, call: Call) -> Parts:
        return store(write_reply(self._node, raw=raw, notes=call.notes))

    def _read(self, request: Parts, folder: Path) -> Call:
        number = count()
        return read_call(fetch(request), lambda suffix: folder / f"{next(number)}{suffix}", self._memory)
