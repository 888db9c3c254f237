"""RayBackend: a local backend whose models run on the nodes of a Ray cluster.

backend = RayBackend(TransformersBackend(settings, pool), "ray://head:10001")
raw = await backend.run(call)

Inputs travel as bytes, and raw outputs come back. Loaded models belong to the cluster, and stay there.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.jobs import Notify, activities
from jarvis_agent.backends.local import LocalBackend
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
    state: ClassVar[str] = "remote"

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
        following = asyncio.create_task(self._follow(gateway, call.candidate.id))
        try:
            reply = await cluster.call(gateway.run, self._place(call), method, request)
        finally:
            following.cancel()
        return await asyncio.to_thread(read_reply, await cluster.receive(reply), call)

    async def _follow(self, gateway: Any, model: str) -> None:
        """Show in the run of a call what its model does."""
        shown, found = activities.get(), list[RemoteActivity]()
        try:
            while True:
                await asyncio.sleep(POLL_S)
                earlier = found
                try:
                    found = [RemoteActivity(*one) for one in await cluster.call(gateway.activities, [model])]
                except JarvisError as error:
                    logger.debug("the progress on the cluster is unknown: %s", describe_error(error))
                    continue
                shown[:] = [*(one for one in shown if one not in earlier), *found]
        finally:
            shown[:] = [one for one in shown if one not in found]

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
