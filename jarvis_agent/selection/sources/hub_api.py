"""Lists from the Hub's API: asked for once, kept for an hour, and given stale rather than not at all.

    lists = HubApi(settings)
    rows = await lists.rows("/api/models", {"pipeline_tag": "object-detection", "limit": 20})

Equal requests at one time are one request, whichever event loop they come from. Each runs in a thread of its
own, since a host's name is looked up without a limit on the time; nobody waits for such a thread at exit.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from jarvis_agent import __version__
from jarvis_agent.core.errors import ConfigError, JarvisError, NoCandidateError, TransientError, redacted_cause
from jarvis_agent.core.settings import Settings
from jarvis_agent.backends.hub import model_card as cards
from jarvis_agent.core.threads import in_daemon

logger = logging.getLogger(__name__)

Row = dict[str, Any]
"""A model as the Hub's API describes it."""

_PAUSE = 60.0
_CONNECT = 3.0


class HubApi:
    """The Hub's API, read only, with a memory.

    Args:
        endpoint: address of the Hub; None: huggingface_hub's own (HF_ENDPOINT).
        cache_dir: where lists are kept; None: among huggingface_hub's cached assets.
        fresh: seconds for which a list is good.
        timeout: seconds that one request may take.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        endpoint: str | None = None,
        cache_dir: Path | None = None,
        fresh: float = 3600.0,
        timeout: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._token = settings.token
        self._endpoint = endpoint
        self._timeout = timeout
        self._fresh = fresh
        self._clock = clock
        self._shelf = _Shelf(cache_dir)
        self._flights: dict[str, Future[list[Row]]] = {}
        self._lock = threading.RLock()  # a flight may land while it is noted
        self._failure: tuple[float, str] | None = None

    @property
    def endpoint(self) -> str:
        """Address of the Hub."""
        from huggingface_hub import constants

        return (self._endpoint or constants.ENDPOINT).rstrip("/")

    async def rows(self, path: str, params: Mapping[str, Any]) -> list[Row]:
        """The objects that a GET request gives; a single one as a list of one.

        Raises:
            TransientError: the Hub can not be reached, or is in trouble, and no older list is there. This is
                remembered for a minute.
            NoCandidateError: it has nothing at this path.
            ConfigError: it refuses the token.
        """
        key = self._key(path, params)
        with self._lock:
            flight = self._flights.get(key)
            if flight is None:
                flight = self._flights[key] = in_daemon(self._look_up, key, path, params)
                flight.add_done_callback(partial(self._land, key))
        try:
            async with asyncio.timeout(2 * self._timeout):
                return await asyncio.wrap_future(flight)
        except TimeoutError as error:
            self._land(key, flight)
            failure = self._remember("it did not answer in time")
            _, rows = await asyncio.to_thread(self._shelf.get, key)
            if rows is None:
                raise failure from error
            logger.warning("%s; an older list of models is used", failure)
            return rows

    def _key(self, path: str, params: Mapping[str, Any]) -> str:
        asked = json.dumps([self.endpoint, path, params, self._token], sort_keys=True)
        return hashlib.sha256(asked.encode()).hexdigest()[:32]

    def _land(self, key: str, flight: Future[list[Row]]) -> None:
        """From now on a request is a new one."""
        with self._lock:
            if self._flights.get(key) is flight:
                del self._flights[key]

    def _look_up(self, key: str, path: str, params: Mapping[str, Any]) -> list[Row]:
        taken, rows = self._shelf.get(key)
        if rows is not None and 0 <= self._clock() - taken < self._fresh:
            return rows
        try:
            found = self._ask(path, params)
        except TransientError as error:
            if rows is None:
                raise
            logger.warning("%s; an older list of models is used", error)
            return rows
        self._shelf.put(key, self._clock(), found)
        return found

    def _ask(self, path: str, params: Mapping[str, Any]) -> list[Row]:
        if self._failure and self._clock() < self._failure[0]:
            # Made anew: one that is raised again and again holds the frames of all that it came through.
            raise TransientError(self._failure[1])
        from huggingface_hub.errors import HfHubHTTPError
        from huggingface_hub.utils import (  # type: ignore[attr-defined]
            build_hf_headers,
            get_session,
            hf_raise_for_status,
            httpx,
        )

        # HfApi().list_models waits without a limit, and retries for half a minute where nothing is reached.
        limits = httpx.Timeout(self._timeout, connect=min(_CONNECT, self._timeout))
        headers = build_hf_headers(
            token=self._token, library_name="jarvis-agent", library_version=__version__
        )
        try:
            reply = get_session().get(self.endpoint + path, params=params, headers=headers, timeout=limits)
            hf_raise_for_status(reply)
            content = reply.json()
        except HfHubHTTPError as error:
            raise self._refusal(error.response.status_code, path, error) from redacted_cause(error)
        except (httpx.HTTPError, OSError) as error:
            raise self._remember(str(error) or type(error).__name__) from redacted_cause(error)
        except ValueError as error:
            raise self._remember("its answer is not JSON") from error
        rows = content if isinstance(content, list) else [content]
        return [row for row in rows if isinstance(row, dict)]

    def _refusal(self, status: int, path: str, error: Exception) -> JarvisError:
        """What an HTTP status of the Hub means."""
        if status in (401, 403) and self._token:
            return ConfigError(f"the Hub at {self.endpoint} refuses the token ({status}); check HF_TOKEN")
        if status == 429 or status >= 500:
            return self._remember(f"it answered {status}")
        if status in (401, 403, 404) and path != "/api/models":
            return NoCandidateError(f"the Hub at {self.endpoint} has no {path.removeprefix('/api/models/')}")
        said = cards.brief_text(str(error))
        return ConfigError(
            f"the Hub at {self.endpoint} answered {status}: {said} Check HF_ENDPOINT and the proxy"
        )

    def _remember(self, why: str) -> TransientError:
        """The error for a Hub that can not be used. For a minute it is raised again without a request."""
        said = (
            f"the Hub at {self.endpoint} can not be used: {why}. Check the network and HF_ENDPOINT; with "
            "HF_HUB_OFFLINE=1 only what is on this machine is used"
        )
        self._failure = (self._clock() + _PAUSE, said)
        return TransientError(said)


class _Shelf:
    """Lists by key, with the time at which they were taken: in memory, and in files that outlive it."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._memory: dict[str, tuple[float, list[Row]]] = {}

    def get(self, key: str) -> tuple[float, list[Row] | None]:
        """When the list was taken, and the list; None if there is none."""
        if key not in self._memory:
            self._read(key)
        return self._memory.get(key, (0.0, None))

    def put(self, key: str, taken: float, rows: list[Row]) -> None:
        """Keep a list; in memory alone where it can not be written."""
        self._memory[key] = (taken, rows)
        try:
            file = self._file(key)
            part = file.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
            part.write_text(json.dumps({"taken": taken, "rows": rows}), encoding="utf-8")
            part.replace(file)
        except OSError as error:
            logger.warning("the list of models can not be kept on disk: %s", error)

    def _read(self, key: str) -> None:
        try:
            kept = cards.read_json(self._file(key))
        except OSError:
            return
        if isinstance(kept.get("rows"), list) and isinstance(kept.get("taken"), int | float):
            self._memory[key] = (float(kept["taken"]), kept["rows"])

    def _file(self, key: str) -> Path:
        from huggingface_hub import cached_assets_path

        folder = self._folder or cached_assets_path("jarvis-agent", "catalog")
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{key}.json"
