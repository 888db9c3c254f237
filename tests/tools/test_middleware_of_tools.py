"""Our middleware offers a model the few tools that it needs, and LangChain's own works with them."""

import asyncio
import json

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
from jarvis_agent.evaluation.requests import read_requests
from jarvis_agent.llm.tokens import count_tokens
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate
from jarvis_agent.tools.middleware import OFFERED, SEARCH, HFToolsMiddleware, hf_tools_middleware


@tool
def clock() -> str:
    """Tell the time."""
    return "noon"


def offered(llm: ScriptedLLM) -> list[list[str]]:
    """The names of the tools that each call of the model was offered."""
    return [[one["function"]["name"] for one in call.kwargs["tools"]] for call in llm.calls]


@pytest.fixture(scope="module")
def middleware() -> HFToolsMiddleware:
    sources, backends = [FakeSource(map(fake_candidate, EXPERTS))], [FakeBackend(EXPERTS)]
    return hf_tools_middleware(sources=sources, backends=backends, available_only=False)


@pytest.mark.usefixtures("home")
def test_the_model_is_offered_what_fits_and_finds_the_rest(middleware: HFToolsMiddleware) -> None:
    request = "Describe the image a.jpg"
    llm = ScriptedLLM(
        [
            call_of("image-to-text", image="a.jpg"),
            call_of(SEARCH, query="translate into French"),
            call_of("translation", text=CAPTION, tgt_lang="fr"),
            "Done.",
        ]
    )
    state = create_agent(llm, [clock], middleware=[middleware]).invoke({"messages": request})
    found = [message for message in state["messages"] if isinstance(message, ToolMessage)]
    assert [message.status for message in found] == ["success"] * 3
    assert found[0].content == CAPTION
    assert "translation: " in found[1].text
    first, _, third, last = offered(llm)
    for names in offered(llm):
        assert {"clock", SEARCH, "image-to-text"} <= set(names)
        assert len(names) <= 2 + 2 * OFFERED
    assert len(first) == 2 + OFFERED
    assert "translation" not in first
    assert "translation" in third
    assert "translation" in last
    assert len(middleware.tools) == 1 + len(TASKS)


def test_of_the_right_tools_at_least_95_percent_are_offered_for_a_fifth_of_the_tokens(
    middleware: HFToolsMiddleware,
) -> None:
    requests = [one for one in read_requests("test") if one.kind == "single"][::3]

    async def ask() -> ScriptedLLM:
        llm = ScriptedLLM(lambda messages: "Done.")
        agent = create_agent(llm, middleware=[middleware])
        for one in requests:
            await agent.ainvoke({"messages": one.request})
        return llm

    llm = asyncio.run(ask())
    hits = [
        any(plan[0].task in names for plan in one.plans)
        for one, names in zip(requests, offered(llm), strict=True)
    ]
    assert sum(hits) / len(hits) >= 0.95
    tokens = [count_tokens(json.dumps(call.kwargs["tools"])) for call in llm.calls]
    every = ScriptedLLM(["Done."])
    create_agent(every, hf_tools(sources=[], backends=[], available_only=False)).invoke({"messages": "Hi"})
    assert max(tokens) < count_tokens(json.dumps(every.calls[0].kwargs["tools"])) / 5


def test_the_tool_selector_of_langchain_works_too() -> None:
    picks = call_of("ToolSelectionResponse", tools=["translation"])
    llm = ScriptedLLM(["Done."])
    selector = LLMToolSelectorMiddleware(model=ScriptedLLM([picks]), max_tools=3)
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
