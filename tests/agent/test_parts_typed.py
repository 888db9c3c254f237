"""What a LangChain user sees of the parts: their schemas, their repr, and their copies."""

import copy
import pickle
from typing import Any

import pytest
from small_agents import CAPTION, DESCRIBE, EXPERTS, small_agent

from jarvis_agent import JarvisAgent, hf_tools, planning_chain, response_chain, selection_chain
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate

pytestmark = pytest.mark.usefixtures("home")


def keys(schema: Any) -> set[str]:
    """The properties anywhere in a JSON schema of an input, at its first level of objects."""
    found: set[str] = set(schema.get("properties", ()))
    for part in (*schema.get("anyOf", ()), *schema.get("$defs", {}).values()):
        found |= keys(part)
    return found


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        (planning_chain, {"input", "files", "chat_history", "tools"}),
        (selection_chain, {"input", "task", "candidates"}),
        (response_chain, {"input", "plan", "results", "files", "chat_history", "language"}),
    ],
)
def test_the_input_schema_of_a_chain_has_its_keys(chain: Any, expected: set[str]) -> None:
    schema = chain(ScriptedLLM({})).get_input_jsonschema()
    assert expected <= keys(schema)
    assert chain(ScriptedLLM({})).get_input_schema()


def test_the_repr_of_an_agent_says_what_it_is() -> None:
    with small_agent(settings={"policy": "local-only"})[0] as agent:
        assert repr(agent) == f"JarvisAgent(model='scripted', policy='local-only', tasks={len(TASKS)})"
        assert repr(agent | str).startswith("JarvisAgent(model=")
    with JarvisAgent("none", tools=[]) as agent:
        assert repr(agent) == "JarvisAgent(model=None, policy='local-first', tasks=0)"


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_shares_the_models_and_not_the_chats(copied: Any) -> None:
    chat: Any = {"configurable": {"thread_id": "ada"}}
    agent, llm, backend = small_agent(DESCRIBE)
    with agent:
        agent.invoke("Describe a.jpg", chat)
        twin = copied(agent)
        twin.invoke("Describe a.jpg once more", chat)
        assert "Describe a.jpg\n" not in llm.calls[-2].prompt.replace("once more", "")
    assert len(backend.calls) == 2
    assert twin.stages.registry is agent.stages.registry
    expert = FakeBackend(EXPERTS)
    source = FakeSource([fake_candidate("image-to-text")])
    (tool,) = hf_tools(tasks=["image-to-text"], sources=[source], backends=[expert])
    assert copied(tool).invoke({"image": "a.jpg"}) == CAPTION
    assert len(expert.calls) == 1


def test_what_cannot_be_pickled_says_why() -> None:
    agent = small_agent()[0]
    for part, problem in (
        (agent, "a JarvisAgent cannot be pickled: it has loaded models"),
        (
            hf_tools(tasks=["translation"], sources=[], backends=[])[0],
            "the tools of hf_tools cannot be pickled",
        ),
    ):
        with pytest.raises(TypeError, match=problem):
            pickle.dumps(part)
