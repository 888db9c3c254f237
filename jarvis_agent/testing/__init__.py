"""Test doubles for agents, for our tests and yours: no key, no model, no network.

    from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate, forbid_network

    plan = '[{"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": "a.jpg"}}]'
    llm = ScriptedLLM({"plan": plan, "respond": "It shows a cat."})
    source = FakeSource([fake_candidate("image-to-text")])
    agent = JarvisAgent(llm, sources=[source], backends=[FakeBackend({"image-to-text": "a cat"})])
    with forbid_network():
        assert agent.invoke("What is in a.jpg?").answer == "It shows a cat."

`HubDouble` is a Hugging Face Hub on this machine, for tests with the real client.
"""

from jarvis_agent.testing.backend import FakeBackend, FakeSource, fake_candidate
from jarvis_agent.testing.hub import HubDouble
from jarvis_agent.testing.llm import ScriptedCall, ScriptedLLM, first_candidate
from jarvis_agent.testing.network import NetworkForbiddenError, forbid_network

__all__ = [
    "FakeBackend",
    "FakeSource",
    "HubDouble",
    "NetworkForbiddenError",
    "ScriptedCall",
    "ScriptedLLM",
    "fake_candidate",
    "first_candidate",
    "forbid_network",
]
