"""The agent in LCEL and as a node of a LangGraph graph, and its tools in `create_agent`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig
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
    """One expert for each of the two tasks of the plan, as the arguments of an agent or of tools."""
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
    """A chat, and the last run as plain JSON, which every checkpointer can keep."""

    run: dict[str, Any]


def graph_of(
    node: Runnable[Any, Any] | Callable[..., Any], schema: type = State, **options: Any
) -> CompiledStateGraph[Any, Any, Any, Any]:
    graph = StateGraph(schema)
    graph.add_node("jarvis", node, input_schema=MessagesState)
    graph.add_edge(START, "jarvis")
    graph.add_edge("jarvis", END)
    return graph.compile(**options)


def told(run: Run) -> dict[str, Any]:
    """What a node says of a run."""
    return {"messages": [AIMessage(run.answer)], "run": run.model_dump(mode="json")}


def asked(text: str = f"What is in {CAT}?") -> dict[str, list[BaseMessage]]:
    return {"messages": [HumanMessage(text)]}


def test_the_agent_is_a_node_by_itself(agent: JarvisAgent) -> None:
    state = graph_of(agent | told).invoke(asked())
    assert state["messages"][-1].text == "It is a tabby cat."
    assert [result["status"] for result in state["run"]["results"]] == ["ok", "ok"]


def test_a_checkpoint_keeps_the_run_as_it_was(agent: JarvisAgent) -> None:
    graph = graph_of(agent | told, checkpointer=InMemorySaver())
    state = graph.invoke(asked(), IN_THREAD)
    kept = graph.get_state(IN_THREAD).values["run"]
    assert kept == state["run"]
    run = Run.model_validate(kept)
    assert run.results[1].resources[0].to_pil().size == (8, 8)


def test_a_second_turn_sees_the_first_one_once(agent: JarvisAgent, llm: ScriptedLLM) -> None:
    graph = graph_of(agent | told, checkpointer=InMemorySaver())
    graph.invoke(asked("What is in the first picture?"), IN_THREAD)
    graph.invoke(asked("And in the second one?"), IN_THREAD)
    plan_prompt = [call.prompt for call in llm.calls if call.stage == "plan"][-1]
    assert plan_prompt.count("What is in the first picture?") == 1
    assert plan_prompt.count("It is a tabby cat.") == 1


def test_the_graph_streams_the_answer_while_it_is_written(agent: JarvisAgent) -> None:
    streamed = graph_of(agent | told).stream(asked(), stream_mode="messages")
    pieces = [chunk.text for chunk, about in streamed if about.get("jarvis_stage") == "respond"]
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


def answered(state: dict[str, Any]) -> tuple[ToolMessage, str]:
    """The message of the tool that was called, and the last answer."""
    (message,) = [message for message in state["messages"] if isinstance(message, ToolMessage)]
    return message, state["messages"][-1].text


def test_the_tools_work_in_an_agent_of_langchain(tools: list[BaseTool]) -> None:
    llm = ScriptedLLM([call_of("image-to-text", image=CAT), "It is a tabby cat."])
    message, answer = answered(create_agent(llm, tools).invoke(asked()))
    assert (message.content, message.status) == ("a tabby cat", "success")
    assert answer == "It is a tabby cat."
    offered = [tool["function"]["name"] for tool in llm.calls[0].kwargs["tools"]]
    assert offered == ["image-to-text", "canny-control"]


async def test_what_a_tool_made_is_plain_json_that_a_checkpoint_keeps(tools: list[BaseTool]) -> None:
    llm = ScriptedLLM([call_of("canny-control", image=CAT), "Here it is."])
    agent = create_agent(llm, tools, checkpointer=InMemorySaver())
    message, _ = answered(await agent.ainvoke(asked(), IN_THREAD))
    kept, _ = answered((await agent.aget_state(IN_THREAD)).values)
    assert kept.artifact == message.artifact == json.loads(json.dumps(message.artifact))
    assert message.artifact["model"] == "fake/canny-control"
    (picture,) = message.artifact["resources"]
    assert Resource.model_validate(picture).to_pil().size == (8, 8)
    assert picture["path"] in message.content


async def test_a_call_that_cannot_work_tells_the_model_why(tools: list[BaseTool], tmp_path: Path) -> None:
    (without_model,) = hf_tools(
        tasks=["translation"], settings=Settings(output_dir=tmp_path), sources=[], backends=[]
    )
    calls = {
        "does not exist": call_of("image-to-text", image=str(EXAMPLES / "no-such.jpg")),
        "neither the request nor the settings allow": call_of("image-to-text", image="/etc/passwd"),
        "an image file is needed": call_of("image-to-text", image=str(EXAMPLES / "speech.wav")),
        "picture": call_of("image-to-text", picture=CAT),
        "translation": call_of("translation", text="hello"),
    }
    for complaint, call in calls.items():
        llm = ScriptedLLM([call, "I cannot see it."])
        message, answer = answered(await create_agent(llm, [*tools, without_model]).ainvoke(asked()))
        assert (message.status, answer) == ("error", "I cannot see it.")
        assert complaint in message.text
    without_model.close()  # type: ignore[attr-defined]
