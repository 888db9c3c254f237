"""Tools called alone or by another agent: their place in traces, their errors, the files they may read."""

import base64
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool
from langchain_core.tracers.run_collector import RunCollectorCallbackHandler
from langchain_core.tracers.schemas import Run
from langgraph.checkpoint.memory import InMemorySaver
from small_agents import CAPTION, DESCRIBE, EXPERTS, call_of, hub_tools, picture, small_agent

from jarvis_agent import (
    JarvisAgent,
    OfflinePlanner,
    hf_tools,
    planning_chain,
    response_chain,
    selection_chain,
)
from jarvis_agent import Run as JarvisRun
from jarvis_agent.backends.base import Call
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate
from jarvis_agent.testing.hub import Reply, ReplyServer

pytestmark = pytest.mark.usefixtures("home")


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


def test_a_remark_of_a_backend_is_a_note_of_the_result() -> None:
    def write(call: Call) -> str:
        call.notes.append("the text was cut")
        return "Once upon a"

    source, backend = FakeSource([fake_candidate("text-generation")]), FakeBackend({"text-generation": write})
    (tool,) = hf_tools(tasks=["text-generation"], sources=[source], backends=[backend])
    with JarvisAgent(tools=[tool], settings={"offline": True}) as agent:
        run = agent.invoke("Write a story about a whale")
    assert run.results[0].notes == ["the text was cut"]
    assert "Note: the text was cut" in run.answer


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


def test_the_tools_are_those_that_can_run_here_unless_others_are_asked_for() -> None:
    def names(**options: Any) -> list[str]:
        source, backend = FakeSource([fake_candidate("image-to-text")]), FakeBackend(EXPERTS)
        return [tool.name for tool in hf_tools(sources=[source], backends=[backend], **options)]

    assert names() == ["image-to-text"]
    assert names(tasks=["summarization"]) == ["summarization"]
    assert names(tasks=["summarization"], available_only=True) == []
    assert {"image-to-text", "summarization"} < set(names(available_only=False))


@pytest.mark.parametrize("prompts", ["default", "paper"])
def test_the_choice_of_a_model_is_asked_for_with_the_call_and_what_the_user_said_last(prompts: str) -> None:
    """Alone there is no request. No schema has the injected argument."""
    source = FakeSource(fake_candidate("image-to-text", name) for name in ("1", "2"))
    llm = ScriptedLLM(
        {"select": '{"id": "2", "reason": "best"}', "": [call_of("image-to-text", image="a.jpg"), "Done."]}
    )
    parts: Any = {"sources": [source], "backends": [FakeBackend(EXPERTS)], "settings": {"prompts": prompts}}
    (caption,) = hf_tools(llm, tasks=["image-to-text"], **parts)
    caption.invoke({"image": "a.jpg"})
    history = [("human", "Hello"), ("ai", "Hi!"), ("human", "What is in my picture?")]
    create_agent(llm, [caption]).invoke({"messages": history})
    alone, by_agent = (call.prompt for call in llm.calls if call.stage == "select")
    for prompt in (alone, by_agent):
        assert '"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": "a.jpg"}' in prompt
    asked = "User request: {}\n" if prompts == "paper" else "<request>\n{}\n</request>"
    assert asked.format("What is in my picture?") in by_agent
    assert "Hello" not in by_agent
    (offered,) = next(call for call in llm.calls if not call.stage).kwargs["tools"]
    assert set(offered["function"]["parameters"]["properties"]) == {"image", "text"}


def test_the_artifact_of_the_agent_as_a_tool_is_its_run() -> None:
    tool = small_agent(DESCRIBE)[0].as_tool()
    call = {"type": "tool_call", "name": "jarvis", "id": "1", "args": {"request": "See a.jpg"}}
    message = tool.invoke(call)
    assert isinstance(message.artifact, JarvisRun)
    assert message.content == message.artifact.answer == "A cat on a mat."
    assert message.artifact.ok


def test_the_calling_agent_streams_its_own_words_alone() -> None:
    tool = small_agent(DESCRIBE, respond="It is /no/such.jpg")[0].as_tool()
    llm = ScriptedLLM([call_of("jarvis", request="See a.jpg"), "Done."])
    stream = create_agent(llm, [tool]).stream({"messages": "Do it"}, stream_mode="messages")
    assert "".join(str(piece.text) for piece, _ in stream if isinstance(piece, AIMessage)) == "Done."


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


def test_a_durable_agent_is_a_tool_unless_it_asks() -> None:
    saver = InMemorySaver()
    assert small_agent(DESCRIBE, checkpointer=saver)[0].as_tool().invoke({"request": "See a.jpg"})
    assert [*saver.list(None)] == []
    with pytest.raises(ConfigError, match="a tool cannot ask"):
        small_agent(DESCRIBE, checkpointer=saver, approve=True)[0].as_tool()


def tools_of(output_dir: Path, **settings: Any) -> dict[str, BaseTool]:
    """A set of tools by name."""
    tasks = ("text-to-speech", "automatic-speech-recognition", "image-to-text", "translation")
    return {tool.name: tool for tool in hub_tools(*tasks, settings={"output_dir": output_dir, **settings})}


def test_a_tool_reads_what_a_tool_of_its_set_produced(tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outputs")
    tools, others = tools_of(outside), tools_of(outside)
    audio = tools["text-to-speech"].invoke({"text": "hello"}).removeprefix("audio: ")
    assert Path(audio).is_relative_to(outside)
    assert tools["automatic-speech-recognition"].invoke({"audio": audio}) == "hello there"
    assert "may not read" in others["automatic-speech-recognition"].invoke({"audio": audio})


def test_allowed_directories_are_read_beside_the_working_directory(
    home: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    album, other = (picture(tmp_path_factory.mktemp(name) / "b.png") for name in ("album", "other"))
    for settings in ({}, {"allowed_dirs": [album.parent]}):
        tool = tools_of(home, **settings)["image-to-text"]
        paths = ("a.jpg", str(home / "a.jpg"), (home / "a.jpg").as_uri())
        assert [tool.invoke({"image": path}) for path in paths] == [CAPTION] * 3
        assert "may not read" in tool.invoke({"image": other.as_uri()})
        assert (tool.invoke({"image": str(album)}) == CAPTION) == bool(settings)
        assert f"may not read '{other}'" in tool.invoke({"image": str(other)})


def test_a_tool_fetches_a_url_unless_its_address_is_private(home: Path) -> None:
    image = Reply(body=(home / "a.jpg").read_bytes())
    with ReplyServer(lambda request: image) as server:
        url = f"{server.url}/a.jpg"
        public = tools_of(home, allow_private_urls=True)  # stands for a public address
        assert public["image-to-text"].invoke({"image": url}) == CAPTION
        assert "private" in tools_of(home)["image-to-text"].invoke({"image": url})


def test_a_file_may_be_a_data_uri(home: Path) -> None:
    data = base64.b64encode((home / "a.jpg").read_bytes()).decode()
    tool = tools_of(home)["image-to-text"]
    assert tool.invoke({"image": f"data:image/jpeg;base64,{data}"}) == CAPTION
    assert "not valid base64" in tool.invoke({"image": "data:image/jpeg;base64,?"})
    (given,) = hub_tools("image-to-text", files=f"data:image/jpeg;base64,{data}{'A' * 4_096}")
    assert given.invoke({"image": "a.jpg"}) == CAPTION


def test_errors_of_a_tool_speak_of_tools(home: Path) -> None:
    tool = tools_of(home)["image-to-text"]
    for image in ("/etc/passwd", "ftp://example.org/a.jpg", "<resource>-0", "missing.jpg", "file:///a.jpg"):
        error = tool.invoke({"image": image})
        assert image in error
        assert not any(word in error for word in ("plan", "request"))
    error = tool.invoke({"image": "/etc/" + "a" * 5_000})
    assert "too many for a path" in error
    assert len(error) < 200
    assert tools_of(home)["translation"].invoke({"text": "<resource>-0", "tgt_lang": "fr"}) == "une phrase"


def test_settings_may_be_a_dict() -> None:
    llm, settings = ScriptedLLM({}), {"task_timeout": 20}
    for make in (hf_tools, planning_chain, selection_chain, response_chain):
        make(llm, settings=settings)
    OfflinePlanner(settings=settings)
    with pytest.raises(ConfigError, match="task_timeout"):
        hf_tools(settings={"task_timeout": -1})
    with pytest.raises(ConfigError, match="of type int"):
        OfflinePlanner(settings=3)
