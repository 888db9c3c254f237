"""The agent in LCEL and as a node of a LangGraph graph; its tools in `create_agent` and in deepagents."""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from durable_agents import THREAD
from langchain.agents import create_agent
from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from PIL import Image
from small_agents import DESCRIBE, DESCRIBE_ALOUD, EXPERTS, call_of, hub_tools, picture, plan, small_agent

from jarvis_agent import JarvisAgent, Resource, Run, Settings, hf_tools
from jarvis_agent.core.errors import InputError
from jarvis_agent.core.settings import RunOptions
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate

EXAMPLES = Path(__file__).parents[2] / "examples"
CAT = str(EXAMPLES / "cat.jpg")
DRAW = {"canny-control": Image.new("L", (8, 8))}
pytestmark = pytest.mark.usefixtures("home")


class State(MessagesState):
    """A chat, and the last run as plain JSON, which every checkpointer can store."""

    run: dict[str, Any]


def update(run: Run) -> dict[str, Any]:
    return {"messages": run.messages, "run": run.model_dump(mode="json")}


def test_the_agent_is_a_node_that_streams_and_whose_run_a_checkpoint_keeps() -> None:
    agent, llm, _ = small_agent(plan(("canny-control", [], {"image": CAT})), DRAW)
    graph = StateGraph(State).add_node("jarvis", agent | update, input_schema=MessagesState)
    compiled = graph.add_edge(START, "jarvis").compile(checkpointer=InMemorySaver())
    asked = f"Make a canny edge image of {CAT}"
    with agent:
        streamed = list(compiled.stream(message(asked), THREAD, stream_mode="messages"))
        state = compiled.get_state(THREAD).values
        compiled.invoke(message("Once more"), THREAD)
    second = [call.prompt for call in llm.calls if call.stage == "plan"][1]
    assert second.count(asked) == 1, "it is in the messages and in the thread's memory"
    pieces = [chunk.text for chunk, metadata in streamed if metadata.get("jarvis_stage") == "respond"]
    assert len([piece for piece in pieces if piece]) > 1
    assert "".join(pieces) == "A cat on a mat."
    assert {metadata.get("jarvis_stage") for _, metadata in streamed} == {"respond", None}
    assert not any(chunk.text.startswith("[{") for chunk, _ in streamed)
    assert state["messages"][-1].text.startswith("A cat on a mat.")
    assert Run.model_validate(state["run"]).results[0].resources[0].to_pil().size == (8, 8)


@pytest.mark.parametrize("nested", [False, True], ids=["alone", "nested"])
async def test_the_graph_streams_the_checked_answer_once_and_no_other_text(nested: bool) -> None:
    """The second model is chosen, and the path in the answer is corrected: two further texts of the model."""
    agent, llm, _ = small_agent(
        plan(("canny-control", [], {"image": CAT})),
        DRAW,
        models=["a", "b"],
        select='{"id": "canny-control/b"}',
        respond="Here it is: 0-canny-control.png",
    )
    graph: Any = agent.graph
    if nested:
        builder = StateGraph(MessagesState).add_node("jarvis", graph)
        graph = builder.add_edge(START, "jarvis").compile(checkpointer=InMemorySaver())
    given = {"stream_mode": ["messages", "values"], "subgraphs": True, "config": THREAD}
    pieces, state = [], {}
    async for _, mode, piece in graph.astream(message(f"Make a canny edge image of {CAT}"), **given):
        if mode == "messages":
            pieces.append(piece[0])
        else:
            state = piece
    *_, answer = state["messages"]
    assert {"plan", "select", "respond"} == set(llm.stages())
    assert len(pieces) > 1
    assert {piece.id for piece in pieces} == {answer.id}
    assert "".join(piece.text for piece in pieces) == answer.text
    assert answer.additional_kwargs["artifacts"][0]["path"] in answer.text
    events = graph.astream_events(message("Once more"), THREAD, version="v2")
    written = [event["metadata"] async for event in events if event["event"] == "on_chat_model_stream"]
    assert written
    assert not any(metadata["emit-messages"] for metadata in written), "AG-UI would show them"


@pytest.mark.parametrize("nested", [False, True], ids=["alone", "nested"])
def test_one_graph_serves_several_assistants(nested: bool) -> None:
    far = FakeBackend(EXPERTS, "far", local=False)
    models = [
        fake_candidate("image-to-text", "org/here"),
        fake_candidate("image-to-text", "org/far", backend="far", local=False, providers=("far",)),
    ]
    agent, llm, _ = small_agent(
        plan(("image-to-text", [], {"image": CAT})),
        sources=[FakeSource(models)],
        backends=[FakeBackend(EXPERTS), far],
        settings={"selection": "rank", "offline": False},
    )
    graph: Any = agent.graph
    schema = graph.get_context_jsonschema()
    assert schema["properties"].keys() == {"policy", "budget", "models", "language", "content"}
    if nested:
        builder = StateGraph(MessagesState, context_schema=RunOptions).add_node("jarvis", graph)
        graph = builder.add_edge(START, "jarvis").compile()
    contexts: list[tuple[Any, str]] = [
        (None, "org/here"),
        ({"policy": "hosted-only"}, "org/far"),
        ({"models": {"image-to-text": "org/pinned"}}, "org/pinned"),
        ({"language": "French"}, "org/here"),
    ]
    for context, model in contexts:
        stream = graph.stream(message(), stream_mode="custom", subgraphs=True, context=context)
        chosen = [piece["selection"]["model"] for _, piece in stream if piece["kind"] == "selected"]
        assert chosen == [model]
        assert ("(Answer in French.)" in llm.calls[-1].prompt) == ("language" in (context or {}))


def test_the_context_of_a_larger_graph_may_be_of_another_form() -> None:
    @dataclass
    class User:
        name: str

    for schema, context in ((User, User("Ada")), (None, {"name": "Ada", "policy": None})):
        builder = StateGraph(MessagesState, context_schema=schema).add_node("jarvis", small_agent()[0].graph)
        state: Any = builder.add_edge(START, "jarvis").compile().invoke(message(), context=context)
        assert state["messages"][-1].text


def test_a_client_cannot_choose_more_than_the_agent_allows() -> None:
    agent, _, _ = small_agent(settings={"policy": "local-only"})
    served = agent.copy(restricted_to=[]).graph
    contexts: list[tuple[Any, str]] = [
        ({"policy": "hosted-first"}, "'hosted-first' is not possible here: the agent has 'local-only'"),
        ({"policy": "anywhere"}, "policy: Input should be 'local-first'"),
        ({"content": "pictures"}, "content: Input should be 'text'"),
        ({"models": {"image-to-text": "/etc"}}, "no id of a model on the Hub"),
        ({"models": {"sing": "org/model"}}, "sing"),
    ]
    for context, problem in contexts:
        with pytest.raises(InputError, match=problem):
            served.invoke(message("Hello"), context=context)


def test_an_assistant_may_have_the_pictures_in_the_answer() -> None:
    agent, _, _ = small_agent(plan(("canny-control", [], {"image": CAT})), DRAW)
    state: Any = agent.graph.invoke(message(f"Draw the edges of {CAT}"), context={"content": "blocks"})
    assert [block["type"] for block in state["messages"][-1].content] == ["text", "image"]


def test_the_graph_can_be_drawn_inside_a_larger_one() -> None:
    agent, _, _ = small_agent()
    larger = StateGraph(MessagesState).add_node("expert", agent.graph).add_edge(START, "expert").compile()
    assert "jarvis" in larger.get_graph(xray=True).draw_mermaid()
    assert "jarvis" in agent.graph.with_config(tags=["drawn"]).get_graph().draw_mermaid()


def message(text: str = f"What is in {CAT}?") -> dict[str, list[BaseMessage]]:
    return {"messages": [HumanMessage(text)]}


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[list[BaseTool]]:
    settings = Settings(output_dir=tmp_path, allowed_dirs=(EXAMPLES,))
    experts = {"image-to-text": "a tabby cat", **DRAW}
    made = hub_tools(*experts, experts=experts, settings=settings)
    yield made
    made[0].close()


def tool_message(state: dict[str, Any]) -> ToolMessage:
    (found,) = [each for each in state["messages"] if isinstance(each, ToolMessage)]
    return found


async def test_create_agent_calls_tools_and_a_checkpoint_keeps_their_artifacts(tools: list[BaseTool]) -> None:
    llm = ScriptedLLM([call_of("image-to-text", image=CAT), "It is a tabby cat."])
    state = create_agent(llm, tools).invoke(message())
    called = tool_message(state)
    assert (called.content, called.status) == ("a tabby cat", "success")
    assert state["messages"][-1].text == "It is a tabby cat."
    offered = [tool["function"]["name"] for tool in llm.calls[0].kwargs["tools"]]
    assert offered == ["image-to-text", "canny-control"]

    llm = ScriptedLLM([call_of("canny-control", image=CAT), "Here it is."])
    agent = create_agent(llm, tools, checkpointer=InMemorySaver())
    called = tool_message(await agent.ainvoke(message(), THREAD))
    stored = tool_message((await agent.aget_state(THREAD)).values)
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


NOTES = {"content": "Buy milk.", "encoding": "utf-8"}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    """The files in the state of a deep agent."""
    data = base64.b64encode(picture(tmp_path / "a.jpg").read_bytes()).decode()
    return {"/pictures/a.jpg": {"content": data, "encoding": "base64"}, "/notes.txt": NOTES}


def test_files_that_the_message_names_are_read_and_made_files_are_added(files: dict[str, Any]) -> None:
    agent, llm, _ = small_agent(DESCRIBE_ALOUD)
    state = agent.graph.invoke({"messages": [HumanMessage("Describe /pictures/a.jpg aloud")], "files": files})
    assert [result["status"] for result in state["run"]["results"]] == ["ok", "ok"]
    assert "notes.txt" not in llm.calls[0].prompt
    ((path, speech),) = state["files"].items()
    assert path in state["messages"][-1].text
    assert base64.b64decode(speech["content"]) == Path(path).read_bytes()


def test_texts_of_the_state_are_read(files: dict[str, Any]) -> None:
    agent, llm, _ = small_agent("[]")
    state = agent.graph.invoke({"messages": [HumanMessage("What does notes.txt say?")], "files": files})
    assert state["messages"][-1].text == "Hello!"
    assert '- text: "notes.txt"' in llm.calls[0].prompt


def test_a_deep_agent_orders_work_on_its_files(files: dict[str, Any]) -> None:
    deepagents = pytest.importorskip("deepagents")
    agent: JarvisAgent = small_agent(DESCRIBE_ALOUD)[0]
    orders = call_of("task", description="Describe /pictures/a.jpg aloud", subagent_type="jarvis")
    worker = {"name": "jarvis", "description": "Works on media.", "runnable": agent.graph}
    deep = deepagents.create_deep_agent(ScriptedLLM([orders, "Done."]), subagents=[worker])
    state = deep.invoke({"messages": [HumanMessage("Go")], "files": files})
    assert "A cat on a mat." in state["messages"][-2].text
    (made,) = state["files"].keys() - files.keys()
    assert made.endswith(".wav")


def test_a_deep_agent_calls_a_task_as_a_tool() -> None:
    deepagents = pytest.importorskip("deepagents")
    tools = hub_tools("image-to-text", model=ScriptedLLM(DESCRIBE))
    llm = ScriptedLLM([call_of("image-to-text", image="a.jpg"), "Done."])
    deep = deepagents.create_deep_agent(llm, tools=tools)
    state = deep.invoke({"messages": [HumanMessage("Go")]})
    assert state["messages"][-2].text == "a cat on a mat"
