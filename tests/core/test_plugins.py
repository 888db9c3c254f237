"""Parts passed to an agent are checked at once; custom backends work beside the built-in ones."""

import importlib.metadata
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import Mock

import pytest

from jarvis_agent import JarvisAgent, Settings, default_backends
from jarvis_agent.backends.base import Expert
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate
from jarvis_agent.selection import model_registry
from jarvis_agent.testing import FakeBackend, FakeSource

pytestmark = pytest.mark.usefixtures("home")


class Half:
    """An incomplete backend."""

    name = "half"
    local = True

    def unsupported_reason(self, spec: Any, candidate: Any) -> None:
        return None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sources": [SimpleNamespace(name="a")]}, r"a source .* lacks `candidates`; see .* ModelSource in"),
        ({"sources": [FakeSource]}, r"a source .* FakeSource is a class; give an instance"),
        ({"backends": [Half()]}, r"a backend .* Half lacks `run`, `close`; see the protocol Backend in"),
        ({"backends": [Half]}, r"the backend Half cannot be made from \(settings, pool\): TypeError"),
        ({"backends": [lambda settings: None]}, r"the backend <lambda> cannot be made"),
        ({"backends": [lambda settings, pool: Half()]}, r"Half lacks `run`, `close`"),
        ({"planner": object()}, r"the planner is of type object; give a LangChain Runnable"),
        ({"selector": object()}, r"the selector is of type object; give a LangChain Runnable"),
        ({"responder": object()}, r"the responder is of type object; give a LangChain Runnable"),
        ({"tools": [len]}, r"len.* is not a LangChain tool"),
        ({"model": object()}, r"the language model is of type object; pass a LangChain chat model"),
        ({"settings": {"task_timeout": -1}}, r"task_timeout: .*greater than 0"),
        ({"settings": {"task_timout": 1}}, r"there is no setting 'task_timout'; did you mean task_timeout\?"),
        ({"settings": object()}, r"the settings are of type object; give Settings"),
    ],
)
def test_an_unusable_part_is_refused_at_once(given: dict[str, Any], message: str) -> None:
    users = model_registry._users
    with pytest.raises(ConfigError, match=message):
        JarvisAgent(**given)
    assert model_registry._users == users


def test_settings_may_be_a_dict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JARVIS_SEED", "3")
    with JarvisAgent(settings={"task_timeout": 7}, sources=[], backends=[]) as agent:
        assert (agent.settings.task_timeout, agent.settings.seed) == (7, 3)


class Mine(LocalBackend):
    """A backend for local models."""

    name: ClassVar[str] = "mine"

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        return None

    def load(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        raise NotImplementedError


@pytest.mark.parametrize("mine", [Mine, lambda settings, pool: Mine(settings, pool)])
def test_a_custom_backend_shares_the_pool_of_the_built_in_ones(mine: Callable[..., Mine]) -> None:
    settings = Settings(offline=True, seed=3)
    with JarvisAgent(settings=settings, sources=[]) as usual:
        ours = list(usual.stages.registry.backends)
    with JarvisAgent(settings=settings, sources=[], backends=[mine, *default_backends()]) as agent:
        assert list(agent.stages.registry.backends) == ["mine", *ours]
        made, transformers = (agent.stages.registry.backends[name] for name in ("mine", "transformers"))
        assert isinstance(made, Mine)
        assert isinstance(transformers, LocalBackend)
        assert made.pool is transformers.pool is model_registry._pool
        assert made.settings is agent.settings


def test_installed_packages_are_searched_for_plugins_once(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(offline=True)
    JarvisAgent(settings=settings).close()
    monkeypatch.setattr(importlib.metadata, "distributions", Mock(side_effect=AssertionError("read again")))
    JarvisAgent(settings=settings).close()


def test_of_two_backends_with_one_name_the_last_is_used() -> None:
    first, last = FakeBackend({}, "twin"), FakeBackend({}, "twin")
    with JarvisAgent(sources=[], backends=[first, last]) as agent:
        assert list(agent.stages.registry.backends.values()) == [last]
