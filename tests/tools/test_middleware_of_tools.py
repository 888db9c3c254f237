"""The middlewares of LangChain work with our tools, and with the middleware that has them."""

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import LLMToolSelectorMiddleware, ToolRetryMiddleware
from langchain_core.decisions import ChoiceAnswer
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from small_agents import CAPTION, EXPERTS, Judge, call_of, hub_tools

from jarvis_agent import hf_tools
from jarvis_agent.core.errors import TransientError
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate
from jarvis_agent.tools import hf_tools_middleware


@tool
def clock() -> str:
    """Tell the time."""
    return "noon"


def offered(llm: ScriptedLLM) -> list[list[str]]:
    """The names of the tools that each call of the model was offered."""
    return [[one["function"]["name"] for one in call.kwargs["tools"]] for call in llm.calls]


def picks(*names: str) -> ScriptedLLM:
    """A model that selects these tools at each of two calls."""
    return ScriptedLLM([call_of("ToolSelectionResponse", tools=[*names])] * 2)


@pytest.mark.usefixtures("home")
def test_the_tool_selector_of_langchain_offers_few_of_the_tools_of_the_middleware() -> None:
    sources, backends = [FakeSource(map(fake_candidate, EXPERTS))], [FakeBackend(EXPERTS)]
    tools = hf_tools_middleware(sources=sources, backends=backends, available_only=False)
    assert len(tools.tools) == len(TASKS)
    llm = ScriptedLLM([call_of("image-to-text", image="a.jpg"), "Done."])
    selector = LLMToolSelectorMiddleware(
        model=picks("image-to-text", "translation"), max_tools=8, always_include=["clock"]
    )
    state = create_agent(llm, [clock], middleware=[tools, selector]).invoke({"messages": "Describe a.jpg"})
    (message,) = [each for each in state["messages"] if isinstance(each, ToolMessage)]
    assert (message.status, message.text) == ("success", CAPTION)
    assert [set(names) for names in offered(llm)] == [{"clock", "image-to-text", "translation"}] * 2


def test_the_tool_selector_of_langchain_offers_few_of_a_list_of_tools() -> None:
    llm = ScriptedLLM(["Done."])
    selector = LLMToolSelectorMiddleware(model=picks("translation"), max_tools=3)
    agent = create_agent(llm, hf_tools(sources=[], backends=[], available_only=False), middleware=[selector])
    agent.invoke({"messages": "Translate hello"})
    assert offered(llm) == [["translation"]]


LOOK = call_of("image-to-text", image="a.jpg")
LARGE = ChoiceAnswer(
    type="choice", choice="large", probabilities={"small": 0.1, "large": 0.9}, confidence=0.9
)


@pytest.mark.usefixtures("home")
def test_a_router_chooses_the_model_that_calls_the_tools() -> None:
    pytest.importorskip("langchain", minversion="1.5")
    from langchain.agents.middleware import ModelChoice, ModelRouterMiddleware

    small, large = ScriptedLLM([LOOK, "small"]), ScriptedLLM([LOOK, "large"])
    given = {"small": (small, "plain"), "large": (large, "hard")}
    choices = {name: ModelChoice(model=model, criteria=told) for name, (model, told) in given.items()}
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
