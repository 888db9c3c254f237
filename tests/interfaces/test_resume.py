"""`jarvis --resume` and `--approve`: runs that are kept under a name, and plans that wait for a word."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph.checkpoint.sqlite")

import aiosqlite
from durable_agents import ONE_BY_ONE, counting_agent
from langchain_core.tools import BaseTool, tool
from rich.console import Console
from small_agents import plan
from typer.testing import CliRunner

from jarvis_agent import JarvisAgent, Settings
from jarvis_agent.interfaces.cli.app import app
from jarvis_agent.interfaces.cli import run_file
from jarvis_agent.interfaces.cli import ask as terminal
from jarvis_agent.interfaces.cli.resume import ResumableAgent
from jarvis_agent.interfaces.cli.run_file import FILE
from jarvis_agent.core.errors import ConfigError, InputError
from jarvis_agent.execution.run import Run
from jarvis_agent.testing import ScriptedLLM


def counting(calls: list[str]) -> BaseTool:
    @tool
    def count(text: str) -> str:
        """Count."""
        calls.append(text)
        return f"{text}!"

    return count


def an_agent(folder: Path, calls: list[str]) -> JarvisAgent:
    llm = ScriptedLLM({"plan": plan(("count", [], {"text": "one"})), "respond": "Done."})
    return JarvisAgent(llm, tools=[counting(calls)], settings=Settings(output_dir=folder / "out"))


async def last(events: AsyncIterator[Any]) -> Run:
    run = Run()
    async for event in events:
        run = event.run or run
    return run


async def test_a_kept_run_is_there_in_the_next_process(tmp_path: Path) -> None:
    calls: list[str] = []
    first = await last(ResumableAgent(an_agent(tmp_path, calls), "talk").events({"input": "count"}))
    assert (tmp_path / "out" / FILE).is_file()
    again = await last(ResumableAgent(an_agent(tmp_path, calls), "talk").events({"input": ""}))
    assert again == first
    assert calls == ["one"]


@pytest.mark.parametrize(("decision", "done"), [(True, ["one"]), (False, [])])
async def test_a_plan_runs_only_if_somebody_lets_it(tmp_path: Path, decision: bool, done: list[str]) -> None:
    calls: list[str] = []
    shown: list[Any] = []

    def decide(plan: dict[str, Any]) -> bool:
        shown.append(plan)
        return decision

    run = await last(ResumableAgent(an_agent(tmp_path, calls), "talk", decide).events({"input": "count"}))
    assert shown[0]["plan"][0]["task"] == "count"
    assert calls == done
    assert [result.status for result in run.results] == ["ok"] * len(done)


async def test_a_waiting_plan_does_not_run_without_being_approved(tmp_path: Path) -> None:
    calls: list[str] = []
    await leave_unfinished(tmp_path)
    with pytest.raises(ConfigError, match="--approve"):
        await last(ResumableAgent(an_agent(tmp_path, calls), "talk").events({"input": ""}))
    assert calls == []
    await last(ResumableAgent(an_agent(tmp_path, calls), "talk", lambda plan: True).events({"input": ""}))
    assert calls == ["one"]


async def leave_unfinished(folder: Path, request: str = "count") -> None:
    """A run named talk whose plan waits."""

    def walk_away(plan: dict[str, Any]) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await last(ResumableAgent(an_agent(folder, []), "talk", walk_away).events({"input": request}))


async def test_who_walks_away_is_told_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await leave_unfinished(tmp_path)
    assert "jarvis --resume talk goes on with it" in capsys.readouterr().err


async def test_who_stops_a_run_is_told_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stuck = asyncio.Event()
    agent = counting_agent(tmp_path, [], *ONE_BY_ONE, stuck=stuck)
    running = asyncio.create_task(last(ResumableAgent(agent, "talk").events({"input": "count"})))
    await stuck.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert "jarvis --resume talk goes on with it" in capsys.readouterr().err


async def test_in_a_terminal_that_is_told_above_the_board_which_is_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=200)
    monkeypatch.setattr(terminal, "make_console", lambda stderr=False: console)
    stuck = asyncio.Event()
    agent = counting_agent(tmp_path, [], *ONE_BY_ONE, stuck=stuck)
    asked = terminal._ask(ResumableAgent(agent, "talk"), {"input": "count"}, None, as_json=False)
    running = asyncio.create_task(asked)
    await stuck.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert "The run is kept: jarvis --resume talk goes on with it" in screen.getvalue()
    await terminal._ask(ResumableAgent(agent, "talk"), {"input": ""}, None, as_json=False)
    assert "Going on with the unfinished run talk." in screen.getvalue()


async def test_an_unfinished_run_goes_on_with_its_own_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[str] = []
    await leave_unfinished(tmp_path)
    again = ResumableAgent(an_agent(tmp_path, calls), "talk", lambda plan: True)
    run = await last(again.events({"input": "count", "files": []}))
    assert (calls, run.answer) == (["one"], "Done.")
    assert "Going on with the unfinished run talk" in capsys.readouterr().err


async def test_another_request_does_not_take_the_place_of_an_unfinished_one(tmp_path: Path) -> None:
    calls: list[str] = []
    await leave_unfinished(tmp_path)
    other = ResumableAgent(an_agent(tmp_path, calls), "talk", lambda plan: True)
    with pytest.raises(ConfigError, match=r'unfinished.*"count".*--resume talk.*--restart'):
        await last(other.events({"input": "count something else"}))
    assert calls == []


@pytest.mark.parametrize("request_", ["count something else", ""])
async def test_an_unfinished_run_begins_anew_if_that_is_wanted(tmp_path: Path, request_: str) -> None:
    shown: list[Any] = []

    def decide(plan: dict[str, Any]) -> bool:
        shown.append(plan["request"])
        return True

    await leave_unfinished(tmp_path)
    again = ResumableAgent(an_agent(tmp_path, []), "talk", decide, restart=True)
    assert (await last(again.events({"input": request_}))).answer == "Done."
    assert shown == [request_ or "count"]
    with pytest.raises(ConfigError, match="wants a request"):
        await last(ResumableAgent(an_agent(tmp_path, []), "talk", restart=True).events({"input": ""}))


async def test_an_error_that_leaves_a_run_unfinished_tells_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = {"input": "count", "files": [str(tmp_path / "lost.txt")]}
    with pytest.raises(InputError, match=r"lost\.txt"):
        await last(ResumableAgent(an_agent(tmp_path, []), "talk").events(lost))
    assert "jarvis --resume talk --restart begins it anew" in capsys.readouterr().err
    anew = ResumableAgent(an_agent(tmp_path, []), "talk", restart=True)
    assert (await last(anew.events({"input": "count"}))).answer == "Done."


async def states(folder: Path) -> dict[str, int]:
    """How many states the file holds, by run."""
    async with aiosqlite.connect(folder / "out" / FILE) as file:
        counted = "SELECT thread_id, count(*) FROM checkpoints GROUP BY thread_id ORDER BY thread_id"
        return dict(await file.execute_fetchall(counted))


async def test_runs_that_are_over_do_not_grow_the_file_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_file, "KEPT", 2)
    await leave_unfinished(tmp_path)
    for name in "abcda":
        await last(ResumableAgent(an_agent(tmp_path, []), name).events({"input": "count"}))
    assert await states(tmp_path) == {"a": 1, "d": 1, "talk": 1}
    calls: list[str] = []
    again = await last(ResumableAgent(an_agent(tmp_path, calls), "d").events({"input": ""}))
    assert (again.answer, calls) == ("Done.", [])
    on = await last(ResumableAgent(an_agent(tmp_path, calls), "talk", lambda plan: True).events({"input": ""}))
    assert (on.answer, calls) == ("Done.", ["one"])


async def test_a_chat_goes_on_from_its_last_state(tmp_path: Path) -> None:
    await last(ResumableAgent(an_agent(tmp_path, []), "talk").events({"input": "count the cats"}))
    second = an_agent(tmp_path, [])
    await last(ResumableAgent(second, "talk").events({"input": "and the dogs"}))
    assert "count the cats" in second.model.calls[0].prompt  # type: ignore[union-attr]


AT_WORK = """
import asyncio, sys
from jarvis_agent import Settings
from jarvis_agent.interfaces.cli.run_file import opened
from pathlib import Path
async def work():
    async with opened(Settings(output_dir=Path(sys.argv[1])), "talk"):
        print("opened", flush=True)
        sys.stdin.read()
asyncio.run(work())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no lock")
def test_two_processes_do_not_work_on_one_run(tmp_path: Path) -> None:
    command = [sys.executable, "-c", AT_WORK, str(tmp_path / "out")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "opened\n"
        with pytest.raises(ConfigError, match="another process works on the run talk"):
            asyncio.run(last(ResumableAgent(an_agent(tmp_path, []), "talk").events({"input": "count"})))
        asyncio.run(last(ResumableAgent(an_agent(tmp_path, []), "chat").events({"input": "count"})))
        other.kill()
    asyncio.run(last(ResumableAgent(an_agent(tmp_path, []), "talk").events({"input": "count"})))


async def test_a_file_that_is_no_file_of_runs_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / FILE).write_bytes(b"not a database" * 100)
    with pytest.raises(
        ConfigError, match=r"runs\.sqlite can not be read or written \(file is not a database"
    ):
        await last(ResumableAgent(an_agent(tmp_path, []), "talk").events({"input": "count"}))


async def test_who_has_no_space_left_is_told_so(tmp_path: Path) -> None:
    async def fill() -> None:
        async with run_file.opened(Settings(output_dir=tmp_path), "talk") as saver:
            await saver.conn.execute("PRAGMA max_page_count = 1")
            await saver.conn.execute("CREATE TABLE one (two)")

    with pytest.raises(ConfigError, match=r"is full\); free some space"):
        await fill()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no lock")
async def test_a_directory_in_which_nothing_can_be_written_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "out" / run_file.LOCKS).mkdir(parents=True)
    with pytest.raises(ConfigError, match="choose another directory with --out"):
        await last(ResumableAgent(an_agent(tmp_path, []), "talk").events({"input": "count"}))


async def test_a_directory_that_can_not_be_made_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(InputError, match="choose another one with --out"):
        await last(ResumableAgent(an_agent(tmp_path, []), "talk").events({"input": "count"}))


async def test_a_run_without_a_name_is_not_kept(tmp_path: Path) -> None:
    run = await last(ResumableAgent(an_agent(tmp_path, []), None, lambda plan: True).events({"input": "count"}))
    assert run.answer == "Done."
    assert not (tmp_path / "out" / FILE).exists()


async def test_a_plan_that_was_edited_badly_comes_back_with_what_is_wrong(tmp_path: Path) -> None:
    shown: list[Any] = []
    decisions = ['[{"task": "sing",\n', "yes"]

    def decide(plan: dict[str, Any]) -> str:
        shown.append(plan)
        return decisions[len(shown) - 1]

    calls: list[str] = []
    await last(ResumableAgent(an_agent(tmp_path, calls), None, decide).events({"input": "count"}))
    assert "problem" not in shown[0]
    assert shown[1]["problem"]
    assert shown[1]["given"] == decisions[0]
    assert calls == ["one"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="it wants a terminal")
def test_ctrl_c_at_the_question_ends_the_command_at_once(tmp_path: Path) -> None:
    told = in_a_terminal(tmp_path, b"\x03")
    assert "Run this plan?" in told
    assert told.rstrip().endswith("Interrupted.")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="it wants a terminal")
def test_the_question_is_not_written_over_while_it_waits(tmp_path: Path) -> None:
    told = in_a_terminal(tmp_path, b"y\n")
    asked = told.index("Run this plan?")
    assert "Planning" not in told[asked : told.index("y\r\n", asked)]
    assert "Done." in told


ASKING = """
import sys
sys.path.insert(0, {tests!r})
from contextlib import suppress
from pathlib import Path
from test_kept import an_agent
from jarvis_agent.interfaces.cli import terminal
from jarvis_agent.interfaces.cli.resume import KeptAgent, ask_for_approval
agent = ResumableAgent(an_agent(Path("."), []), None, ask_for_approval)
with suppress(KeyboardInterrupt):
    terminal.one_shot(agent, {{"input": "count"}}, as_json=False)
"""


TERMINAL = """
import pty, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
pty.spawn(sys.argv[1:])
"""


def in_a_terminal(folder: Path, keys: bytes) -> str:
    """What `--approve` shows in a terminal in which these keys are pressed at the question."""
    # A process of its own makes the terminal: to fork this one, which has threads, could lock up.
    code = ASKING.format(tests=str(Path(__file__).parents[1]))
    command = [sys.executable, "-c", TERMINAL, sys.executable, "-c", code]
    environment = {**os.environ, "TERM": "xterm"}
    told, pressed = b"", False
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            while read := process.stdout.read(4096):
                told += read
                if b"[y]: " in told and not pressed:
                    time.sleep(0.5)  # for what might write over the question
                    process.stdin.write(keys)
                    pressed = True
        finally:
            process.kill()  # nothing of it may outlast a test whose time is over
    return told.decode(errors="replace")


def test_the_command_keeps_runs_and_goes_on_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    Image.effect_noise((32, 32), 90).convert("RGB").save("cat.jpg")
    monkeypatch.setenv("JARVIS_OFFLINE", "1")
    begun = CliRunner().invoke(app, ["Make a canny edge image of cat.jpg.", "--resume", "one", "--json"])
    assert begun.exit_code == 0, begun.output
    again = CliRunner().invoke(app, ["--resume", "one", "--json"])
    assert Run.model_validate_json(again.stdout) == Run.model_validate_json(begun.stdout)
    other = CliRunner().invoke(app, ["--resume", "two", "--out", "elsewhere"])
    assert other.exit_code == 2
    assert "no run of the name two is kept in elsewhere" in other.output
    assert "--resume two, or name its directory" in other.output


def test_to_restart_something_it_must_have_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = CliRunner().invoke(app, ["Count to ten.", "--restart"])
    assert asked.exit_code == 2
    assert "--resume NAME" in asked.output


def test_a_run_is_kept_under_a_name_that_is_one() -> None:
    asked = CliRunner().invoke(app, ["Count to ten.", "--resume", " "])
    assert asked.exit_code == 2
    assert "--resume wants a name" in asked.output


def test_approval_needs_somebody_to_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (32, 32)).save("cat.jpg")
    monkeypatch.setenv("JARVIS_OFFLINE", "1")
    asked = CliRunner().invoke(app, ["Make a canny edge image of cat.jpg.", "--approve"])
    assert asked.exit_code == 2
    assert "asks in a terminal" in asked.output
