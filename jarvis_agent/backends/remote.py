"""The client of an expert server, which runs the models of local backends in place of this process.

    backend = RemoteBackend(TransformersBackend(settings, pool), ExpertServer("http://127.0.0.1:8765"))
    raw = await backend.run(call)

Inputs travel as bytes, and raw outputs come back. A loaded model stays in the server, for other agents.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import httpx

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.experts.protocol import read_reply, write_call
from jarvis_agent.backends.experts.wire import PROGRESS, read_progress
from jarvis_agent.backends.jobs import Activity, Notify, activities
from jarvis_agent.backends.local import FileBackend, LocalBackend
from jarvis_agent.core.errors import (
    ConfigError,
    JarvisError,
    RateLimitedError,
    TransientError,
    UnsupportedError,
    describe_error,
)
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate

logger = logging.getLogger(__name__)

TIMEOUT = httpx.Timeout(30.0, connect=5.0)
"""Seconds to wait for a connection, and for the next line, which comes every second."""

_SHORT_BYTES = 10_000
"""Bytes of a reply that is read at once: the change to a thread takes milliseconds on a busy machine."""

_tls = cache(ssl.create_default_context)


@dataclass(eq=False, slots=True)
class ServerActivity:
    """What a model does in the server: a download, a load, a text that is being written."""

    model: str
    text: str
    state: ClassVar[str] = "remote"

    def __str__(self) -> str:
        return self.text


class AbsentError(TransientError):
    """The expert server at an address cannot be reached."""

    def __init__(self, address: str, error: Exception) -> None:
        port = httpx.URL(address).port
        super().__init__(
            f"the expert server {address} cannot be reached ({describe_error(error)}): start it with "
            f"`jarvis experts{f' --port {port}' if port else ''}`, or unset JARVIS_EXPERTS"
        )


@dataclass(frozen=True, slots=True)
class ExpertServer:
    """An expert server, as an agent sees it.

    Attributes:
        address: its URL.
        key: an API key of it; None: it asks for none.
        may_be_absent: whether calls run in this process while it cannot be reached.
    """

    address: str
    key: str | None = field(default=None, repr=False)
    may_be_absent: bool = False

    async def run(self, call: Call, depth: int | None = None) -> Any:
        """Run a call, or load its model; see `write_call`. If the caller is cancelled, the call is too.

        Raises:
            AbsentError: the server cannot be reached.
            TransientError: it was lost during the call.
            JarvisError: the call failed there, or was refused.
        """
        shown, found, reply = activities.get(), list[Activity](), bytearray()
        request = httpx.Request(
            "POST",
            f"{self.address}/run",
            content=await asyncio.to_thread(write_call, call, depth),
            headers=self._headers(),
            extensions={"timeout": TIMEOUT.as_dict()},
        )
        try:
            async with (
                httpx.AsyncHTTPTransport(verify=self.address.startswith("https") and _tls()) as transport,
                aclosing(await transport.handle_async_request(request)) as response,
            ):
                if response.status_code != 200:
                    await response.aread()
                    raise self._refusal(response)
                async for chunk in response.aiter_raw():
                    reply += chunk
                    while reply.startswith(PROGRESS) and (end := reply.find(b"\n") + 1):
                        shown[:] = [one for one in shown if one not in found]
                        found = [ServerActivity(*one) for one in read_progress(bytes(reply[:end]))]
                        shown += found
                        del reply[:end]
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise AbsentError(self.address, error) from error
        except httpx.HTTPError as error:
            raise TransientError(
                f"the expert server {self.address} was lost during the call: {describe_error(error)}"
            ) from error
        finally:
            shown[:] = [one for one in shown if one not in found]
        if len(reply) <= _SHORT_BYTES:
            return read_reply(bytes(reply), call, self.address)
        return await asyncio.to_thread(read_reply, bytes(reply), call, self.address)

    def reserve(self, call: Call, depth: int, notify: Notify) -> Callable[[], None]:
        """As `ModelPool.reserve`. The reservation ends with its connection."""

        async def load() -> None:
            notify("loading")
            try:
                await self.run(call, depth)
            except JarvisError as error:  # the call itself reports it
                logger.debug("%s is not loaded before its call: %s", call.candidate.id, describe_error(error))
            notify("loaded")

        loading = asyncio.get_running_loop().create_task(load())

        def release() -> None:
            loading.cancel()

        return release

    def status(self) -> dict[str, Any]:
        """The answer to `GET /models`. Blocks.

        Raises:
            JarvisError: as `run`.
        """
        try:
            response = httpx.get(
                f"{self.address}/models", headers=self._headers(), timeout=TIMEOUT, trust_env=False
            )
        except httpx.HTTPError as error:
            raise AbsentError(self.address, error) from error
        if response.status_code != 200:
            raise self._refusal(response)
        found: dict[str, Any] = response.json()
        return found

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def _refusal(self, response: httpx.Response) -> JarvisError:
        try:
            detail = str(response.json()["detail"])
        except (ValueError, KeyError, TypeError):
            detail = response.reason_phrase
        what = f"the expert server {self.address} answers {response.status_code}: {detail}"
        match response.status_code:
            case 401:
                return ConfigError(f"{what}; set JARVIS_EXPERTS_KEY to one of its API keys")
            case 413:
                return UnsupportedError(f"{what}; its JARVIS_MAX_FILE_BYTES is the limit")
            case 429:
                return RateLimitedError(what, float(response.headers.get("retry-after", 1)))
            case 403 | 404 | 405:
                return ConfigError(f"{what}; check JARVIS_EXPERTS")
        return TransientError(what)


class RemoteBackend:
    """A local backend whose models an expert server runs."""

    local: ClassVar[bool] = True

    def __init__(self, backend: LocalBackend, server: ExpertServer) -> None:
        self.name = backend.name
        self._backend, self._server = backend, server

    def server_for(self, candidate: Candidate) -> ExpertServer | None:
        """The server, unless this process runs the candidate: a server reads no folder but its cache."""
        path = candidate.path
        is_cached = path is None or any(part.startswith("models--") for part in path.parts)
        return self._server if is_cached or not isinstance(self._backend, FileBackend) else None

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """As LocalBackend. The server tells what it lacks."""
        if self.server_for(candidate):
            return self._backend.mismatch(spec, candidate)
        return self._backend.unsupported_reason(spec, candidate)

    async def run(self, call: Call) -> Any:
        """Run a call on the server, or in this process where it may be absent.

        Raises:
            JarvisError: as `ExpertServer.run`.
        """
        if server := self.server_for(call.candidate):
            try:
                return await server.run(call)
            except AbsentError as error:
                if not server.may_be_absent:
                    raise
                logger.info("%s runs in this process: %s", call.candidate.id, error)
        return await self._backend.run(call)

    def prepare(
        self, spec: TaskSpec, candidate: Candidate, settings: Settings, depth: int, notify: Notify
    ) -> Callable[[], None]:
        """Load the model before its call; see `ModelPool.reserve`."""
        if server := self.server_for(candidate):
            return server.reserve(Call(spec, candidate, {}, Path, settings), depth, notify)
        return self._backend.prepare(spec, candidate, settings, depth, notify)

    async def close(self) -> None:
        """As LocalBackend."""
        await self._backend.close()
