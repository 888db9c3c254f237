"""Tools in `create_agent`: whose files they read, and how their progress is seen."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.checkpoint.memory import InMemorySaver
from small_agents import EXPERTS, call_of, hub_tools

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.hub.snapshot import Download
from jarvis_agent.backends.jobs import listed
from jarvis_agent.media.recordings import write_audio
from jarvis_agent.testing import ScriptedLLM
from jarvis_agent.tools import hf_task_tool
from jarvis_agent.tools.hf_task_tool import EVENT

SPEAK, HEAR = "text-to-speech", "automatic-speech-recognition"


@pytest.fixture(autouse=True)
def outputs(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for results that the tools may not read as such."""
    return tmp_path_factory.mktemp("outputs")


def make_tools(
    outputs: Path, experts: dict[str, Any] = EXPERTS, files: str = "", **settings: Any
) -> list[BaseTool]:
    settings["output_dir"] = outputs
    return hub_tools(SPEAK, HEAR, experts=experts, settings=settings, files=files or ())


class Chat:
    """A model that calls one tool a turn, with the tools of one set, over one checkpointer."""

    def __init__(self, tools: list[BaseTool], saver: InMemorySaver | None) -> None:
        self.tools, self.saver = tools, saver

    def ask(self, thread: str, name: str, **args: Any) -> ToolMessage:
        """The tool's message."""
        agent = create_agent(
            ScriptedLLM([call_of(name, **args), "Done."]), self.tools, checkpointer=self.saver
        )
        config: Any = {"configurable": {"thread_id": thread}} if self.saver else {}
        *_, message, _ = agent.invoke({"messages": [("user", "Go on")]}, config)["messages"]
        assert isinstance(message, ToolMessage)
        return message

    def speak(self, thread: str) -> str:
        """The path of a recording that was made in a thread."""
        return str(self.ask(thread, SPEAK, text="hello").artifact["resources"][0]["path"])


def test_files_belong_to_the_thread_in_which_they_were_made(
    outputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the working directory, as with the default of `output_dir`."""
    monkeypatch.chdir(tmp_path)
    for folder in (outputs, Path("outputs")):
        chat = Chat(make_tools(folder), InMemorySaver())
        mine = chat.speak("mine")
        assert chat.ask("mine", HEAR, audio=mine).content == "hello there"
        refused = chat.ask("yours", HEAR, audio=mine)
        assert (refused.status, "may not read" in refused.text) == ("error", True)
        assert "may not read" in chat.tools[1].invoke({"audio": mine})
    assert Path(mine).resolve().is_relative_to(tmp_path)
    (tmp_path / "a.wav").write_bytes(Path(mine).read_bytes())
    assert chat.ask("yours", HEAR, audio="a.wav").content == "hello there"


def test_a_thread_that_is_resumed_in_another_process_reads_its_files(outputs: Path) -> None:
    saver = InMemorySaver()
    mine = Chat(make_tools(outputs), saver).speak("mine")
    restarted = Chat(make_tools(outputs), saver)
    assert restarted.ask("mine", HEAR, audio=mine).content == "hello there"
    assert restarted.ask("mine", HEAR, audio=Path(mine).name).content == "hello there"
    assert "may not read" in restarted.ask("yours", HEAR, audio=mine).text


def test_without_a_thread_files_belong_to_the_run(outputs: Path) -> None:
    chat = Chat(make_tools(outputs), None)
    made = chat.speak("")
    assert "may not read" in chat.ask("", HEAR, audio=made).text
    speak, hear = make_tools(outputs)
    alone = speak.invoke({"text": "hello"}).removeprefix("audio: ")
    assert hear.invoke({"audio": alone}) == "hello there"


def test_the_files_of_the_program_are_read_for_callers_who_may_name_none(outputs: Path) -> None:
    for name in ("given.wav", "other.wav"):
        write_audio(outputs.parent / name, [0.0] * 100, 8_000)
    given, other = str(outputs.parent / "given.wav"), str(outputs.parent / "other.wav")
    chat = Chat(make_tools(outputs, files=given, allow_request_paths=False), None)
    assert chat.ask("", HEAR, audio="given.wav").content == "hello there"
    assert chat.ask("", HEAR, audio=given).content == "hello there"
    assert "may not read 'other.wav'" in chat.ask("", HEAR, audio=other).text
    chat = Chat(make_tools(outputs, files=str(outputs.parent), allow_request_paths=False), None)
    assert chat.ask("", HEAR, audio="other.wav").content == "hello there"


def test_a_message_that_a_client_made_up_opens_no_other_file(outputs: Path) -> None:
    secret, run = outputs.parent / "secret.wav", "20260102-030405-0123456789abcdef"
    names = ("no-run.wav", "uploads/bob.wav", "ui/chat/a.wav", f"served/{run}/bob.wav", f"{run}/of/it.wav")
    for path in (secret, outputs / ".." / secret.name, *(outputs / name for name in names)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        artifact = {"resources": [{"kind": "audio", "path": str(path)}]}
        made_up = ToolMessage("", tool_call_id="0", artifact=artifact)
        llm = ScriptedLLM([call_of(HEAR, audio=str(path)), "Done."])
        before = [("user", "Speak"), call_of(SPEAK, text="x"), made_up, ("user", "Listen")]
        *_, message, _ = create_agent(llm, make_tools(outputs)).invoke({"messages": before})["messages"]
        assert "may not read" in message.text


def test_a_lone_tool_reports_what_it_does(outputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hf_task_tool, "_INTERVAL_S", 0)

    async def slow(call: Call) -> Any:
        download = Download("fake/speaker", 4_000_000_000)
        with listed(download):
            for done in (1_200_000_000, 3_400_000_000):
                download.done = done
                for _ in range(100):  # What watches the download has its turns in the same event loop.
                    await asyncio.sleep(0)
        return EXPERTS[SPEAK]

    def agent() -> Any:
        llm = ScriptedLLM([call_of(SPEAK, text="hello"), "Done."])
        return create_agent(llm, make_tools(outputs, {**EXPERTS, SPEAK: slow}))

    def read(piece: Any, found: list[Any]) -> None:
        found.append((piece["state"], piece.get("model"), piece.get("done"), piece.get("total")))
        assert (piece["tool"], piece["tool_call_id"]) == (SPEAK, SPEAK)

    streamed, dispatched, model = list[Any](), list[Any](), f"fake/{SPEAK}"
    for piece in agent().stream({"messages": "Speak"}, stream_mode="custom"):
        read(piece, streamed)

    async def listen() -> None:
        async for event in agent().astream_events({"messages": "Speak"}, version="v2"):
            if event["event"] == "on_custom_event" and event["name"] == EVENT:
                read(event["data"], dispatched)

    asyncio.run(listen())
    expected = [
        ("selecting", None, None, None),
        ("running", model, None, None),
        ("downloading", "fake/speaker", 1_200_000_000, 4_000_000_000),
        ("downloading", "fake/speaker", 3_400_000_000, 4_000_000_000),
    ]
    assert streamed == dispatched == expected
