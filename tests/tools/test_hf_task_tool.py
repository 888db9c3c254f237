"""Tools called alone or by another agent: their place in traces, their errors, the files they may read."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool
from langchain_core.tracers.run_collector import RunCollectorCallbackHandler
from langchain_core.tracers.schemas import Run
from small_agents import DESCRIBE, EXPERTS, small_agent

from jarvis_agent import JarvisAgent, hf_tools
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate

pytestmark = pytest.mark.usefixtures("home")


def call_of(tool: str, **args: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": tool, "args": args, "id": "1", "type": "tool_call"}])


def names(run: Run) -> list[str]:
    return [child.name for child in run.child_runs]


def find(run: Run, name: str) -> Run:
    below = [run]
    while below[0].name != name:
        below += below.pop(0).child_runs
    return below[0]


def traced(tool: BaseTool, args: dict[str, Any], by_agent: bool) -> Run:
    """The tool's run, called alone or in `create_agent`; there is one root."""
    tracer = RunCollectorCallbackHandler()
    if by_agent:
        llm = ScriptedLLM([call_of(tool.name, **args), "Done."])
        create_agent(llm, [tool]).invoke({"messages": "Do it"}, {"callbacks": [tracer]})
    else:
        tool.invoke(args, {"callbacks": [tracer]})
    (root,) = tracer.traced_runs
    return find(root, tool.name)


@pytest.mark.parametrize("by_agent", [False, True], ids=["alone", "create_agent"])
def test_what_a_tool_does_is_below_it_in_traces(by_agent: bool) -> None:
    llm = ScriptedLLM({"plan": DESCRIBE, "select": '{"id": "2", "reason": "best"}', "respond": "Done."})
    source = FakeSource(fake_candidate("image-to-text", name) for name in ("1", "2"))
    experts: dict[str, Any] = {"sources": [source], "backends": [FakeBackend(EXPERTS)]}
    (caption,) = hf_tools(llm, tasks=["image-to-text"], **experts)
    assert names(traced(caption, {"image": "a.jpg"}, by_agent)) == ["select", "2"]
    agent = JarvisAgent(llm, **experts)
    (run,) = traced(agent.as_tool(), {"request": "What is in a.jpg?"}, by_agent).child_runs
    assert run.name == "JarvisAgent"
    assert set(names(run)) == {"plan", "select", "image-to-text", "respond"}


def test_the_calling_agent_reads_why_a_request_cannot_be_used() -> None:
    tool = small_agent(DESCRIBE)[0].as_tool()
    refused: list[tuple[dict[str, Any], str]] = [
        ({"request": "What is it?", "files": ["missing.jpg"]}, "missing.jpg does not exist"),
        ({"request": ""}, "the request is empty"),
    ]
    for args, why in refused:
        llm = ScriptedLLM([call_of("jarvis", **args), "I cannot see it."])
        *_, message, answer = create_agent(llm, [tool]).invoke({"messages": "Do it"})["messages"]
        assert isinstance(message, ToolMessage)
        assert (message.status, answer.text) == ("error", "I cannot see it.")
        assert why in message.text
