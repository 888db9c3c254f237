"""Read-only client for the Hub's API with a cache in memory.

Responses are reused for an hour; a failure is repeated for a minute without a new request. Equal requests at
the same time are sent once, also from several event loops. Each runs in a daemon thread, because name
resolution has no timeout.
"""

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from time import monotonic
from typing import Any

from jarvis_agent import __version__
from jarvis_agent.core.concurrency import start_daemon_thread
from jarvis_agent.core.errors import (
    ConfigError,
    JarvisError,
    NoCandidateError,
    TransientError,
    describe_error,
    redacted_cause,
)
from jarvis_agent.core.forks import fork_safe
from jarvis_agent.core.notes import Note
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.text import brief_text

logger = logging.getLogger(__name__)

Row = dict[str, Any]
"""A model as the Hub's API describes it."""

TTL_S, FAILURE_TTL_S = 3600.0, 60.0
TIMEOUT_S, CONNECT_TIMEOUT_S = 10.0, 3.0
MAX_CACHED = 4096


def parse_rows(text: str) -> list[Row]:
    """Return the JSON objects of a response; a single object becomes a list of one."""
    content = json.loads(text)
    return [row for row in (content if isinstance(content, list) else [content]) if isinstance(row, dict)]


class HubApi:
    """GET requests to the Hub."""

    def __init__(self, settings: Settings) -> None:
        self._token = settings.token
        self._replies: dict[str, tuple[float, Future[Any]]] = {}
        self._failures: dict[str, tuple[float, str]] = {}
        self._lock = fork_safe(threading.Lock())

    @property
    def endpoint(self) -> str:
        """Address of the Hub (HF_ENDPOINT)."""
        from huggingface_hub import constants

        return constants.ENDPOINT.rstrip("/")

    async def get(
        self, path: str, params: Mapping[str, Any] | None = None, parse: Callable[[str], Any] = parse_rows
    ) -> Any:
        """Return the parsed response of a GET request.

        TransientError: the Hub is unreachable or has a server error. A failure of the API applies to all of
        its paths, any other only to its path. NoCandidateError: it has nothing there. ConfigError: it rejects
        the token.
        """
        key = json.dumps([self.endpoint, path, params], sort_keys=True)
        with self._lock:
            expires, reply = self._replies.get(key, (0.0, None))
            if reply is None or monotonic() >= expires:
                until, message = self._failures.get(_scope(path), (0.0, Note("")))
                if monotonic() < until:
                    # A new exception each time: one raised repeatedly keeps the frames of all callers.
                    raise TransientError(message)
                reply = start_daemon_thread(lambda: parse(self._request(path, params)))
                self._replies[key] = (monotonic() + TTL_S, reply)
                for oldest in list(self._replies)[:-MAX_CACHED]:
                    del self._replies[oldest]
        try:
            async with asyncio.timeout(2 * TIMEOUT_S):
                return await asyncio.wrap_future(reply)
        except Exception as error:
            with self._lock:
                if self._replies.get(key, (0.0, None))[1] is reply:
                    del self._replies[key]
            if isinstance(error, TimeoutError):
                raise self._fail(path, "it did not answer in time") from error
            if isinstance(error, ValueError):
                raise self._fail(path, "its response is not JSON") from error
            raise

    def _request(self, path: str, params: Mapping[str, Any] | None) -> str:
        from huggingface_hub.errors import HfHubHTTPError
        from huggingface_hub.utils import (  # type: ignore[attr-defined]
            build_hf_headers,
            get_session,
            hf_raise_for_status,
            httpx,
        )

        # Not HfApi().list_models: it has no timeout and retries for half a minute without a network.
        limits = httpx.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        headers = build_hf_headers(
            token=self._token, library_name="langchain-hugginggpt", library_version=__version__
        )
        try:
            response = get_session().get(
                self.endpoint + path, params=params, headers=headers, timeout=limits, follow_redirects=True
            )
            hf_raise_for_status(response)
        except HfHubHTTPError as error:
            raise self._rejected(error.response.status_code, path, error) from redacted_cause(error)
        except httpx.ConnectError as error:
            logger.debug("no connection to %s: %s", self.endpoint, describe_error(error))
            raise self._fail(path, Note("it cannot be reached (no network?)")) from redacted_cause(error)
        except (httpx.HTTPError, OSError) as error:
            raise self._fail(path, describe_error(error)) from redacted_cause(error)
        return str(response.text)

    def _rejected(self, status: int, path: str, error: Exception) -> JarvisError:
        """Return the error for an HTTP status."""
        if status == 429 or status >= 500 or _scope(path) == path:
            return self._fail(path, f"it answered {status}")
        hub = f"the Hub at {self.endpoint}"
        if status in (401, 403) and self._token:
            return ConfigError(f"{hub} rejects the token ({status})", advice="check HF_TOKEN")
        if status in (401, 403, 404) and path != "/api/models":
            return NoCandidateError(f"{hub} has no {path.removeprefix('/api/models/')}")
        return ConfigError(
            f"{hub} answered {status}",
            detail=brief_text(str(error)),
            advice="check HF_ENDPOINT and the proxy",
        )

    def _fail(self, path: str, reason: str) -> TransientError:
        """Return the error for a Hub that cannot be used, and record it for a minute."""
        message = Note(
            "the Hub at {server} cannot be used: {reason}",
            server=self.endpoint,
            reason=reason,
            advice=(
                Note("check the network, HTTPS_PROXY and HF_ENDPOINT"),
                Note("with JARVIS_OFFLINE=1 only models on this machine are used"),
            ),
        )
        self._failures[_scope(path)] = (monotonic() + FAILURE_TTL_S, message)
        return TransientError(message)


def _scope(path: str) -> str:
    """Return what a failure at a path applies to: the whole API, or a single file."""
    return "/api" if path.startswith("/api/") else path
