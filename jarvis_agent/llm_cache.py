"""Whole replies of the language model, kept: `Settings.llm_cache`, or the cache that LangChain is given.

    set_llm_cache(InMemoryCache())                       # LangChain's own, for the process
    JarvisAgent(ChatOpenAI(cache=RedisCache(...)))       # or for a model
    Settings(llm_cache="~/.cache/jarvis/replies")        # or a directory, with nothing to install

LangChain asks its cache for whole calls only, and every call here is streamed: so the Controller asks it.
A reply from a cache comes as one piece.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.caches import RETURN_VAL_TYPE, BaseCache
from langchain_core.globals import get_llm_cache
from langchain_core.messages import BaseMessage
from langchain_core.outputs import Generation

from jarvis_agent.settings import Settings
from jarvis_agent.shelf import Shelf

logger = logging.getLogger(__name__)


class ShelfCache(BaseCache):
    """A directory as a cache of LangChain's. Keeps the text of one reply a prompt."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def lookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        """As `BaseCache.lookup`."""
        text = self._shelf.get([prompt, llm_string])
        return [Generation(text=text)] if isinstance(text, str) else None

    def update(self, prompt: str, llm_string: str, return_val: RETURN_VAL_TYPE) -> None:
        """As `BaseCache.update`."""
        self._shelf.put([prompt, llm_string], return_val[0].text)

    def clear(self, **kwargs: Any) -> None:
        """Forget everything."""
        for file in self._shelf.directory.glob("*.json"):
            file.unlink(missing_ok=True)


class Replies:
    """The replies of one model. A cache that fails is no reason not to answer; the log tells."""

    def __init__(self, model: Any, settings: Settings) -> None:
        self._model = model
        place = settings.llm_cache
        self._own = ShelfCache(Shelf(place, settings.cache_days)) if place else None

    async def find(self, messages: Sequence[BaseMessage], options: Mapping[str, Any]) -> str | None:
        """The reply that is kept for a prompt and its options."""
        if (cache := self._cache()) is None:
            return None
        try:
            found = await cache.alookup(*self._key(messages, options))
        except Exception as error:
            logger.warning("the cache of replies can not be read: %s", error)
            return None
        return found[0].text if found else None

    async def keep(self, messages: Sequence[BaseMessage], options: Mapping[str, Any], said: str) -> None:
        """Keep a reply."""
        if (cache := self._cache()) is None:
            return
        try:
            await cache.aupdate(*self._key(messages, options), [Generation(text=said)])
        except Exception as error:
            logger.warning("the cache of replies can not be written: %s", error)

    def _cache(self) -> BaseCache | None:
        """The model's own cache, that of the settings, or LangChain's; none where the model wants none."""
        own = getattr(self._model, "cache", None)
        if own is False:
            return None
        return own if isinstance(own, BaseCache) else self._own or get_llm_cache()

    def _key(self, messages: Sequence[BaseMessage], options: Mapping[str, Any]) -> tuple[str, str]:
        said = [[message.type, message.content] for message in messages]
        of = [type(self._model).__name__, self._model.asdict(), options]
        return json.dumps(said, default=str), json.dumps(of, sort_keys=True, default=_plain)


def _plain(value: Any) -> str:
    """What is no JSON, without addresses of objects, which differ from process to process."""
    return type(value).__name__
