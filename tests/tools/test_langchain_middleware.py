"""The tools under LangChain's own middleware."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain_core.decisions import BaseDecisionModel, ChoiceAnswer, ClassifierResponse
from langchain_core.messages import AIMessage, ToolMessage
from small_agents import CAPTION, EXPERTS

from jarvis_agent import hf_tools
from jarvis_agent.core.errors import TransientError
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate


class Judge(BaseDecisionModel):
    """Always chooses the large model."""

    @property
    def _provider(self) -> str:
        return "test"

    def _classify(self, state: Any, questions: Any) -> ClassifierResponse:
        answer: Any = {"choice": "large", "probabilities": {"small": 0.1, "large": 0.9}, "confidence": 0.9}
        answers: Any = {name: ChoiceAnswer(type="choice", **answer) for name in questions}
        return ClassifierResponse(model=self.model, answers=answers)


LOOK: Any = AIMessage("", tool_calls=[{"name": "image-to-text", "args": {"image": "a.jpg"}, "id": "1"}])


def tools_of(results: Any) -> list[Any]:
    source = FakeSource(map(fake_candidate, EXPERTS))
    return list(hf_tools(tasks=["image-to-text"], sources=[source], backends=[FakeBackend(results)]))


@pytest.mark.usefixtures("home")
def test_a_router_chooses_the_model_that_calls_the_tools() -> None:
    pytest.importorskip("langchain", minversion="1.5")
    from langchain.agents.middleware import ModelChoice, ModelRouterMiddleware

    small, large = ScriptedLLM([LOOK, "small"]), ScriptedLLM([LOOK, "large"])
    choices = {
        "small": ModelChoice(model=small, criteria="plain"),
        "large": ModelChoice(model=large, criteria="hard"),
    }
    router = ModelRouterMiddleware(choices=choices, instructions="Choose.", classifier=Judge(model="judge"))
    state = create_agent(small, tools_of(EXPERTS), middleware=[router]).invoke({"messages": "Look at a.jpg"})
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
        state = create_agent(llm, tools_of(results), middleware=[retry]).invoke({"messages": "Look at a.jpg"})
        (message,) = [one for one in state["messages"] if isinstance(one, ToolMessage)]
        assert message.status == status
        assert state["messages"][-1].content == "done"
