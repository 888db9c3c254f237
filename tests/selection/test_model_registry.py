"""ModelRegistry: the available tasks and how long they are cached, and the shared model pool."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from clock import Clock

from jarvis_agent.core.errors import TransientError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate
from jarvis_agent.selection import model_registry as module
from jarvis_agent.selection.model_registry import AVAILABLE_TTL_S, ModelRegistry
from jarvis_agent.selection.sources.hub import HubSource
from jarvis_agent.testing import FakeBackend, FakeSource, HubDouble, fake_candidate

DETECTION, SPEECH = "object-detection", "text-to-speech"
SETTINGS = Settings(offline=False)


class Source(FakeSource):
    """Lists one model for each task in `tasks`, or fails while `away`."""

    def __init__(self, *tasks: str, away: bool = False) -> None:
        super().__init__([])
        self.tasks = set(tasks)
        self.away = away

    async def candidates(self, spec: TaskSpec, limit: int) -> list[Candidate]:
        if self.away:
            raise TransientError("it does not answer")
        return [fake_candidate(spec.name)] if spec.name in self.tasks else []


Open = Callable[..., ModelRegistry]


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    registries: list[ModelRegistry] = []

    def make(*sources: Any) -> ModelRegistry:
        backend = FakeBackend(dict.fromkeys([*TASKS, "extra"], "x"))
        made = ModelRegistry(SETTINGS, sources=sources, backends=[backend])
        registries.append(made)
        return made

    yield make
    for registry in registries:
        await registry.aclose()


async def test_available_tasks_are_cached_for_a_minute_unless_a_source_failed(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    steady, shaky, clock = Source(SPEECH), Source(DETECTION, away=True), Clock()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock))
    registry = opened(steady, shaky)
    assert set(await registry.available_tasks()) == {SPEECH}
    shaky.away = False
    available = await registry.available_tasks()
    assert set(available) == {SPEECH, DETECTION}
    with pytest.raises(TypeError):
        available["translation"] = TASKS["translation"]  # type: ignore[index]
    steady.tasks.add("translation")
    assert await registry.available_tasks() == available
    clock.now += AVAILABLE_TTL_S
    assert set(await registry.available_tasks()) == {SPEECH, DETECTION, "translation"}


async def test_a_task_that_is_registered_or_removed_is_noticed_at_once(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = opened(Source(SPEECH, "extra"))
    earlier = asyncio.create_task(registry.available_tasks())
    await asyncio.sleep(0)
    monkeypatch.setitem(TASKS, "extra", replace(TASKS[SPEECH], name="extra"))
    assert set(await registry.available_tasks()) == {SPEECH, "extra"}
    assert set(await earlier) == {SPEECH}
    monkeypatch.delitem(TASKS, "extra")
    assert set(await registry.available_tasks()) == {SPEECH}


async def test_a_remote_source_that_fails_leaves_the_others(opened: Open) -> None:
    def fail(spec: TaskSpec) -> list[Candidate]:
        raise error

    for error in (ValueError("no"), asyncio.CancelledError()):  # noqa: B007 - `fail` reads it
        remote: Any = Source()
        remote.estimate, remote.find, remote.describe = fail, None, None
        assert set(await opened(remote, Source(SPEECH)).available_tasks()) == {SPEECH}


async def test_tasks_that_share_models_are_available_and_the_hub_is_not_requested(opened: Open) -> None:
    available = await opened(Source("depth-estimation")).available_tasks()
    assert set(available) == {"depth-estimation", "depth-control", "normal-control"}
    with HubDouble() as hub, hub.redirected():
        available = await opened(HubSource(SETTINGS)).available_tasks()
        assert hub.requests == []
    assert DETECTION in available
    assert "combine-video-audio" not in available


async def test_the_pool_is_shared_until_its_last_user_closes(opened: Open) -> None:
    first, second = opened(FakeSource([])), opened(FakeSource([]))
    pool = module._pool
    await first.aclose()
    await first.aclose()
    assert module._pool is pool is not None
    users = module._users
    await second.aclose()
    assert module._users == users - 1
