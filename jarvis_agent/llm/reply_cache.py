"""Whole replies of the language model, kept in the cache that LangChain is given.

    set_llm_cache(InMemoryCache())                       # LangChain's own, for the process
    JarvisAgent(ChatOpenAI(cache=RedisCache(...)))       # or for a model

LangChain asks its cache for whole calls only, and every call here is streamed: so the LLMClient asks it.
A reply from a cache comes as one piece.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from langchain_core.caches import BaseCache
from langchain_core.globals import get_llm_cache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.outputs import Generation
from langchain_core.runnables import Runnable

from jarvis_agent.core.concurrency import StageTimeoutError, run_with_timeout
from jarvis_agent.core.errors import DeadlineError, describe_error

T = TypeVar("T")

logger = logging.getLogger(__name__)

PATIENCE = 3.0
"""Seconds that a cache may take; one that needs longer, such as a server that is away, saves no time."""

_REST = 60.0
"""Seconds for which a cache that took longer is not asked again: a call of it may still hold a thread."""


class Replies:
    """The replies of one model. A cache that fails or hangs is no reason not to answer; the log tells."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._rests_until = 0.0

    async def find(self, messages: Sequence[BaseMessage], options: Mapping[str, Any]) -> str | None:
        """The reply that is kept for a prompt and its options."""
        if (cache := self._cache()) is None:
            return None
        try:
            found = await self._soon(cache.alookup(*self._key(messages, options)))
        except Exception as error:
            logger.warning("the cache of replies can not be read: %s", describe_error(error))
            return None
        return found[0].text if found else None

    async def keep(self, messages: Sequence[BaseMessage], options: Mapping[str, Any], said: str) -> None:
        """Keep a reply."""
        if (cache := self._cache()) is None:
            return
        try:
            await self._soon(cache.aupdate(*self._key(messages, options), [Generation(text=said)]))
        except Exception as error:
            logger.warning("the cache of replies can not be written: %s", describe_error(error))

    async def _soon(self, asked: Coroutine[Any, Any, T]) -> T:
        try:
            return await run_with_timeout(PATIENCE, asked, "the cache of replies")
        except StageTimeoutError as error:
            self._rests_until = time.monotonic() + _REST
            raise DeadlineError(
                f"it did not answer within {PATIENCE:g} s; it is left alone for {_REST:g} s"
            ) from error

    def _cache(self) -> BaseCache | None:
        """The model's own cache or LangChain's; none where the model wants none."""
        own = getattr(self._model, "cache", None)
        if own is False or time.monotonic() < self._rests_until:
            return None
        return own if isinstance(own, BaseCache) else get_llm_cache()

    def _key(self, messages: Sequence[BaseMessage], options: Mapping[str, Any]) -> tuple[str, str]:
        said = [[message.type, message.content] for message in messages]
        asked = json.dumps([self._model, options], sort_keys=True, default=_plain)
        return json.dumps(said, default=str), asked


def _plain(value: Any) -> Any:
    """What is no JSON, as far as it tells one model from another: also what one is wrapped in (`bind`,
    `with_retry`), and no addresses of objects, which differ from process to process."""
    kind = type(value).__name__
    if isinstance(value, BaseChatModel):
        return [kind, value.asdict()]
    return [kind, vars(value)] if isinstance(value, Runnable) else kind
