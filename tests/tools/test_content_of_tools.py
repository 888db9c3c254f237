"""What a calling model sees of a result: text, or content blocks, by its profile."""

from __future__ import annotations

import base64
import io
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_openai import ChatOpenAI
from PIL import Image
from small_agents import EXPERTS, plan, small_agent

from jarvis_agent import hf_tools
from jarvis_agent.llm.content import MAX_SIDE, visible_kinds
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate

pytestmark = pytest.mark.usefixtures("home")

DRAWN = {"text-to-image": Image.new("RGB", (3000, 1500), "red")}
SEES = {"image_inputs": True, "image_tool_message": True}


def shown(task: str, content: Any, profile: Any) -> Any:
    """The content of the tool message that the calling model reads."""
    call = {"name": task, "args": {"text": "a fox"}, "id": "1", "type": "tool_call"}
    llm = ScriptedLLM([AIMessage("", tool_calls=[call]), "Here it is."], profile=profile)
    backend, source = FakeBackend({**EXPERTS, **DRAWN}), FakeSource([fake_candidate(task)])
    tools = hf_tools(llm, tasks=[task], sources=[source], backends=[backend], content=content)
    create_agent(llm, tools).invoke({"messages": "Make a fox"})
    message = llm.calls[-1].messages[-1]
    assert isinstance(message, ToolMessage)
    assert "path" in message.artifact["resources"][0]
    return message.content


def test_a_model_that_takes_images_in_tool_messages_sees_the_image_that_it_ordered() -> None:
    for content, profile in (("auto", SEES), ("blocks", None)):
        text, image = shown("text-to-image", content, profile)
        assert text["type"] == "text"
        assert text["text"].startswith("image: /")
        assert image["type"] == "image"
        opened = Image.open(io.BytesIO(base64.b64decode(image["base64"])))
        assert opened.size == (MAX_SIDE, MAX_SIDE // 2)
        assert image["mime_type"] == Image.MIME[str(opened.format)]
    _, *files = shown("text-to-speech", "blocks", None)
    assert [(file["type"], file["mime_type"]) for file in files] == [("file", "audio/wav")]


def test_another_model_gets_text() -> None:
    for content, profile in (
        ("text", SEES),
        ("auto", {"image_inputs": True, "image_tool_message": False}),
        ("auto", {"image_inputs": False, "image_tool_message": True}),
        ("auto", None),
    ):
        assert shown("text-to-image", content, profile).startswith("image: /")
    assert shown("text-to-speech", "auto", SEES).startswith("audio: /")


def test_an_openai_model_sees_images_through_the_responses_api_alone() -> None:
    for by_responses in (True, False):
        model = ChatOpenAI(model="gpt-5-mini", api_key="none", use_responses_api=by_responses)  # type: ignore[arg-type]
        assert visible_kinds("auto", model) == ({"image"} if by_responses else frozenset())
    assert visible_kinds("auto", ChatOpenAI(model="gpt-5-mini", api_key="none")) == frozenset()  # type: ignore[arg-type]


def test_the_agent_hands_its_pictures_on_as_a_tool_and_as_a_message() -> None:
    agent, llm, _ = small_agent(plan(("text-to-image", [], {"text": "a fox"})), DRAWN)
    llm.profile = SEES  # type: ignore[assignment]
    call: Any = {"type": "tool_call", "name": "jarvis", "id": "1", "args": {"request": "Draw a fox"}}
    with agent:
        answers = [agent.as_tool(content=content).invoke(call) for content in ("text", "blocks", "auto")]  # type: ignore[arg-type]
    assert [type(message.content) for message in answers] == [str, list, list]
    run = answers[0].artifact
    for message in (*answers[1:], run.to_message("blocks")):
        assert [block["type"] for block in message.content] == ["text", "image"]
        assert message.content[0]["text"].startswith("A cat on a mat.")
    assert run.messages[0].content == run.answer
    run.resources[0].path.unlink()
    assert run.to_message("blocks").content == run.answer
