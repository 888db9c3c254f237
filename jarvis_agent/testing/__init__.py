"""Test doubles for agents, for our tests and yours: no key, no model, no network.

    from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate, forbid_network

    plan = '[{"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": "a.jpg"}}]'
    llm = ScriptedLLM({"plan": plan, "respond": "It shows a cat."})
    source = FakeSource([fake_candidate("image-to-text")])
    agent = JarvisAgent(llm, sources=[source], backends=[FakeBackend({"image-to-text": "a cat"})])
    with forbid_network():
        assert agent.invoke("What is in a.jpg?").answer == "It shows a cat."

`HubDouble` is a Hugging Face Hub on this machine, for tests with the real client.
Names are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jarvis_agent.testing.backend import FakeBackend as FakeBackend
    from jarvis_agent.testing.backend import FakeSource as FakeSource
    from jarvis_agent.testing.backend import fake_candidate as fake_candidate
    from jarvis_agent.testing.hub import HubDouble as HubDouble
    from jarvis_agent.testing.llm import ScriptedCall as ScriptedCall
    from jarvis_agent.testing.llm import ScriptedLLM as ScriptedLLM
    from jarvis_agent.testing.llm import first_candidate as first_candidate
    from jarvis_agent.testing.network import NetworkForbiddenError as NetworkForbiddenError
    from jarvis_agent.testing.network import forbid_network as forbid_network

_HOME = {
    "FakeBackend": "backend",
    "FakeSource": "backend",
    "HubDouble": "hub",
    "NetworkForbiddenError": "network",
    "ScriptedCall": "llm",
    "ScriptedLLM": "llm",
    "fake_candidate": "backend",
    "first_candidate": "llm",
    "forbid_network": "network",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
