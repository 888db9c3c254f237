"""The connection of this process to a Ray cluster; Ray allows one.

gateway = actor("ray://head:10001", GATEWAY)    # or "auto": the cluster that this machine is a node of
reply = await call(gateway.run, place, "run", request)
describe_cluster("auto")                        # "2 nodes with 8 CPUs, 1 GPUs and 32.0 GB of memory"
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from jarvis_agent import __version__
from jarvis_agent.backends.ray.protocol import last_line
from jarvis_agent.core.errors import (
    ConfigError,
    ExpertError,
    MissingExtraError,
    TransientError,
    UnsupportedError,
)

GATEWAY = "jarvis_agent.backends.ray.gateway:Gateway"

PORT = 10001
"""The port of Ray Client, unless an address has one."""

CONNECT_TIMEOUT_S = 5.0
"""Seconds to wait for the port of a cluster; Ray itself waits half a minute."""

_lock = threading.Lock()
_joined: str | None = None
"""The address of the cluster that this process has joined."""
_actors: dict[tuple[str, str], Any] = {}
"""The actors of the cluster that this process has joined, by address and class."""


def actor(address: str, home: str) -> Any:
    """The actor of a class ("module:Class"), one for the cluster, started if needed. Blocks.

    Raises:
        ConfigError: Ray is not installed (MissingExtraError), or the process has joined another cluster.
        TransientError: the cluster cannot be reached.
    """
    with _lock:
        if (address, home) not in _actors:
            _join(address)
            _actors[address, home] = _remote(home)
        return _actors[address, home]


def disconnect() -> None:
    """Leave the cluster. Deployments stay, for other drivers."""
    import ray

    global _joined
    with _lock:
        _actors.clear()
        _joined = None
        ray.shutdown()


def _join(address: str) -> None:
    global _joined
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError(f"the cluster {address}", "ray") from error
    if ray.is_initialized():
        if _joined not in (None, address):
            raise ConfigError(f"this process uses the cluster {_joined}, so it cannot use {address} as well")
        _joined = address
        return
    _actors.clear()
    try:
        if address != "auto":
            place = urlsplit(address)
            socket.create_connection((place.hostname, place.port or PORT), CONNECT_TIMEOUT_S).close()
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
        _joined = address
    except (OSError, RuntimeError) as error:  # another version of Ray or Python is a RuntimeError
        raise TransientError(
            f"the cluster {address} cannot be reached: {last_line(str(error))}; check that it runs "
            "(`ray status` on its head node), or unset JARVIS_CLUSTER to use this machine alone"
        ) from error


def _remote(home: str) -> Any:
    """The actor, which outlives its driver and is restarted elsewhere if its node is lost."""
    import ray

    module, kind = home.split(":")
    name = f"{kind}-{__version__}"
    options = {"name": name, "namespace": "jarvis", "get_if_exists": True, "lifetime": "detached"}
    limits = {"num_cpus": 0, "max_restarts": -1, "max_concurrency": 10_000}
    return ray.remote(getattr(import_module(module), kind)).options(**options, **limits).remote()


async def call(method: Any, *args: Any) -> Any:
    """The result of an actor's method. If the caller is cancelled, the method is too.

    Raises:
        UnsupportedError: this package is not installed on the cluster.
        TransientError: the connection or the actor was lost.
    """
    import ray

    try:
        ref = method.remote(*args)  # in a thread, a call that is cancelled meanwhile would go on
        try:
            reply = asyncio.wrap_future(ref.future())
            reply.add_done_callback(lambda one: one.cancelled() or one.exception())
            return await asyncio.shield(reply)  # a cancelled future makes the client's thread fail
        except asyncio.CancelledError:
            await asyncio.to_thread(ray.cancel, ref)
            raise
    except ray.exceptions.RayTaskError as error:
        raise ExpertError(f"the cluster failed: {last_line(str(error))}") from error
    except Exception as error:  # Ray Client raises plain ones
        if "ModuleNotFoundError" in str(error):
            raise UnsupportedError(
                f"the cluster lacks a package: {last_line(str(error))}; install langchain-hugginggpt with "
                "the same extras on every node"
            ) from error
        _actors.clear()
        raise TransientError(f"the cluster does not answer: {last_line(str(error))}") from error


def describe_cluster(address: str) -> str:
    """The nodes of a cluster and the sum of their resources, as text. Blocks. Raises as `actor`."""
    with _lock:
        _join(address)
    import ray

    nodes = sum(node["Alive"] for node in ray.nodes())
    total = ray.cluster_resources()
    cpus, gpus, memory = (total.get(name, 0) for name in ("CPU", "GPU", "memory"))
    return f"{nodes} nodes with {cpus:g} CPUs, {gpus:g} GPUs and {memory / 1e9:.1f} GB of memory"
