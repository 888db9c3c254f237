"""The tools in smolagents, which takes names that are identifiers, and one type for each argument."""

from typing import Any

import pytest
from small_agents import hub_tools

from jarvis_agent import hf_tools
from jarvis_agent.testing import ScriptedLLM


@pytest.mark.usefixtures("home")
def test_smolagents_takes_and_calls_the_tools() -> None:
    smolagents = pytest.importorskip("smolagents")
    tools = hub_tools("image-to-text", "translation", model=ScriptedLLM("[]"))
    named: list[Any] = [tool.model_copy(update={"name": tool.name.replace("-", "_")}) for tool in tools]
    look, translate = map(smolagents.Tool.from_langchain, named)
    agent = smolagents.CodeAgent(tools=[look, translate], model=smolagents.Model())
    assert {"image_to_text", "translation"} <= agent.tools.keys()
    assert look(image="a.jpg") == "a cat on a mat"
    assert translate(text="a sentence", tgt_lang="fr") == "une phrase"


def test_all_tools_have_names_and_types_that_smolagents_takes() -> None:
    smolagents = pytest.importorskip("smolagents")
    for tool in hf_tools(sources=[], backends=[], available_only=False):
        renamed: Any = tool.model_copy(update={"name": tool.name.replace("-", "_")})
        assert smolagents.Tool.from_langchain(renamed).name.isidentifier()
