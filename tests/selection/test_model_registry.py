"""What tools share: which tasks are offered and for how long that is believed, and the lease of the pool."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from clock import Clock

from jarvis_agent.core.errors import ConfigError, TransientError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS, known_task
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate
from jarvis_agent.selection import model_registry as module
from jarvis_agent.selection.model_registry import AVAILABLE_TTL_S, ModelRegistry
from jarvis_agent.selection.sources.hub import HubSource
from jarvis_agent.testing import FakeBackend, FakeSource, HubDouble, fake_candidate

DETECTION, SPEECH = "object-detection", "text-to-speech"
SETTINGS = Settings(offline=False)


class Source:
    """Lists one model for each task in `tasks`, or fails while `away`."""

    name: ClassVar[str] = "source"

    def __init__(self, *tasks: str) -> None:
        self.tasks = set(tasks)
        self.away = False

    async def candidates(self, spec: TaskSpec, limit: int) -> list[Candidate]:
        if self.away:
            raise TransientError("nobody is there")
        return [fake_candidate(spec.name)] if spec.name in self.tasks else []


def experts_of(*sources: Any, clock: Clock | None = None) -> ModelRegistry:
    backend = FakeBackend(dict.fromkeys(TASKS, "x"))
    return ModelRegistry(SETTINGS, sources=sources, backends=[backend], clock=clock or Clock())


async def test_a_source_that_failed_once_is_asked_again() -> None:
    steady, shaky = Source(SPEECH), Source(DETECTION)
    shaky.away = True
    experts = experts_of(steady, shaky)
    assert set(await experts.available_tasks()) == {SPEECH}
    shaky.away = False
    assert set(await experts.available_tasks()) == {SPEECH, DETECTION}
    await experts.aclose()


async def test_a_model_that_comes_later_is_seen_after_a_minute() -> None:
    source, clock = Source(SPEECH), Clock()
    experts = experts_of(source, clock=clock)
    assert set(await experts.available_tasks()) == {SPEECH}
    source.tasks.add(DETECTION)
    assert set(await experts.available_tasks()) == {SPEECH}
    clock.now += AVAILABLE_TTL_S
    assert set(await experts.available_tasks()) == {SPEECH, DETECTION}
    await experts.aclose()


async def test_a_task_that_comes_or_goes_while_the_sources_are_asked_does_so_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    experts = experts_of(Source(SPEECH, "tidy"))
    experts.backends["fake"].results["tidy"] = "x"  # type: ignore[attr-defined]
    earlier = asyncio.create_task(experts.available_tasks())
    await asyncio.sleep(0)
    monkeypatch.setitem(TASKS, "tidy", replace(TASKS[SPEECH], name="tidy"))
    assert set(await experts.available_tasks()) == {SPEECH, "tidy"}
    assert set(await earlier) == {SPEECH}
    monkeypatch.delitem(TASKS, "tidy")
    assert set(await experts.available_tasks()) == {SPEECH}
    await experts.aclose()


async def test_nobody_changes_what_the_others_are_offered() -> None:
    experts = experts_of(Source(SPEECH))
    offered = await experts.available_tasks()
    with pytest.raises(TypeError):
        offered[DETECTION] = TASKS[DETECTION]  # type: ignore[index]
    assert set(await experts.available_tasks()) == {SPEECH}
    await experts.aclose()


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), asyncio.CancelledError()])
async def test_a_distant_source_that_fails_leaves_the_others(error: BaseException) -> None:
    class RemoteSource(Source):
        def estimate(self, spec: TaskSpec) -> list[Candidate]:
            raise error

        async def find(self, spec: TaskSpec, model_id: str, revision: str | None) -> Candidate | None:
            return None

        async def describe(self, candidate: Candidate) -> str:
            return ""

    experts = experts_of(RemoteSource(), Source(SPEECH))
    assert set(await experts.available_tasks()) == {SPEECH}
    await experts.aclose()


async def test_a_task_is_offered_where_models_of_another_one_do_it() -> None:
    experts = experts_of(Source("depth-estimation"))
    assert set(await experts.available_tasks()) == {"depth-estimation", "depth-control", "normal-control"}
    await experts.aclose()


async def test_the_hub_is_not_asked_what_it_offers() -> None:
    with HubDouble() as hub, hub.redirected():
        anything = FakeBackend(dict.fromkeys(TASKS, "x"))
        experts = ModelRegistry(SETTINGS, sources=[HubSource(SETTINGS)], backends=[anything])
        offered = await experts.available_tasks()
        await experts.aclose()
        assert hub.requests == []
    assert DETECTION in offered
    assert "combine-video-audio" not in offered


def test_offline_the_hub_offers_nothing() -> None:
    assert HubSource(Settings(offline=True)).estimate(TASKS[DETECTION]) == []


@pytest.mark.parametrize("broken", ["default_sources", "make_backends"])
def test_experts_that_can_not_be_made_keep_no_lease(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    def fail(*_: Any) -> Any:
        raise ConfigError("a plug-in is broken")

    before = (module._users, module._pool)
    monkeypatch.setattr(module, broken, fail)
    with pytest.raises(ConfigError):
        ModelRegistry(SETTINGS)
    assert (module._users, module._pool) == before


async def test_the_pool_is_shared_until_its_last_user_goes() -> None:
    first, second = experts_of(FakeSource([])), experts_of(FakeSource([]))
    pool = module._pool
    await first.aclose()
    await first.aclose()
    assert module._pool is pool is not None
    users = module._users
    await second.aclose()
    assert module._users == users - 1


def test_a_task_that_is_not_known_is_told_with_those_close_to_it() -> None:
    assert known_task("ASR").name == "automatic-speech-recognition"
    with pytest.raises(ConfigError, match="'object-detektion'; close to it: object-detection"):
        known_task("object-detektion")
    with pytest.raises(ConfigError, match=r"there is no task 'qqqq'; `jarvis tasks` lists them all"):
        known_task("qqqq")
