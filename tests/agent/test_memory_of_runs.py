"""Finished runs leave no objects, requests or cached results in memory."""

import asyncio
import functools
import gc
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from langchain_core.messages import BaseMessage
from small_agents import DESCRIBE, small_agent

from jarvis_agent import JarvisAgent
from jarvis_agent.backends.starter import embeddings

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(autouse=True)
def _all_objects() -> Iterator[None]:
    """Let `gc.get_objects` see also what was imported before the tests, which is exempt from collections."""
    gc.unfreeze()
    yield
    gc.collect()
    gc.freeze()


def repeating(messages: Sequence[BaseMessage]) -> str:
    """A plan with the request as an unknown key."""
    request = re.findall(r"Describe a\.jpg for the \w+ number \d+", str(messages[-1].text))[-1]
    return json.dumps([json.loads(DESCRIBE)[0] | {request: request}])


async def runs_of(agent: JarvisAgent, records: list[list[Any]], name: str, count: int) -> None:
    """Run different requests and drop the runs."""

    async def one(number: int) -> None:
        run = await agent.ainvoke(f"Describe a.jpg for the {name} number {number}")
        assert run.ok
        for record in records:
            record.clear()

    await asyncio.gather(*map(one, range(count)))


def ours() -> Counter[str]:
    """The number of objects of this package, by class."""
    gc.collect()
    found: Counter[str] = Counter()
    for kind, count in Counter(map(type, gc.get_objects())).items():
        if str(kind.__module__).startswith("jarvis_agent"):
            found[kind.__qualname__] += count
    return found


def held() -> set[str]:
    """Texts in memory that contain the request of a run."""
    gc.collect()
    texts = (text for text in gc.get_referents(*gc.get_objects()) if type(text) is str)
    return {text for text in texts if "number " in text and re.search(r"for the f\w+ number \d", text)}


def cached() -> Counter[str]:
    """The number of cached results, by function of this package."""
    caches = [thing for thing in gc.get_objects() if isinstance(thing, functools._lru_cache_wrapper)]
    own = (cache for cache in caches if cache.__module__.startswith("jarvis_agent"))
    return Counter({f"{cache.__module__}.{cache.__qualname__}": cache.cache_info().currsize for cache in own})


@pytest.mark.slow
@pytest.mark.starter
async def test_ended_runs_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the starter model for sentences, and without it."""
    made = [small_agent(repeating) for _ in range(2)]
    records: list[list[Any]] = [calls for _, llm, backend in made for calls in (llm.calls, backend.calls)]
    (agent, *_), (bare, *_) = made

    async def use(name: str, count: int) -> None:
        await runs_of(agent, records, name, count)
        with monkeypatch.context() as patch:
            patch.setattr(embeddings, "installed_embedder", lambda settings: None)
            await runs_of(bare, records, name, count)

    async with agent, bare:
        await use("first", 10)
        objects, results = ours(), cached()
        assert objects
        assert results
        await use("fourth", 30)  # in the same letters, each of which is cached
        assert ours() - objects == Counter()
        assert cached() - results == Counter()
        assert held() == set()
