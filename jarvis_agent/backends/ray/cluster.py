"""The connection of this process to a Ray cluster; Ray allows one.

gateway = await actor("ray://head:10001", GATEWAY)    # or "auto": the cluster that has this machine
reply = await call(gateway.run, place, "run", request)
describe_cluster("auto")                        # "2 nodes with 8 CPUs, 1 GPUs and 32.0 GB of memory"
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, TypeVar
from urllib.parse import urlsplit

from jarvis_agent import __version__
from jarvis_agent.backends.ray.protocol import last_line
from jarvis_agent.backends.ray.wire import Parts, fetch, store
from jarvis_agent.core.concurrency import run_in_daemon_thread, start_daemon_thread
from jarvis_agent.core.errors import (
    ConfigError,
    ExpertError,
    JarvisError,
    MissingExtraError,
    TransientError,
    UnsupportedError,
    describe_error,
)

GATEWAY = "jarvis_agent.backends.ray.gateway:Gateway"
NAMESPACE = "jarvis"
"""Where Ray keeps the names of the actors."""

HEAD = "node:__internal_head__"
"""A resource that only the head node has."""

PORT = 10001
"""The port of Ray Client, unless an address has one."""

CONNECT_TIMEOUT_S = 5.0
"""Seconds to wait for the port of a cluster; Ray itself waits half a minute."""

CANCEL_TIMEOUT_S = 2.0
"""Seconds to wait until the cluster knows that a call was cancelled."""

RETRY_S = 5.0
"""Seconds for which a cluster that could not be reached is not tried again."""

T = TypeVar("T")

_lock = threading.Lock()
_joined: str | None = None
"""The address of the cluster that this process has joined."""
_actors: dict[tuple[str, str], Any] = {}
"""The actors of the cluster that this process has joined, by address and class."""
_unreachable: dict[str, tuple[float, str]] = {}
"""When a cluster is tried again, and why it could not be reached."""


async def actor(address: str, class_path: str) -> Any:
    """The actor of a class ("module:Class"), one for the cluster, started if needed.

    Raises:
        ConfigError: Ray is not installed (MissingExtraError), or the process has joined another cluster.
        TransientError: the cluster cannot be reached.
    """
    found = _actors.get((address, class_path))
    return found if found is not None else await run_in_daemon_thread(_actor, address, class_path)


def _actor(address: str, class_path: str) -> Any:
    with _lock:
        found = _actors.get((address, class_path))
        if found is None:
            with _joining(address):
                found = _actors[address, class_path] = _remote(class_path)
        return found


def disconnect() -> None:
    """Leave the cluster. Deployments stay, for other drivers."""
    import ray

    global _joined
    with _lock:
        _actors.clear()
        _joined = None
        ray.shutdown()


@contextmanager
def _joining(address: str) -> Iterator[None]:
    """Join the cluster, if this process has not, for the block. The lock is held."""
    until, message = _unreachable.pop(address, (0.0, ""))
    if time.monotonic() < until:
        _unreachable[address] = until, message
        raise TransientError(message)
    try:
        _join(address)
        yield
    except JarvisError:
        raise
    except Exception as error:  # another version of Ray or Python is a RuntimeError
        message = (
            f"the cluster {address} cannot be reached: {last_line(describe_error(error))}; check that it "
            "runs (`ray status` on its head node), or unset JARVIS_CLUSTER to use this machine alone"
        )
        _unreachable[address] = time.monotonic() + RETRY_S, message
        raise TransientError(message) from error


def _join(address: str) -> None:
    global _joined
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError(f"the cluster {address}", "ray") from error
    if ray.is_initialized():
        if _joined not in (None, address):
            raise ConfigError(f"this process uses the cluster {_joined}, so it cannot use {address} as well")
    else:
        _actors.clear()
        if address != "auto":
            place = urlsplit(address)
            socket.create_connection((place.hostname, place.port or PORT), CONNECT_TIMEOUT_S).close()
        ray.shutdown()  # Ray Client keeps a connection that was lost, and would refuse another
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    _joined = address


def actor_name(class_path: str) -> str:
    """The name of an actor among those of all versions of this package."""
    return f"{class_path.rpartition(':')[2]}-{__version__}"


def _remote(class_path: str) -> Any:
    """The actor, which outlives its driver. It runs on the head node, whose loss ends the cluster anyway."""
    import ray

    module, kind = class_path.split(":")
    options = {
        "name": actor_name(class_path),
        "namespace": NAMESPACE,
        "get_if_exists": True,
        "lifetime": "detached",
    }
    limits = {"num_cpus": 0, "resources": {HEAD: 0.001}, "max_concurrency": 10_000}
    retries = {"max_restarts": -1, "max_task_retries": 3}
    return ray.remote(getattr(import_module(module), kind)).options(**options, **limits, **retries).remote()


async def call(method: Any, *args: Any) -> Any:
    """The result of an actor's method. If the caller is cancelled, the method is too.

    Raises:
        UnsupportedError: this package is not installed on the cluster.
        TransientError: the connection or the actor was lost.
    """
    with _errors():
        sending = start_daemon_thread(method.remote, *args)  # Ray Client blocks while it connects again
        try:
            ref = await asyncio.shield(asyncio.wrap_future(sending))
            reply = asyncio.wrap_future(ref.future())
            reply.add_done_callback(lambda one: one.cancelled() or one.exception())
            return await asyncio.shield(reply)  # a cancelled future makes the client's thread fail
        except asyncio.CancelledError:
            with suppress(TimeoutError):
                async with asyncio.timeout(CANCEL_TIMEOUT_S):
                    await run_in_daemon_thread(_cancel, sending)
            raise


def _cancel(sending: Future[Any]) -> None:
    import ray

    with suppress(Exception):  # the connection is lost, and the call with it
        ray.cancel(sending.result())


async def send(parts: Parts) -> Parts:
    """Parts as arguments of `call`. Raises TransientError."""
    return await _in_thread(store, parts)


async def receive(parts: Parts) -> Parts:
    """Parts that `call` returned. Raises TransientError: the node that held them was lost."""
    return await _in_thread(fetch, parts)


async def _in_thread(work: Callable[[Parts], T], parts: Parts) -> T:
    with _errors():
        return await run_in_daemon_thread(work, parts)


@contextmanager
def _errors() -> Iterator[None]:
    import ray

    try:
        yield
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
    with _lock, _joining(address):
        import ray

        nodes = sum(node["Alive"] for node in ray.nodes())
        total = ray.cluster_resources()
    cpus, gpus, memory = (total.get(name, 0) for name in ("CPU", "GPU", "memory"))
    named = f"{nodes} node{'' if nodes == 1 else 's'}"
    return f"{named} with {cpus:g} CPUs, {gpus:g} GPUs and {memory / 1e9:.1f} GB of memory"
