"""What a calling model sees of a result: text, or content blocks, by its profile."""

import base64
import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from PIL import Image
from small_agents import EXPERTS, call_of, plan, small_agent

from jarvis_agent import hf_tools
from jarvis_agent.llm.content import MAX_SIDE, messages_for
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate
from jarvis_agent.tools import hf_tools_middleware

pytestmark = pytest.mark.usefixtures("home")

DRAWN = {"text-to-image": Image.new("RGB", (3000, 1500), "red")}
SEES = {"image_inputs": True, "image_tool_message": True}
AnotherLLM = partial(ScriptedLLM, model_name="another")


def messages_read(task: str, content: Any, profile: Any, *, middleware: bool = False) -> list[BaseMessage]:
    """What the calling model reads after it called a tool."""
    llm = ScriptedLLM([call_of(task, text="a fox"), "Here it is."], profile=profile)
    backend, source = FakeBackend({**EXPERTS, **DRAWN}), FakeSource([fake_candidate(task)])
    options: Any = {"tasks": [task], "sources": [source], "backends": [backend]}
    options |= {"content": content} if content else {}
    if middleware:
        agent = create_agent(llm, middleware=[hf_tools_middleware(AnotherLLM([], profile={}), **options)])
    else:
        agent = create_agent(llm, hf_tools(llm, **options))
    agent.invoke({"messages": "Make a fox"})
    return list(llm.calls[-1].messages)


def shown(task: str, content: Any, profile: Any, **options: Any) -> Any:
    """The content of the tool message that the calling model reads."""
    message = messages_read(task, content, profile, **options)[-1]
    assert isinstance(message, ToolMessage)
    assert "path" in message.artifact["resources"][0]
    return message.content


def test_blocks_are_the_text_and_the_files_and_text_is_the_default() -> None:
    text, image = shown("text-to-image", "blocks", None)
    assert text["type"] == "text"
    assert text["text"].startswith("image: /")
    assert image["type"] == "image"
    opened = Image.open(io.BytesIO(base64.b64decode(image["base64"])))
    assert opened.size == (MAX_SIDE, MAX_SIDE // 2)
    assert image["mime_type"] == Image.MIME[str(opened.format)]
    _, *files = shown("text-to-speech", "blocks", None)
    assert [(file["type"], file["mime_type"]) for file in files] == [("file", "audio/wav")]
    assert shown("text-to-image", None, SEES).startswith("image: /")


def test_with_the_middleware_each_model_gets_the_files_that_it_takes_where_it_takes_them() -> None:
    content = shown("text-to-image", None, SEES, middleware=True)
    assert [block["type"] for block in content] == ["text", "image"]
    assert shown("text-to-image", "text", SEES, middleware=True).startswith("image: /")
    listens = {"image_inputs": True, "audio_inputs": True, "image_tool_message": False}
    for task, kind in (("text-to-image", "image"), ("text-to-speech", "audio")):
        *_, tool, moved = messages_read(task, None, listens, middleware=True)
        assert [block["type"] for block in tool.content_blocks] == ["text"]
        assert isinstance(moved, HumanMessage)
        assert [block["type"] for block in moved.content_blocks] == ["text", kind]
        blind: dict[str, bool] | None
        for blind in ({}, None):
            (text,) = shown(task, None, blind, middleware=True)
            assert "path" not in text
            assert text["text"].startswith(f"{kind}: /")


@pytest.mark.parametrize("by_responses", [True, False], ids=["Responses", "Chat Completions"])
def test_requests_to_openai_have_pictures_where_its_apis_take_them(by_responses: bool) -> None:
    """Chat Completions rejects images of tools and of assistants."""
    content = shown("text-to-image", "blocks", None)
    agent, _, _ = small_agent(plan(("text-to-image", [], {"text": "a fox"})), DRAWN)
    call: Any = {"name": "text-to-image", "args": {}, "id": "1"}
    asked = [HumanMessage("Draw"), AIMessage("", tool_calls=[call]), ToolMessage(content, tool_call_id="1")]
    model = ChatOpenAI(model="gpt-5-mini", api_key="none", use_responses_api=by_responses)
    read = messages_for(model, [*asked, *agent.invoke("Draw a fox").messages, HumanMessage("And?")])
    payload: Any = model._get_request_payload(read)
    has_image = {
        message.get("role", message.get("type")): "data:image/jpeg" in json.dumps(message)
        for message in (payload["input"] if by_responses else payload["messages"])[:-1]
    }
    output = "function_call_output" if by_responses else "tool"
    assert has_image[output] == by_responses
    assert has_image["user"], "of the answer, and of the tool with Chat Completions"
    assert not has_image["assistant"]


def test_the_agent_is_a_tool_that_hands_its_pictures_on() -> None:
    mode: Any
    for mode, expected in (("text", str), ("blocks", list)):
        agent, _, _ = small_agent(plan(("text-to-image", [], {"text": "a fox"})), DRAWN)
        call: Any = {"type": "tool_call", "name": "jarvis", "id": "1", "args": {"request": "Draw a fox"}}
        script = AnotherLLM([AIMessage("", tool_calls=[call]), "Here it is."])
        create_agent(script, [agent.as_tool(content=mode)]).invoke({"messages": "Draw"})
        (message,) = (one for one in script.calls[-1].messages if isinstance(one, ToolMessage))
        assert isinstance(message.content, expected)
        assert "A cat on a mat." in message.text


def test_the_agent_is_a_node_that_hands_its_pictures_on() -> None:
    agent, _, _ = small_agent(plan(("text-to-image", [], {"text": "a fox"})), DRAWN)
    graph = StateGraph(MessagesState).add_node("jarvis", agent | (lambda run: {"messages": run.messages}))
    thread: Any = {"configurable": {"thread_id": "fox"}}
    compiled = graph.add_edge(START, "jarvis").compile(checkpointer=InMemorySaver())
    compiled.invoke({"messages": [HumanMessage("Draw a fox")]}, thread)
    messages = compiled.get_state(thread).values["messages"]
    answer = messages[-1]
    assert answer.content == answer.text, "every model reads text"
    assert [block["type"] for block in answer.content_blocks] == ["text", "image"]
    assert answer.additional_kwargs["artifacts"][0]["kind"] == "image"
    sees, blind = (ScriptedLLM([], profile=profile) for profile in ({"image_inputs": True}, None))
    *_, moved = messages_for(sees, messages)
    assert [block["type"] for block in moved.content_blocks] == ["text", "image"]
    assert messages_for(blind, messages) == messages
    run = agent.invoke("Draw a fox")
    assert [block["type"] for block in run.to_message("blocks").content_blocks] == ["text", "image"]
    assert run.to_message().content_blocks == [{"type": "text", "text": run.answer}]
    Path(str(run.resources[0].path)).unlink()
    for gone in (*run.messages, run.to_message("blocks")):
        assert gone.content == run.answer
