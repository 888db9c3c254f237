"""`agent.graph` as a sub-agent of deepagents, with files on both sides."""

import base64
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from small_agents import DESCRIBE, DESCRIBE_ALOUD, hub_tools, picture, small_agent

from jarvis_agent import JarvisAgent
from jarvis_agent.testing import ScriptedLLM

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
    deep = deepagents.create_deep_agent(
        _calling("task", description="Describe /pictures/a.jpg aloud", subagent_type="jarvis"),
        subagents=[{"name": "jarvis", "description": "Works on media.", "runnable": agent.graph}],
    )
    state = deep.invoke({"messages": [HumanMessage("Go")], "files": files})
    assert "A cat on a mat." in state["messages"][-2].text
    (made,) = state["files"].keys() - files.keys()
    assert made.endswith(".wav")


@pytest.mark.usefixtures("home")
def test_a_deep_agent_calls_a_task_as_a_tool() -> None:
    deepagents = pytest.importorskip("deepagents")
    tools = hub_tools("image-to-text", model=ScriptedLLM(DESCRIBE))
    deep = deepagents.create_deep_agent(_calling("image-to-text", image="a.jpg"), tools=tools)
    state = deep.invoke({"messages": [HumanMessage("Go")]})
    assert state["messages"][-2].text == "a cat on a mat"


class _Calling(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def _calling(tool: str, **args: Any) -> Any:
    """A language model that calls a tool, and then is done."""
    call = {"name": tool, "id": "1", "args": args}
    return _Calling(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("Done.")]))
