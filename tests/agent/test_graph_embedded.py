"""The graph inside a larger graph, with any durability, and on LangGraph's server."""

import importlib
import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

pytest.importorskip("langgraph")

from blocking import no_blocking
from durable_agents import ONE_BY_ONE, THREAD, counting_agent
from fastapi import FastAPI
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.constants import CONFIG_KEY_CHECKPOINTER
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import get_runtime
from langgraph.types import Command
from small_agents import block, picture, plan
from starlette.testclient import TestClient
from typing_extensions import TypedDict

from jarvis_agent import Run
from jarvis_agent.core.errors import ForbiddenError, InputError
from jarvis_agent.core.request import Request
from jarvis_agent.testing import ScriptedLLM
from jarvis_agent.testing.llm import Script

HERE = Path(__file__).parents[1]


class Question(TypedDict, total=False):
    question: str
    answer: str


def larger(inner: Any, saver: InMemorySaver | None) -> Any:
    """A graph with our graph as a step."""

    async def step(state: Question) -> Question:
        state_of_inner = await inner.ainvoke({"input": state["question"]})
        return {"answer": state_of_inner["messages"][-1].text}

    graph = StateGraph(Question)
    graph.add_node("jarvis", step)
    graph.add_edge(START, "jarvis")
    graph.add_edge("jarvis", END)
    return graph.compile(checkpointer=saver)


async def test_the_graph_takes_messages_or_a_request_with_any_durability(tmp_path: Path) -> None:
    agent = counting_agent(tmp_path, [], *ONE_BY_ONE)
    graph = agent.copy(checkpointer=InMemorySaver()).graph
    durabilities: tuple[Literal["sync", "async", "exit"], ...] = ("sync", "async", "exit")
    for durability in durabilities:
        state = await graph.ainvoke({"input": "count"}, THREAD, durability=durability)
        run = Run.model_validate(state["run"])
        assert run.answer == "Done: one, two."
        assert [result.output for result in run.results] == ["one!", "one!!"]
    state = await agent.graph.ainvoke({"messages": [HumanMessage("count")]})
    assert [message.text for message in state["messages"]] == ["count", "Done: one, two."]


async def test_the_graph_is_a_step_of_a_larger_graph(tmp_path: Path) -> None:
    """Each with a checkpointer of its own or without."""
    agent = counting_agent(tmp_path, [], *ONE_BY_ONE)
    for own in (InMemorySaver(), None):
        inner = agent.copy(checkpointer=own).graph
        for outer in (InMemorySaver(), None):
            state = await larger(inner, outer).ainvoke({"question": "count"}, THREAD)
            assert state["answer"] == "Done: one, two."


async def test_a_plan_is_approved_through_the_larger_graph(tmp_path: Path) -> None:
    calls: list[str] = []
    inner = counting_agent(tmp_path, calls).copy(approve=True).graph
    outer = larger(inner, InMemorySaver())
    state = await outer.ainvoke({"question": "count"}, THREAD)
    assert state["__interrupt__"][0].value["plan"][0]["args"] == {"text": "one"}
    assert calls == []
    state = await outer.ainvoke(Command(resume=True), THREAD)
    assert (calls, state["answer"]) == (["one"], "Done: one, two.")


async def test_the_graph_has_schemas_and_its_input_errors_are_value_errors(tmp_path: Path) -> None:
    """LangGraph's server hides the messages of other errors."""
    graph = counting_agent(tmp_path, []).graph
    assert graph.get_input_jsonschema()["properties"].keys() == Request.model_fields.keys()
    outputs = {"messages", "run", "structured_response", "files"}
    assert graph.get_output_jsonschema()["properties"].keys() == outputs
    with pytest.raises(InputError, match="the request is empty") as caught:
        await graph.ainvoke({"input": " "})
    assert isinstance(caught.value, ValueError)


def test_the_internals_of_langgraph_in_use_exist() -> None:
    """What `jarvis_agent.agent.graph` uses beyond LangGraph's documented API."""
    problem = "LangGraph changed {}: adapt jarvis_agent/agent/graph.py"
    found: dict[str, Any] = {}

    def look(state: Question, config: RunnableConfig) -> Question:
        node = get_runtime().execution_info
        assert node is not None, problem.format("Runtime.execution_info")
        found.update(saver=config["configurable"].get(CONFIG_KEY_CHECKPOINTER), node=node)
        return {}

    inner = StateGraph(Question).add_node("look", look).add_edge(START, "look").compile()
    saver = InMemorySaver()
    outer = StateGraph(Question).add_node("inner", inner).add_edge(START, "inner").compile(checkpointer=saver)
    outer.invoke({"question": "?"}, THREAD)
    node = found["node"]
    assert found["saver"] is saver, problem.format("the key of the checkpointer in a node's config")
    graph, separator, own = node.checkpoint_ns.rpartition("|")
    named = (graph.startswith("inner:"), separator, own.startswith("look:"))
    assert named == (True, "|", True), problem.format("the namespaces of checkpoints")
    assert node.thread_id == "a"


Served = Callable[[str], Any]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Served:
    """A graph of langgraph.json by its name; the plan draws the edges of "open/a.png"."""
    (tmp_path / "open").mkdir()
    rows = [{"task": "canny-control", "id": 0, "args": {"image": str(picture(tmp_path / "open" / "a.png"))}}]
    llm = ScriptedLLM({"plan": json.dumps(rows), "respond": "Done."})
    monkeypatch.setenv("JARVIS_OFFLINE", "1")
    monkeypatch.setenv("JARVIS_OUTPUT_DIR", "out")
    monkeypatch.setenv("JARVIS_ALLOWED_DIRS", str(tmp_path / "open"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("jarvis_agent.agent.agent.resolve_model", lambda model, settings: llm)
    monkeypatch.delitem(sys.modules, "jarvis_agent.interfaces.server.langgraph_app", raising=False)
    config = json.loads((HERE.parent / "langgraph.json").read_text())
    named = {**config["graphs"], **config["http"]}

    def load(name: str) -> Any:
        path, variable = named[name].split(":")
        assert (HERE.parent / path).is_file()
        module = path.removeprefix("./").removesuffix(".py").replace("/", ".")
        return getattr(importlib.import_module(module), variable)

    return load


async def test_the_served_graph_blocks_no_event_loop(served: Served, tmp_path: Path) -> None:
    a_picture = str(tmp_path / "open" / "a.png")
    graph = served("jarvis")
    with no_blocking() as blocked:
        state = await graph.ainvoke({"input": "Draw the edges of a.png", "files": [a_picture]}, THREAD)
    assert blocked == []
    run = state["run"]
    assert [result["error"] for result in run["results"]] == [None]
    (made,) = (tmp_path / "out").rglob("*canny*.png")
    assert run["results"][0]["resources"][0]["path"] == f"/outputs/{made.parent.name}/{made.name}"


async def test_the_served_graph_reads_no_file_that_a_request_names(served: Served, tmp_path: Path) -> None:
    secret = picture(tmp_path / "secret.png")
    with pytest.raises(ForbiddenError, match="files of this machine are not read"):
        await served("jarvis").ainvoke({"input": "Draw its edges", "files": [str(secret)]}, THREAD)


async def test_clients_of_the_served_graph_see_urls_and_their_uploads_once(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    graph, data = served("jarvis-approve"), block(picture(tmp_path / "mine.png"), mime="image/png")
    graph.checkpointer = InMemorySaver()
    llm: Any = importlib.import_module("jarvis_agent.interfaces.server.langgraph_app")._agent.model

    def draw(messages: Any) -> str:
        name = messages[-1].text.split("<files>\n")[1].split("\n</files>")[0].partition(": ")[2]
        return plan(("canny-control", [], {"image": json.loads(name)}))

    llm._script = Script({"plan": draw, "respond": "It is in 0-canny-control.png."})
    asked = HumanMessage([{"type": "text", "text": "Draw its edges"}, data])
    seen: list[Any] = [await graph.ainvoke({"messages": [asked]}, THREAD)]
    assert not list((tmp_path / "out").rglob("*canny*.png")), "the plan waits for approval"
    seen += [piece async for piece in graph.astream(Command(resume=True), THREAD, stream_mode="values")]
    seen += [(await graph.aget_state(THREAD)).values]
    (made,) = (tmp_path / "out").rglob("*canny*.png")
    url = f"/outputs/{made.parent.name}/{made.name}"
    shown, answer = seen[-1]["messages"][-2:]
    assert [part["type"] for part in shown.content] == ["text", "image"]
    assert shown.content[1]["url"].startswith(f"/outputs/{made.parent.name}/input-")
    assert url in answer.text
    assert url == answer.additional_kwargs["artifacts"][0]["path"]
    assert data["base64"] not in str(seen[-2:])
    assert str(tmp_path) not in str(seen[-2:])
    app = served("app")
    assert isinstance(app, FastAPI), "aegra takes no other application"
    with TestClient(app) as client:
        assert client.get(url).content == made.read_bytes()
        assert client.head(url).headers["content-type"] == "image/png"
        assert client.get(f"/outputs/{made.parent.name}/..").status_code == 404
    again = plan(("canny-control", [], {"image": str(made)}))
    llm._script = Script({"plan": again, "respond": "Again."})
    await graph.ainvoke({"messages": [HumanMessage(f"Draw the edges of {url}")]}, THREAD)
    state = await graph.ainvoke(Command(resume={"decisions": [{"type": "approve"}]}), THREAD)
    assert [result["error"] for result in state["run"]["results"]] == [None]


def test_an_ag_ui_client_gets_the_answer_and_no_plan(served: Served, tmp_path: Path) -> None:
    core = pytest.importorskip("ag_ui.core")
    pytest.importorskip("ag_ui_langgraph")
    served("app")
    example = runpy.run_path(str(HERE.parent / "examples" / "agent_server" / "ag_ui_app.py"))
    message = {"id": "m", "role": "user", "content": "Draw the edges of a.png"}
    lists: dict[str, Any] = {"tools": [], "context": [], "state": {}, "forwardedProps": {}}
    body = {"threadId": "t", "runId": "r", "messages": [message], **lists}
    with TestClient(example["app"]) as client:
        lines = client.post("/agent", json=body).text.splitlines()
        events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
        kinds = [event["type"] for event in events]
        (made,) = (tmp_path / "out").rglob("*canny*.png")
        assert client.get(f"/outputs/{made.parent.name}/{made.name}").content == made.read_bytes()
    assert (kinds[0], kinds[-1]) == (core.EventType.RUN_STARTED, core.EventType.RUN_FINISHED)
    written = [event["delta"] for event in events if event["type"] == core.EventType.TEXT_MESSAGE_CONTENT]
    assert "canny-control" not in "".join(written), "that is the plan"
    (snapshot,) = [event["messages"] for event in events if event["type"] == core.EventType.MESSAGES_SNAPSHOT]
    assert [message["role"] for message in snapshot] == ["user", "assistant"]
    assert snapshot[-1]["content"].startswith("Done.")
