"""The tools under LangChain's own middleware."""

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain_core.decisions import ChoiceAnswer
from langchain_core.messages import ToolMessage
from small_agents import CAPTION, Judge, call_of, hub_tools

from jarvis_agent.core.errors import TransientError
from jarvis_agent.testing import ScriptedLLM

LOOK = call_of("image-to-text", image="a.jpg")
LARGE = ChoiceAnswer(
    type="choice", choice="large", probabilities={"small": 0.1, "large": 0.9}, confidence=0.9
)


@pytest.mark.usefixtures("home")
def test_a_router_chooses_the_model_that_calls_the_tools() -> None:
    pytest.importorskip("langchain", minversion="1.5")
    from langchain.agents.middleware import ModelChoice, ModelRouterMiddleware

    small, large = ScriptedLLM([LOOK, "small"]), ScriptedLLM([LOOK, "large"])
    choices = {
        "small": ModelChoice(model=small, criteria="plain"),
        "large": ModelChoice(model=large, criteria="hard"),
    }
    judge = Judge(model="judge", answer=lambda *_: LARGE)
    router = ModelRouterMiddleware(choices=choices, instructions="Choose.", classifier=judge)
    tools = hub_tools("image-to-text")
    state = create_agent(small, tools, middleware=[router]).invoke({"messages": "Look at a.jpg"})
    assert [message.content for message in state["messages"][-2:]] == [CAPTION, "large"]
    assert not small.calls


@pytest.mark.usefixtures("home")
def test_a_retry_of_a_tool_succeeds_or_tells_the_model() -> None:
    retry = ToolRetryMiddleware(max_retries=1, initial_delay=0.0, jitter=False)
    for results, status in (
        ({"image-to-text": CAPTION}, "success"),
        ({"image-to-text": TransientError("no route")}, "error"),
    ):
        llm = ScriptedLLM([LOOK, "done"])
        tools = hub_tools("image-to-text", experts=results)
        state = create_agent(llm, tools, middleware=[retry]).invoke({"messages": "Look at a.jpg"})
        (message,) = [one for one in state["messages"] if isinstance(one, ToolMessage)]
        assert message.status == status
        assert state["messages"][-1].content == "done"
