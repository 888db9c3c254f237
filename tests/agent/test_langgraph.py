"""The agent in LCEL and as a node of a LangGraph graph, and its tools in `create_agent`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from PIL import Image

from jarvis_agent import JarvisAgent, Resource, Run, Settings, hf_tools
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate

EXAMPLES = Path(__file__).parents[2] / "examples"
CAT = str(EXAMPLES / "cat.jpg")
PLAN = [
    {"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": CAT}},
    {"task": "canny-control", "id": 1, "dep": [-1], "args": {"image": CAT}},
]
IN_THREAD: RunnableConfig = {"configurable": {"thread_id": "a chat"}}


def experts() -> dict[str, Any]:
    """One expert for each task of the plan, as arguments of an agent or of tools."""
    tasks = ("image-to-text", "canny-control")
    results = {"image-to-text": [{"generated_text": "a tabby cat"}], "canny-control": Image.new("L", (8, 8))}
    return {
        "sources": [FakeSource([fake_candidate(task) for task in tasks])],
        "backends": [FakeBackend(results)],
    }


@pytest.fixture
def llm() -> ScriptedLLM:
    return ScriptedLLM({"plan": json.dumps(PLAN), "respond": "It is a tabby cat."})


@pytest.fixture
def agent(llm: ScriptedLLM, tmp_path: Path) -> Iterator[JarvisAgent]:
    with JarvisAgent(model=llm, settings=Settings(output_dir=tmp_path), **experts()) as made:
        yield made


class State(MessagesState):
    """A chat, and the last run as plain JSON, which every checkpointer can store."""

    run: dict[str, Any]


def graph_of(agent: JarvisAgent, **options: Any) -> CompiledStateGraph[Any, Any, Any, Any]:
    """A graph whose only node is the agent."""

    def update(run: Run) -> dict[str, Any]:
        return {"messages": [AIMessage(run.answer)], "run": run.model_dump(mode="json")}

    graph = StateGraph(State)
    graph.add_node("jarvis", agent | update, input_schema=MessagesState)
    graph.add_edge(START, "jarvis")
    graph.add_edge("jarvis", END)
    return graph.compile(**options)


def message(text: str = f"What is in {CAT}?") -> dict[str, list[BaseMessage]]:
    return {"messages": [HumanMessage(text)]}


def test_the_agent_is_a_node_whose_run_a_checkpoint_keeps(agent: JarvisAgent) -> None:
    graph = graph_of(agent, checkpointer=InMemorySaver())
    state = graph.invoke(message(), IN_THREAD)
    assert state["messages"][-1].text == "It is a tabby cat."
    assert [result["status"] for result in state["run"]["results"]] == ["ok", "ok"]
    stored = graph.get_state(IN_THREAD).values["run"]
    assert stored == state["run"]
    assert Run.model_validate(stored).results[1].resources[0].to_pil().size == (8, 8)


def test_the_graph_streams_the_answer_while_it_is_written(agent: JarvisAgent) -> None:
    streamed = graph_of(agent).stream(message(), stream_mode="messages")
    pieces = [chunk.text for chunk, metadata in streamed if metadata.get("jarvis_stage") == "respond"]
    assert len([piece for piece in pieces if piece]) > 1
    assert "".join(pieces) == "It is a tabby cat."


def call_of(tool: str, **args: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": tool, "args": args, "id": "1", "type": "tool_call"}])


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[list[BaseTool]]:
    settings = Settings(output_dir=tmp_path, allowed_dirs=(EXAMPLES,))
    made = hf_tools(tasks=["image-to-text", "canny-control"], settings=settings, **experts())
    yield made
    made[0].close()  # type: ignore[attr-defined]


def tool_message(state: dict[str, Any]) -> ToolMessage:
    (found,) = [each for each in state["messages"] if isinstance(each, ToolMessage)]
    return found


async def test_create_agent_calls_the_tools_and_a_checkpoint_keeps_their_artifacts(
    tools: list[BaseTool],
) -> None:
    llm = ScriptedLLM([call_of("image-to-text", image=CAT), "It is a tabby cat."])
    state = create_agent(llm, tools).invoke(message())
    called = tool_message(state)
    assert (called.content, called.status) == ("a tabby cat", "success")
    assert state["messages"][-1].text == "It is a tabby cat."
    offered = [tool["function"]["name"] for tool in llm.calls[0].kwargs["tools"]]
    assert offered == ["image-to-text", "canny-control"]

    llm = ScriptedLLM([call_of("canny-control", image=CAT), "Here it is."])
    agent = create_agent(llm, tools, checkpointer=InMemorySaver())
    called = tool_message(await agent.ainvoke(message(), IN_THREAD))
    stored = tool_message((await agent.aget_state(IN_THREAD)).values)
    assert stored.artifact == called.artifact == json.loads(json.dumps(called.artifact))
    assert called.artifact["model"] == "fake/canny-control"
    (picture,) = called.artifact["resources"]
    assert Resource.model_validate(picture).to_pil().size == (8, 8)
    assert picture["path"] in called.content


async def test_a_failed_tool_call_tells_the_model_why(tools: list[BaseTool], tmp_path: Path) -> None:
    (without_model,) = hf_tools(
        tasks=["translation"], settings=Settings(output_dir=tmp_path), sources=[], backends=[]
    )
    calls = {
        "does not exist": call_of("image-to-text", image=str(EXAMPLES / "no-such.jpg")),
        "may not read '/etc/passwd'": call_of("image-to-text", image="/etc/passwd"),
        "an image file is needed": call_of("image-to-text", image=str(EXAMPLES / "speech.wav")),
        "picture": call_of("image-to-text", picture=CAT),
        "translation": call_of("translation", text="hello"),
    }
    for reason, call in calls.items():
        llm = ScriptedLLM([call, "I cannot see it."])
        state = await create_agent(llm, [*tools, without_model]).ainvoke(message())
        called = tool_message(state)
        assert (called.status, state["messages"][-1].text) == ("error", "I cannot see it.")
        assert reason in called.text
    without_model.close()  # type: ignore[attr-defined]
