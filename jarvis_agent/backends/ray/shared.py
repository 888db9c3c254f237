"""The Hub's answers, shared by all processes that use a cluster: one actor asks the Hub and keeps them.

api = SharedHubApi(Settings(cluster="auto"))
rows = await api.get("/api/models", {"pipeline_tag": "object-detection", "limit": 20})
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jarvis_agent.backends.hub.api import HubApi
from jarvis_agent.backends.ray import cluster
from jarvis_agent.backends.ray.protocol import raise_error, write_reply
from jarvis_agent.backends.ray.wire import Parts, unpack
from jarvis_agent.core.errors import JarvisError
from jarvis_agent.core.settings import Settings

logger = logging.getLogger(__name__)

_CACHE = f"{__name__}:HubCache"


class HubCache:
    """The actor. Each token has answers of its own."""

    def __init__(self) -> None:
        self._apis: dict[str | None, HubApi] = {}

    async def get(self, token: str | None, path: str, params: Mapping[str, Any] | None) -> Parts:
        """The text of an answer, or the error, as a reply."""
        if token not in self._apis:
            self._apis[token] = HubApi(Settings(hf_token=token))
        try:
            return write_reply("", raw=await self._apis[token].get(path, params, parse=str))
        except Exception as error:
            return write_reply("", error=error)


class SharedHubApi(HubApi):
    """Asks the actor of the cluster; while that cannot be reached, it asks the Hub itself."""

    def __init__(self, settings: Settings, **options: Any) -> None:
        """As HubApi; `settings.cluster` is set."""
        super().__init__(settings, **options)
        self._cluster = settings.cluster or ""

    def _request(self, path: str, params: Mapping[str, Any] | None) -> str:
        try:
            cache = cluster.actor(self._cluster, _CACHE)
            reply = asyncio.run(cluster.call(cache.get, self._token, path, params))
        except JarvisError as error:
            logger.warning("the Hub is asked without the cluster: %s", error)
            return super()._request(path, params)
        answer = unpack(reply, Path)
        raise_error(answer)
        return str(answer["raw"])
