"""RayBackend: a local backend whose models run on the nodes of a Ray cluster.

backend = RayBackend(TransformersBackend(pool, settings), "ray://head:10001")
raw = await backend.run(call)

Inputs travel as bytes, and raw outputs come back. Loaded models belong to the cluster, and stay there.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.jobs import activities
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.backends.memory import Notify
from jarvis_agent.backends.ray import cluster
from jarvis_agent.backends.ray.protocol import read_reply, write_call
from jarvis_agent.core.errors import JarvisError, describe_error
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate

logger = logging.getLogger(__name__)

POLL_S = 1.0
"""Seconds between questions for the progress of calls."""


@dataclass(eq=False, slots=True)
class RemoteActivity:
    """A download, or a text that is being written, on a node; or a wait for one."""

    model: str
    text: str = ""

    def __str__(self) -> str:
        return self.text


class RayBackend:
    """Runs the models of a LocalBackend, which is installed on every node, on a cluster."""

    name: ClassVar[str]
    local: ClassVar[bool] = True

    def __init__(self, backend: LocalBackend, address: str) -> None:
        """`address` is "auto" or "ray://host:port"."""
        self.name = backend.name  # type: ignore[misc]
        self._backend = backend
        self._address = address
        self._loading: dict[tuple[str, ...], asyncio.Task[None]] = {}
        self._models: Counter[str] = Counter()
        self._polled = 0.0
        self._shown: Sequence[RemoteActivity] = ()

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """As the local backend: the nodes have the packages of this machine."""
        return self._backend.unsupported_reason(spec, candidate)

    async def run(self, call: Call) -> Any:
        """Run the model on a node that has it, or has room for it.

        Raises:
            TransientError: the cluster cannot be reached, or the replica or its node was lost.
            OutOfMemoryError: no node is large enough.
            JarvisError: the call failed on the node.
        """
        loading = self._loading.pop(self._key(call), None)
        try:
            return await self._ask("run", call)
        finally:
            if loading is not None:  # cancelled earlier, it would stop a load that the call waits for
                loading.cancel()

    def prepare(
        self, spec: TaskSpec, candidate: Candidate, settings: Settings, depth: int, notify: Notify
    ) -> Callable[[], None] | None:
        """Load the model on a node before its call. A model of unknown size is not loaded."""
        if candidate.size is None:
            return None

        call = Call(spec, candidate, {}, _no_path, settings)

        async def load() -> None:
            notify("loading")
            try:
                await self._ask("load", call)
            except Exception as error:  # the call itself reports it
                logger.debug("%s is not loaded before its call: %s", candidate.id, describe_error(error))
            notify("loaded")

        key, loading = self._key(call), asyncio.get_running_loop().create_task(load())
        self._loading[key] = loading

        def release() -> None:
            loading.cancel()
            if self._loading.get(key) is loading:
                del self._loading[key]

        return release

    async def _ask(self, method: str, call: Call) -> Any:
        """Call a method of a replica; what it downloads or writes meanwhile is shown as if it were here."""
        gateway = await cluster.actor(self._address, cluster.GATEWAY)
        request = await cluster.send(await asyncio.to_thread(write_call, call))
        model = call.candidate.id
        self._models[model] += 1
        following = asyncio.create_task(self._follow(gateway))
        try:
            reply = await cluster.call(gateway.run, self._place(call), method, request)
        finally:
            following.cancel()
            self._models -= Counter([model])  # removes it at 0
            if not self._models:
                self._show(())
        return await asyncio.to_thread(read_reply, await cluster.receive(reply), call)

    async def _follow(self, gateway: Any) -> None:
        """Show the progress of all calls of this backend. One call asks for all."""
        while True:
            await asyncio.sleep(POLL_S)
            if time.monotonic() < self._polled + POLL_S:
                continue
            self._polled = time.monotonic()
            try:
                found = await cluster.call(gateway.activities, list(self._models))
            except JarvisError as error:
                logger.debug("the progress on the cluster is unknown: %s", describe_error(error))
            else:
                self._show([RemoteActivity(*one) for one in found])

    def _show(self, found: Sequence[RemoteActivity]) -> None:
        activities.extend(found)
        for one in self._shown:
            with suppress(ValueError):  # another event loop was faster
                activities.remove(one)
        self._shown = found

    def _key(self, call: Call) -> tuple[str, ...]:
        return self._backend.pool_key(call.spec, call.candidate, call.settings)

    def _place(self, call: Call) -> dict[str, Any]:
        kind = type(self._backend)
        return {
            "family": self.name,
            "backend": f"{kind.__module__}.{kind.__qualname__}",
            "name": call.candidate.id,
            "model": hashlib.sha256(repr(self._key(call)).encode()).hexdigest(),
            "size": call.candidate.size,
            "gpu": call.settings.device != "cpu" and "torch" in kind.needs,
        }

    async def close(self) -> None:
        """Do nothing: the models stay on the cluster, for other drivers, until Ray Serve removes them."""


def _no_path(suffix: str) -> Any:
    raise RuntimeError("a model that is only loaded writes no files")
