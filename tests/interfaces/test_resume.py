"""`jarvis --resume` and `--approve`: stored runs, and plans that wait for approval."""

import asyncio
import io
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph.checkpoint.sqlite")

from command_line import jarvis, type_in
from durable_agents import ONE_BY_ONE, counting_agent
from rich.console import Console

from jarvis_agent import JarvisAgent
from jarvis_agent.core.errors import ConfigError, MissingExtraError
from jarvis_agent.execution.run import Run
from jarvis_agent.interfaces.cli import ask as terminal
from jarvis_agent.interfaces.cli.ask import FOLDER, ask_for_approval, run_stored
from jarvis_agent.interfaces.common.locks import FileThreads, digest

Captured = pytest.CaptureFixture[str]


def approve(plan: dict[str, Any]) -> bool:
    return True


async def last(events: AsyncIterator[Any]) -> Run:
    run = Run()
    async for event in events:
        run = event.run or run
    return run


async def run_named(
    folder: Path,
    calls: list[str],
    request: str = "",
    name: str | None = "talk",
    decide: Callable[[dict[str, Any]], Any] | None = None,
) -> Run:
    """What `jarvis REQUEST --resume NAME` does, with a new agent as in a new process."""
    return await run_stored(counting_agent(folder, calls), {"input": request}, last, name, decide)


async def leave_unfinished(folder: Path, request: str = "count") -> None:
    """Leave a run named talk whose plan waits for approval."""

    def interrupt(plan: dict[str, Any]) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await run_named(folder, [], request, decide=interrupt)


async def interrupted(folder: Path, run: Callable[[JarvisAgent], Any]) -> None:
    """Start a run and cancel it in the middle of its second task."""
    stuck = asyncio.Event()
    running = asyncio.create_task(run(counting_agent(folder, [], *ONE_BY_ONE, stuck=stuck)))
    await stuck.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_finished_run_is_returned_without_running_again(tmp_path: Path) -> None:
    calls: list[str] = []
    first = await run_named(tmp_path, calls, "count")
    assert (tmp_path / "out" / FOLDER).is_dir()
    assert await run_named(tmp_path, calls) == first
    assert calls == ["one"]


async def test_a_waiting_plan_needs_approval_to_continue(tmp_path: Path, capsys: Captured) -> None:
    calls: list[str] = []
    await leave_unfinished(tmp_path)
    assert "jarvis --resume talk --approve continues it" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="--approve"):
        await run_named(tmp_path, calls)
    assert calls == []
    await run_named(tmp_path, calls, decide=approve)
    assert calls == ["one"]


async def test_an_unfinished_run_continues_with_its_own_request(tmp_path: Path, capsys: Captured) -> None:
    calls: list[str] = []
    await leave_unfinished(tmp_path)
    with pytest.raises(ConfigError, match=r'another request \("count"\).*--resume talk, or choose'):
        await run_named(tmp_path, calls, "count something else", decide=approve)
    assert calls == []
    run = await run_named(tmp_path, calls, "count", decide=approve)
    assert (calls, run.answer) == (["one"], "Done: one, two.")
    assert "Continuing the unfinished run talk" in capsys.readouterr().err


async def test_an_interrupted_run_says_how_it_is_continued(tmp_path: Path, capsys: Captured) -> None:
    def run(agent: JarvisAgent, request: str = "count") -> Any:
        return run_stored(agent, {"input": request}, last, "talk", None)

    await interrupted(tmp_path, run)
    assert "The run is stored: jarvis --resume talk continues it" in capsys.readouterr().err
    await run(counting_agent(tmp_path, [], *ONE_BY_ONE), "")
    assert "Continuing the unfinished run talk." in capsys.readouterr().err


def test_a_plan_that_waits_is_shown_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=200)
    monkeypatch.setattr(terminal, "make_console", lambda stderr=False: console)
    type_in(monkeypatch, "y")
    agent = counting_agent(tmp_path, [])
    assert terminal.one_shot(agent, {"input": "count"}, as_json=False, decide=ask_for_approval)
    before, _, after = screen.getvalue().partition("○ 0 count")
    assert before.count("\x1b[1A\x1b[2K") == before.count("Planning …\x1b[0m\n"), "the display is erased"
    assert "✓ 0 count" in after


async def test_a_run_is_locked_while_another_process_works_on_it(tmp_path: Path) -> None:
    async with FileThreads(tmp_path / "out" / FOLDER).open("talk"):
        with pytest.raises(ConfigError, match="another process works on the run talk"):
            await run_named(tmp_path, [], "count")
        await run_named(tmp_path, [], "count", name="chat")
    await run_named(tmp_path, [], "count")


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (Path("out", FOLDER, f"{digest('talk')}.sqlite"), "file is not a database"),
        (Path("out", FOLDER), "choose another name or --out"),
        (Path("out"), "choose another name or --out"),
    ],
    ids=["no database", "no folder", "no directory"],
)
async def test_a_store_that_cannot_be_used_is_an_error(tmp_path: Path, file: Path, said: str) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_bytes(b"not a database" * 100)
    with pytest.raises(ConfigError, match=f"talk cannot be read or written .*{said}"):
        await run_named(tmp_path, [], "count")


async def test_an_unusable_edit_is_shown_again_and_a_rejected_plan_is_not_run(tmp_path: Path) -> None:
    shown: list[Any] = []
    decisions = ['[{"task": "sing",\n', "yes"]

    def decide(plan: dict[str, Any]) -> str:
        shown.append(plan)
        return decisions[len(shown) - 1]

    calls: list[str] = []
    await run_named(tmp_path, calls, "count", name=None, decide=decide)
    assert "problem" not in shown[0]
    assert shown[0]["plan"][0]["task"] == "count"
    assert shown[1]["problem"]
    assert shown[1]["given"] == decisions[0]
    assert calls == ["one"]
    rejected = await run_named(tmp_path, calls, "count", name=None, decide=lambda plan: False)
    assert (calls, rejected.results) == (["one"], [])


async def test_a_run_is_stored_under_any_name(tmp_path: Path) -> None:
    calls: list[str] = []
    for request in ("count", ""):
        await run_named(tmp_path, calls, request, name="")
    assert calls == ["one"]


async def test_only_named_runs_need_the_checkpointer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langgraph.checkpoint.sqlite", None)
    calls: list[str] = []
    await run_named(tmp_path, calls, "count", name=None, decide=approve)
    assert calls == ["one"]
    with pytest.raises(MissingExtraError, match="--resume needs the extra"):
        await run_named(tmp_path, calls, "count")


# The question in a terminal

SHOWN = {"request": "count", "plan": [{"task": "count", "id": 0, "dep": [-1], "args": {"text": "one"}}]}


@pytest.mark.parametrize(
    ("answers", "edits", "decision"),
    [(["y"], [], "y"), ([""], [], "y"), (["no"], [], "no"), (["e"], ["[]"], "[]"), (["e", "n"], [None], "n")],
)
def test_the_plan_is_shown_and_the_answer_returned(
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
    answers: list[str],
    edits: list[str | None],
    decision: str,
) -> None:
    type_in(monkeypatch, *answers)
    opened: list[str] = []
    monkeypatch.setattr("click.edit", lambda text, extension: opened.append(text) or edits[len(opened) - 1])
    assert ask_for_approval(SHOWN) == decision
    err = capsys.readouterr().err
    assert "0 count  text=one" in err
    assert len(opened) == len(edits)
    assert all('"task": "count"' in text for text in opened)


def test_ctrl_c_at_the_question_interrupts(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    type_in(monkeypatch, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        ask_for_approval({**SHOWN, "problem": "it is \x1b[1mempty"})
    assert "That cannot be used: it is empty" in capsys.readouterr().err


# The command


def test_the_command_stores_runs_and_continues_them(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JARVIS_OFFLINE", "1")
    begun = jarvis("Make a canny edge image of a.jpg.", "--resume", "one", "--json")
    assert begun.exit_code == 0, begun.output
    again = jarvis("--resume", "one", "--json")
    assert Run.model_validate_json(again.stdout) == Run.model_validate_json(begun.stdout)
    other = jarvis("--resume", "two", "--out", "elsewhere")
    assert other.exit_code == 2
    assert "there is no run named two in elsewhere" in other.output
    assert "--resume two, or give its directory" in other.output
