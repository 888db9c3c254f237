"""What all processes that use a cluster share, in one actor: the answers of the Hub, and failures of models.

    api = SharedHubApi(Settings(cluster="auto"))
    rows = await api.get("/api/models", {"pipeline_tag": "object-detection", "limit": 20})
    async with shared_breaker("auto").call(("hf-inference", "org/model")): ...

While the cluster cannot be reached, a process asks the Hub and counts failures itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jarvis_agent.backends.circuit_breaker import CircuitBreaker, Event, Key
from jarvis_agent.backends.hub.api import HubApi, parse_rows
from jarvis_agent.backends.ray import cluster
from jarvis_agent.backends.ray.protocol import raise_error, write_reply
from jarvis_agent.backends.ray.wire import Parts, unpack
from jarvis_agent.core.errors import JarvisError, TransientError
from jarvis_agent.core.settings import Settings

logger = logging.getLogger(__name__)

_CLASS = f"{__name__}:Shared"

HUB_TIMEOUT_S = 10.0
"""Seconds to wait for an answer of the Hub, before this process asks it."""

BREAKER_TIMEOUT_S = 2.0
"""Seconds to wait for the circuit breaker, before this process counts failures for `BREAKER_PAUSE_S`."""

BREAKER_PAUSE_S = 30.0


class Shared:
    """The actor. Answers and errors are replies. Each token has answers of the Hub of its own."""

    def __init__(self) -> None:
        self._apis: dict[str | None, HubApi] = {}
        self._breaker = CircuitBreaker()

    async def get(self, token: str | None, path: str, params: Mapping[str, Any] | None) -> Parts:
        """The text of an answer of the Hub."""
        if token not in self._apis:
            self._apis[token] = HubApi(Settings(hf_token=token))
        try:
            return write_reply("", raw=await self._apis[token].get(path, params, parse=str))
        except Exception as error:
            return write_reply("", error=error)

    async def tell(self, event: Event, key: Key, seconds: float) -> Parts:
        """Tell the circuit breaker of an event."""
        try:
            await self._breaker.tell(event, key, seconds)
        except JarvisError as error:
            return write_reply("", error=error)
        return write_reply("")


class SharedHubApi(HubApi):
    """The Hub, asked by the actor of a cluster."""

    def __init__(self, settings: Settings, **options: Any) -> None:
        """As HubApi; `settings.cluster` is set."""
        super().__init__(settings, **options)
        self._cluster = settings.cluster or ""

    async def get(
        self,
        path: str,
        params: Mapping[str, Any] | None = None,
        parse: Callable[[str], Any] = parse_rows,
    ) -> Any:
        """As HubApi."""
        try:
            reply = await _ask(self._cluster, HUB_TIMEOUT_S, "get", self._token, path, params)
        except JarvisError as error:
            logger.warning("the Hub is asked without the cluster: %s", error)
            return await super().get(path, params, parse)
        try:
            return parse(_read(reply))
        except ValueError as error:
            raise self._fail(path, "its response is not JSON") from error


class SharedBreaker(CircuitBreaker):
    """The circuit breaker in the actor of a cluster."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._cluster = address
        self._silent_until = 0.0

    async def tell(self, event: Event, key: Key, seconds: float = 0.0) -> None:
        """As CircuitBreaker."""
        if time.monotonic() < self._silent_until:
            return await super().tell(event, key, seconds)
        try:
            reply = await _ask(self._cluster, BREAKER_TIMEOUT_S, "tell", event, key, seconds)
        except JarvisError as error:
            self._silent_until = time.monotonic() + BREAKER_PAUSE_S
            logger.debug("failures are counted without the cluster: %s", error)
            await super().tell(event, key, seconds)
        else:
            _read(reply)


@cache
def shared_breaker(address: str) -> SharedBreaker:
    """The circuit breaker of a cluster."""
    return SharedBreaker(address)


async def _ask(address: str, timeout: float, method: str, *args: Any) -> Parts:
    """The reply of a method of the actor within a timeout in seconds.

    Raises:
        JarvisError: as `cluster.actor` and `cluster.call`.
    """
    try:
        async with asyncio.timeout(timeout):
            actor = await cluster.actor(address, _CLASS)
            reply: Parts = await cluster.call(getattr(actor, method), *args)
            return reply
    except TimeoutError as error:
        raise TransientError(f"{address} did not answer within {timeout:g} s") from error


def _read(reply: Parts) -> Any:
    message = unpack(reply, Path)
    raise_error(message)
    return message["raw"]
