"""A visitor of the web page: choices, files, and what the chat remembers."""

import asyncio
import shutil
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_models import ScriptedLocal
from markdown_it import MarkdownIt
from PIL import Image
from served import endless_expert
from small_agents import picture, plan, small_agent

from jarvis_agent import Settings
from jarvis_agent.backends.base import Call
from jarvis_agent.backends.jobs import Generation, listed
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.errors import CLONE, InputError, install_command
from jarvis_agent.core.settings import Policy
from jarvis_agent.interfaces.common.locks import hold
from jarvis_agent.interfaces.common.progress import RunProgress
from jarvis_agent.interfaces.ui.views import TEXTS, ChatView, escape, texts_for
from jarvis_agent.interfaces.ui.visitor import CHAT_FILE, PageTurn, Visitor, models_of
from jarvis_agent.selection.store import open_store
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate


def visiting(home: Path, folder: str = "", **options: Any) -> tuple[Visitor, ScriptedLLM, FakeBackend]:
    """A visitor of the page of a small agent, with its language model and its backend."""
    agent, llm, backend = small_agent(settings={"output_dir": home / "outputs"}, **options)
    return Visitor([agent], home / "outputs" / folder), llm, backend


async def ask(visitor: Visitor, request: str, files: list[Path], **choices: Any) -> PageTurn:
    turn = visitor.ask(request, files, **choices)
    async for _ in visitor.run():
        pass
    return turn


async def decide(visitor: Visitor, decision: Any) -> None:
    async for _ in visitor.run(decision):
        pass


async def test_the_policy_is_that_of_the_run(home: Path) -> None:
    here = FakeBackend({"image-to-text": "a cat"}, "here")
    there = FakeBackend({"image-to-text": "a cat"}, "there", local=False)
    model = fake_candidate("image-to-text", backend=None, providers=("fake",))
    settings = Settings(output_dir=home / "outputs")
    agent, _, _ = small_agent(sources=[FakeSource([model])], backends=[here, there], settings=settings)
    visitor = Visitor([agent], home / "outputs")
    used: list[tuple[int, int]] = []
    policies: tuple[Policy | None, ...] = ("hosted-only", "local-only", None)
    for policy in policies:
        await ask(visitor, "What is in a.jpg?", [home / "a.jpg"], policy=policy)
        used.append((len(here.calls), len(there.calls)))
    assert used == [(0, 1), (1, 1), (2, 1)]
    assert agent.settings.policy == "local-first"


async def test_a_thumb_rates_what_models_made_in_its_turn(home: Path, selection_file: Path) -> None:
    settings = {"output_dir": home / "outputs"}
    agent, *_ = small_agent(settings=settings)
    visitor = Visitor([agent], home / "outputs" / "0a1b-2c3d")
    for request in ("What is this?", "And now?"):
        (await ask(visitor, request, [home / "a.jpg"])).messages = ["asked", "progress", "answer"]
    for message, good in ((2, False), (2, True), (4, True), (5, False)):
        visitor.rate(message, good)
    known = open_store().experience("image-to-text")["image-to-text/only"]
    assert (known.good, known.bad) == (1, 1)
    owners = sqlite3.connect(selection_file).execute("SELECT DISTINCT owner FROM rated_results").fetchall()
    assert owners == [("0a1b",)]
    visitor.turns[-1].progress = RunProgress()
    with pytest.raises(InputError, match="no model"):
        visitor.rate(5, True)


async def test_a_chat_remembers_runs_with_and_without_approval(home: Path) -> None:
    visitor, llm, _ = visiting(home)
    await ask(visitor, "What is this?", [home / "a.jpg"])
    turn = await ask(visitor, "And what is its colour?", [], ask_first=True)
    assert turn.proposal is not None
    assert not turn.is_over
    await decide(visitor, True)
    assert turn.is_answered
    await ask(visitor, "Describe it again.", [])
    prompts = [call.prompt for call in llm.calls if call.stage == "plan"]
    assert "What is this?" in prompts[1]
    assert "What is this?" in prompts[2]
    assert "And what is its colour?" in prompts[2]


async def test_a_changed_plan_that_cannot_run_is_shown_again_with_the_problem(home: Path) -> None:
    visitor, _, backend = visiting(home)
    turn = await ask(visitor, "What is this?", [home / "a.jpg"], ask_first=True)
    await decide(visitor, [{"task": "make-tea", "id": 0, "dep": [-1], "args": {}}])
    assert turn.proposal is not None
    assert "make-tea" in turn.proposal["problem"]
    assert backend.calls == []
    await decide(visitor, False)
    assert turn.is_answered
    assert turn.proposal is None


async def test_a_new_request_ends_the_plan_that_waits(home: Path) -> None:
    visitor, _, backend = visiting(home)
    turn = await ask(visitor, "What is this?", [home / "a.jpg"], ask_first=True)
    visitor.ask("Something else", [])
    assert turn.is_stopped
    assert turn.proposal is None
    assert visitor.running is visitor.turns[1]
    assert backend.calls == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("change <resource>-0", "change &lt;resource>-0"),
        ("**bold** & <img src=x>", "**bold** &amp; &lt;img src=x>"),
        ("> quoted", "> quoted"),
        ("`<a>` and <b>", "`<a>` and &lt;b>"),
        ("```html\n<p>\n```\n<i>", "```html\n<p>\n```\n&lt;i>"),
        ("```\n<p>", "```\n<p>"),
        (r"It reads: \#include \<iostream\> <b>", r"It reads: \#include \<iostream\> &lt;b>"),
    ],
)
def test_html_in_a_text_is_shown_as_text(text: str, shown: str) -> None:
    assert escape(text) == shown


@given(
    st.lists(st.sampled_from(["`", "```", "~~~", "<b>", "<!--", "![a](b)", "\\", "\n", "> ", "- ", " ", "c"]))
)
def test_no_text_becomes_html_or_an_image(words: list[str]) -> None:
    text = escape("".join(words))
    html = MarkdownIt("commonmark", {"html": True}).render(text)
    assert html == MarkdownIt("commonmark", {"html": False}).render(text)
    assert "<img" not in html


async def test_a_chat_goes_on_from_its_files(home: Path) -> None:
    agent, llm, backend = small_agent(settings={"output_dir": home / "outputs"})
    visitor = Visitor([agent], home / "outputs")
    before = await ask(visitor, "What is this?", [home / "a.jpg"])
    backend.results["image-to-text"] = ValueError("broken")
    await ask(visitor, "And now?", [])
    again = Visitor([agent], home / "outputs")
    first, second = again.turns
    assert first.run == before.run
    assert {row.state for row in first.progress.tasks.values()} == {"ok"}
    assert {row.state for row in second.progress.tasks.values()} == {"failed"}
    assert all(turn.is_over for turn in again.turns)
    await ask(again, "Describe it again.", [])
    assert "What is this?" in [call.prompt for call in llm.calls if call.stage == "plan"][-1]


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85", "\x0b\x1c", "\r\n"])
async def test_a_chat_with_any_line_break_is_opened_again(home: Path, mark: str) -> None:
    agent, _, _ = small_agent(settings={"output_dir": home / "outputs"})
    for request in (f"What{mark}is this?", "And now?"):
        await ask(Visitor([agent], home / "outputs"), request, [home / "a.jpg"])
    turns = Visitor([agent], home / "outputs").turns
    assert [turn.request for turn in turns] == [f"What{mark}is this?", "And now?"]


@pytest.mark.parametrize("spoilt", [b"{}", b"not JSON", b"\xff\xfe", b'{"request": "cut o'])
async def test_a_turn_that_cannot_be_read_is_left_out_alone(home: Path, spoilt: bytes) -> None:
    agent, _, _ = small_agent(settings={"output_dir": home / "outputs"})
    for request in ("What is this?", "And now?"):
        await ask(Visitor([agent], home / "outputs"), request, [home / "a.jpg"])
    first, last = (home / "outputs" / CHAT_FILE).read_bytes().split(b"\n")
    (home / "outputs" / CHAT_FILE).write_bytes(b"\n".join([first, spoilt, last]))
    turns = Visitor([agent], home / "outputs").turns
    assert [turn.request for turn in turns] == ["What is this?", "And now?"]


async def test_a_deleted_chat_is_not_stored_by_a_decision_in_another_tab(home: Path) -> None:
    visitor, _, _ = visiting(home, folder="chat")
    await ask(visitor, "What is this?", [home / "a.jpg"], ask_first=True)
    shutil.rmtree(visitor.directory)
    await decide(visitor, False)
    assert not (visitor.directory / CHAT_FILE).exists()


async def test_a_chat_that_another_process_works_on_does_not_run(home: Path) -> None:
    visitor, _, backend = visiting(home)
    await ask(visitor, "What is this?", [home / "a.jpg"])
    stored = (home / "outputs" / CHAT_FILE).read_bytes()
    backend.calls.clear()
    async with hold(home / "outputs" / "chat.lock"):
        turn = await ask(visitor, "And now?", [home / "a.jpg"])
    assert "another process works on this chat" in str(turn.trouble)
    assert (backend.calls, (home / "outputs" / CHAT_FILE).read_bytes()) == ([], stored)
    assert (await ask(visitor, "And now?", [])).is_answered


async def test_a_request_that_is_asked_again_takes_the_place_of_what_followed(home: Path) -> None:
    visitor, llm, _ = visiting(home)
    for request in ("What is this?", "And its colour?", "And its size?"):
        turn = await ask(visitor, request, [home / "a.jpg"])
        turn.messages = ["the request", "its answer"]
    dropped = visitor.rewind(3)
    assert dropped.request == "And its colour?"
    turn = await ask(visitor, "And its shape?", dropped.files)
    assert turn.files == dropped.files
    assert [turn.request for turn in visitor.turns] == ["What is this?", "And its shape?"]
    prompt = [call.prompt for call in llm.calls if call.stage == "plan"][-1]
    assert "What is this?" in prompt
    assert "And its colour?" not in prompt


async def test_a_task_is_run_again_with_another_model_on_the_results_of_the_others(home: Path) -> None:
    tasks = plan(
        ("image-to-text", [], {"image": "a.jpg"}),
        ("text-to-speech", [0], {"text": "<resource>-0"}),
        ("canny-control", [], {"image": "a.jpg"}),
        ("image-to-text", [2], {"image": "<resource>-2"}),
    )
    settings = {"output_dir": home / "outputs"}
    agent, llm, backend = small_agent(
        tasks, {"canny-control": Image.new("L", (8, 8))}, models=("one", "two"), settings=settings
    )
    visitor = Visitor([agent], home / "outputs")
    turn = await ask(visitor, "What is this?", [home / "a.jpg"])
    assert turn.is_answered
    _, other = models_of(turn.progress.tasks[1])
    outline = turn.run.results[2].paths()
    llm.calls.clear()
    backend.calls.clear()

    visitor.repeat(0, 1, other)
    async for _ in visitor.run():
        pass
    assert [(call.candidate.id, call.inputs["text"]) for call in backend.calls] == [(other, "a cat on a mat")]
    assert "plan" not in [call.stage for call in llm.calls]
    backend.calls.clear()

    visitor.repeat(0, 3, models_of(turn.progress.tasks[3])[1])
    async for _ in visitor.run():
        pass
    assert [call.inputs["image"].path for call in backend.calls] == list(outline)
    with pytest.raises(InputError):
        visitor.repeat(0, 1, "evil/model")


async def test_a_turn_runs_once_when_two_tabs_run_it(home: Path) -> None:
    go = asyncio.Event()

    async def describe(call: Call) -> Any:
        await go.wait()
        return "a cat"

    experts = {"image-to-text": describe}
    visitor, _, backend = visiting(home, experts=experts)
    turn = visitor.ask("What is this?", [home / "a.jpg"])
    async for _ in visitor.run():
        async for _ in visitor.run():
            go.set()
        go.set()
    assert turn.is_answered
    assert len(backend.calls) == 1


async def test_a_run_stops_when_its_chat_goes_on_in_another_session(home: Path) -> None:
    never, entered, stopped = endless_expert()
    visitor, _, _ = visiting(home, experts={"image-to-text": never})
    turn = visitor.ask("What is this?", [home / "a.jpg"])
    async with asyncio.timeout(120):
        async for _ in visitor.run():  # each second, if nothing happens
            if entered.is_set():
                visitor.resume()
        assert await asyncio.to_thread(stopped.wait, 60)
    assert turn.is_stopped
    assert not turn.is_answered


async def test_what_a_model_writes_is_shown_to_its_own_visitor_alone(home: Path) -> None:
    entered, go = threading.Event(), threading.Event()

    def write(call: Call) -> str:
        with listed(Generation("org/writer", 9)):
            entered.set()
            assert go.wait(120)
        return "a cat"

    backend = ScriptedLocal(lambda _: write, ModelPool(10**9))
    source, settings = FakeSource([fake_candidate("image-to-text")]), Settings(output_dir=home / "outputs")
    agent, _, _ = small_agent(sources=[source], backends=[backend], settings=settings)
    ada, bob = (Visitor([agent], home / "outputs" / name) for name in ("ada", "bob"))
    first = asyncio.create_task(ask(ada, "What is in a.jpg?", [home / "a.jpg"]))
    assert await asyncio.to_thread(entered.wait, 120)
    waiting = bob.ask("What is in a.jpg?", [home / "a.jpg"])
    async for _ in bob.run():
        if any(row.state == "running" for row in waiting.progress.tasks.values()):
            shown = [str(activity) for activity in ada.turns[0].progress.activities]
            assert shown == ["org/writer: 0 of at most 9 tokens written"]
            assert waiting.progress.activities == []
            go.set()
    assert go.is_set()
    turn = await first
    assert turn.progress.activities == []
    await agent.aclose()
    await backend.pool.close()


async def test_files_with_one_name_are_kept_apart_and_the_same_file_is_kept_once(home: Path) -> None:
    visitor, _, _ = visiting(home)
    (home / "more").mkdir()
    other = picture(home / "more" / "a.jpg", "blue")
    kept = [visitor.ask("Look", [file]).files[0].name for file in (home / "a.jpg", other, other)]
    assert kept == ["a.jpg", "a-2.jpg", "a-2.jpg"]


async def test_a_picture_that_browsers_do_not_show_is_a_file_with_its_name(home: Path) -> None:
    visitor, _, _ = visiting(home)
    visitor.ask("Look", [home / "a.jpg", picture(home / "scan.tif")])
    jpeg, scan, _ = ChatView(visitor, texts_for("en"), str).messages()[0]["content"]
    assert (jpeg["file"]["mime_type"], scan["file"]["mime_type"]) == ("image/jpeg", None)
    assert scan["file"]["orig_name"] == "scan.tif"


def test_a_visitor_sees_names_in_place_of_paths(home: Path) -> None:
    visitor, _, _ = visiting(home)
    run = visitor.directory / "runs" / "20260102-030405-0123456789abcdef"
    said = f"{run / '0-canny.png'} from {visitor.directory / 'uploads' / 'cat.jpg'}"
    assert visitor.clean(said) == "0-canny.png from cat.jpg"
    assert str(CLONE) not in visitor.clean(install_command("starter"))


def test_the_languages_have_the_same_texts() -> None:
    assert TEXTS["en"].keys() == TEXTS["zh-CN"].keys()
    assert texts_for("zh-TW,zh;q=0.9")("settings") == "设置"
    assert texts_for("de,zh;q=0.5")("settings") == "Settings"
