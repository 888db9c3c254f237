"""The agent in LCEL and as a node of a LangGraph graph, and its tools in `create_agent`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnablePassthrough
from langchain_core.tools import BaseTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
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


async def test_an_async_node_runs_it_in_the_loop_of_the_graph(agent: JarvisAgent) -> None:
    async def node(state: MessagesState) -> dict[str, Any]:
        return told(await agent.ainvoke({"messages": state["messages"]}))

    state = await graph_of(node).ainvoke(asked())
    assert state["messages"][-1].text == "It is a tabby cat."


def test_a_checkpoint_keeps_the_run_as_it_was(agent: JarvisAgent) -> None:
    graph = graph_of(agent | told, checkpointer=InMemorySaver())
    state = graph.invoke(asked(), IN_THREAD)
    kept = graph.get_state(IN_THREAD).values["run"]
    assert kept == state["run"]
    run = Run.model_validate(kept)
    assert run.results[1].resources[0].to_pil().size == (8, 8)


def test_a_checkpoint_can_keep_a_run_object_that_its_serializer_is_told_of(agent: JarvisAgent) -> None:
    class RunState(MessagesState):
        run: Run

    serde = JsonPlusSerializer(allowed_msgpack_modules=[("jarvis_agent.execution.run", "Run")])
    node = agent | (lambda run: {"run": run})
    graph = graph_of(node, RunState, checkpointer=InMemorySaver(serde=serde))
    state = graph.invoke(asked(), IN_THREAD)
    assert isinstance(state["run"], Run)
    assert graph.get_state(IN_THREAD).values["run"] == state["run"]


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


def test_the_agent_is_a_step_of_a_chain(agent: JarvisAgent) -> None:
    chain = {"input": itemgetter("question")} | agent | (lambda run: run.answer)
    assert chain.invoke({"question": f"What is in {CAT}?"}) == "It is a tabby cat."


async def test_a_chain_takes_batches_and_streams(agent: JarvisAgent) -> None:
    chain = RunnablePassthrough() | agent | (lambda run: run.answer)
    question = f"What is in {CAT}?"
    assert await chain.abatch([question] * 2, {"max_concurrency": 1}) == ["It is a tabby cat."] * 2
    assert [piece async for piece in chain.astream(question)] == ["It is a tabby cat."]


def test_a_batch_gives_a_run_for_each_request_in_its_order(agent: JarvisAgent) -> None:
    question = f"What is in {CAT}?"
    runs = agent.batch([question, {"input": question}, HumanMessage(question)])
    assert [run.answer for run in runs] == ["It is a tabby cat."] * 3
    made = {str(resource.path) for run in runs for resource in run.resources if resource.path}
    assert len(made) == 3


def test_a_bad_request_in_a_batch_leaves_the_others_alone(agent: JarvisAgent) -> None:
    run, error = agent.batch([f"What is in {CAT}?", ""], return_exceptions=True)
    assert run.answer == "It is a tabby cat."
    assert "the request is empty" in str(error)


async def test_the_events_of_a_run_name_its_stages(agent: JarvisAgent) -> None:
    events = [event async for event in agent.astream_events(f"What is in {CAT}?", version="v2")]
    started = [e["metadata"]["jarvis_stage"] for e in events if e["event"] == "on_chat_model_start"]
    assert started == ["plan", "respond"]
    total = Run()
    for event in events:
        if event["event"] == "on_chain_stream" and not event["parent_ids"]:
            total += event["data"]["chunk"]
    assert total == events[-1]["data"]["output"]
    assert total.answer == "It is a tabby cat."


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


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (call_of("image-to-text", image=str(EXAMPLES / "no-such.jpg")), "does not exist"),
        (call_of("image-to-text", image="/etc/passwd"), "neither the request nor the settings allow"),
        (call_of("image-to-text", image=str(EXAMPLES / "speech.wav")), "an image file is needed"),
        (call_of("image-to-text", picture=CAT), "image"),
    ],
    ids=["missing file", "forbidden file", "wrong kind", "wrong argument"],
)
async def test_a_call_that_can_not_work_tells_the_model_why(
    tools: list[BaseTool], call: AIMessage, complaint: str
) -> None:
    llm = ScriptedLLM([call, "I can not see it."])
    message, answer = answered(await create_agent(llm, tools).ainvoke(asked()))
    assert message.status == "error"
    assert complaint in message.text
    assert answer == "I can not see it."


def without_candidates() -> dict[str, Sequence[Any]]:
    return {"sources": [FakeSource([])], "backends": []}


def test_a_tool_without_any_model_tells_the_model_too(tmp_path: Path) -> None:
    settings = Settings(output_dir=tmp_path, allowed_dirs=(EXAMPLES,))
    (tool,) = hf_tools(tasks=["image-to-text"], settings=settings, **without_candidates())
    llm = ScriptedLLM([call_of("image-to-text", image=CAT), "I can not see it."])
    message, _ = answered(create_agent(llm, [tool]).invoke(asked()))
    assert message.status == "error"
    assert "image-to-text" in message.text
    tool.close()  # type: ignore[attr-defined]
