"""Requests and chats in a terminal, with an agent that plays back runs."""

import io
import json
import re
from pathlib import Path

import pytest
from command_line import type_in
from fake_agent import CAPTION, SPEECH, FakeAgent, a_run, done, failed
from rich.console import Console

from jarvis_agent.core.errors import InputError
from jarvis_agent.core.notes import Note
from jarvis_agent.core.types import Resource, Selection, Usage
from jarvis_agent.execution.run import Run
from jarvis_agent.interfaces.cli import ask as terminal
from jarvis_agent.interfaces.common.progress import answered
from jarvis_agent.planning.plan import NO_FILE, Plan
from jarvis_agent.response.chain import template_responder
from jarvis_agent.selection.advice import NO_CANDIDATE

Captured = pytest.CaptureFixture[str]


def say(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Let `text` be what comes in through a pipe."""
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_the_answer_goes_to_stdout_and_the_progress_to_stderr(tmp_path: Path, capsys: Captured) -> None:
    agent = FakeAgent(a_run(tmp_path / "a.wav"))
    assert terminal.one_shot(agent, {"input": "x"}, as_json=False)
    out, err = capsys.readouterr()
    assert out == "A cat. I spoke it.\n"
    assert "1 text-to-speech: running" in err
    assert "A cat" not in err
    assert agent.closed


def test_notes_reasons_and_errors_are_in_the_language_of_the_request(
    capsys: Captured, screen: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_out = Note("no task uses {file}", file="“b.jpg”")
    chosen = Note("it is the first of {number} candidates", number=2)
    helps = Note("a model to start with is {model}", model="a/b")
    error = Note(NO_CANDIDATE, task="x", reasons=[Note("no source lists any")], advice=helps)
    run = Run(
        plan=Plan(tasks=[CAPTION, SPEECH], notes=[left_out]),
        results=[
            done(CAPTION).model_copy(update={"selection": Selection(model="org/model", reason=chosen)}),
            failed(SPEECH, error),
        ],
    )
    in_chinese = (
        "没有任务用到“b.jpg”", "它是 2 个候选模型中的第一个",
        "这里没有模型能做 x（没有来源列出任何模型）。可以这样解决：可以先试 a/b",
    )  # fmt: skip
    terminal.one_shot(FakeAgent(run), {"input": "描述 cat.jpg"}, as_json=False)
    drawn = re.sub(r"\s+", "", screen.getvalue())
    assert all(re.sub(r"\s+", "", words) in drawn for words in in_chinese)
    monkeypatch.undo()
    for request, expected in {"描述 cat.jpg": in_chinese, "x": (left_out, chosen, error)}.items():
        terminal.one_shot(FakeAgent(run), {"input": request}, as_json=False)
        err = capsys.readouterr().err
        assert all(words in err for words in expected), err
        terminal.plan_only(FakeAgent(run), {"input": request}, as_json=False)
        assert f"note: {expected[0]}" in capsys.readouterr().out


def test_json_is_the_run_and_nothing_else(tmp_path: Path, capsys: Captured) -> None:
    run = a_run(tmp_path / "a.wav")
    terminal.one_shot(FakeAgent(run), {"input": "x"}, as_json=True)
    out, err = capsys.readouterr()
    assert Run.model_validate_json(out) == run
    assert "0 image-to-text: ok" in err


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a terminal of 40 columns is sent."""
    sent = io.StringIO()
    console = Console(file=sent, force_terminal=True, width=40, markup=False, color_system=None)
    monkeypatch.setattr(terminal, "make_console", lambda stderr=False: console)
    return sent


def test_in_a_terminal_the_plan_is_a_tree_before_the_answer(tmp_path: Path, screen: io.StringIO) -> None:
    terminal.one_shot(FakeAgent(a_run(tmp_path / "a.wav")), {"input": "x"}, as_json=False)
    tree, _, answer = screen.getvalue().rpartition("Plan: 2 tasks")[2].partition("\x1b[?25h\n")
    for part in ("✓ 0 image-to-text", "✓ 1 text-to-speech", "org/model: most downloaded"):
        assert part in tree
    assert "A cat. I spoke it." in answer


def printed(screen: io.StringIO, run: Run) -> list[str]:
    """The rows of an answer in a terminal."""
    terminal.one_shot(FakeAgent(run), {"input": "x"}, as_json=False)
    rows = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue().rpartition("\x1b[?25l")[2]).splitlines()
    return [row.strip() for row in rows if row.strip()]


def test_a_terminal_shows_markdown_with_its_line_breaks(screen: io.StringIO) -> None:
    answer = (
        "There is **one cat** in `a.jpg`.\nThe end. 这张图片里有一只猫。\n\n1. It sleeps.\n\n2. It eats.\n\n"
        "```\na = 1\n\nb = 2\n```\n\n![edges](outputs/edges.png) <b>"
    )
    assert printed(screen, Run(answer=answer)) == [
        *("There is one cat in a.jpg.", "The end. 这张图片里有一只猫。", "1 It sleeps.", "2 It eats."),
        *("a = 1", "b = 2", "edges (outputs/edges.png) <b>"),
    ]


def test_a_text_that_was_read_is_shown_as_it_is_written(screen: io.StringIO) -> None:
    read = "#include <a_b_c.h> // **not bold**"
    results = [done(CAPTION, Resource(kind="text", text=read))]
    run = Run(answer=f"The text reads:\n{read}", plan=Plan(tasks=[CAPTION]), results=results)
    assert printed(screen, run)[-2:] == ["The text reads:", read]


def test_paths_below_the_working_directory_are_relative(home: Path, capsys: Captured) -> None:
    made = home / "outputs" / "a.wav"
    answer = f"It is in {made}, not in /other{made}."
    terminal.one_shot(FakeAgent(a_run(made, answer)), {"input": "x"}, as_json=False)
    assert capsys.readouterr().out == f"It is in outputs/a.wav, not in /other{made}.\n"


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (Run(plan=Plan(tasks=[CAPTION]), results=[failed(CAPTION, "no")], answer="I could not."), False),
        (Run(plan=Plan(tasks=[CAPTION]), answer="Sorry", usage={"respond": Usage(calls=1)}), False),
        (Run(), False),
        (Run(answer="Hello!", usage={"chat": Usage(calls=1)}), True),
        (Run(answer="Paris.", plan=Plan(notes=["a note"]), usage={"chat": Usage(output_tokens=2)}), True),
        (Run(answer="Sorry.", plan=Plan(notes=["planning failed"]), usage={"chat": Usage(calls=1)}), False),
        (Run(answer="Sorry.", plan=Plan(notes=[NO_FILE]), usage={"chat": Usage(output_tokens=2)}), False),
        (Run(plan=Plan(tasks=[CAPTION, SPEECH]), results=[done(CAPTION), failed(SPEECH, "no")]), True),
    ],
)
def test_a_run_counts_as_answered_if_something_was_done(run: Run, expected: bool) -> None:
    assert terminal.one_shot(FakeAgent(run), {"input": "x"}, as_json=True) is expected


@pytest.mark.parametrize("request_text", ["Sing to me.", "Chante pour moi, s'il te plaît.", "给我唱歌。"])
async def test_a_report_that_nothing_was_understood_is_no_answer(request_text: str) -> None:
    plan = Plan(notes=["no task fits"])
    report = await template_responder().ainvoke({"input": request_text, "plan": plan})
    assert "no task fits" in report
    assert not answered(Run(answer=report, plan=plan))


def test_a_chat_reads_one_request_a_line_from_a_pipe(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(monkeypatch, "what is in cat.jpg?\n\nspeak it\n")
    agent = FakeAgent(a_run(tmp_path / "a.wav"), a_run(tmp_path / "b.wav", "Again."))
    assert terminal.chat(agent)
    out = capsys.readouterr().out
    assert [request["input"] for request, _ in agent.requests] == ["what is in cat.jpg?", "speak it"]
    threads = {config["configurable"]["thread_id"] for _, config in agent.requests}
    assert len(threads) == 1
    assert out.index("A cat.") < out.index("Again.")
    assert agent.closed


def test_ctrl_c_stops_the_request_and_not_the_chat(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_in(monkeypatch, "first", KeyboardInterrupt, "second")
    agent = FakeAgent(a_run(tmp_path / "a.wav"), a_run(tmp_path / "b.wav", "Done."), interrupt_after=8)
    assert terminal.chat(agent)
    out, err = capsys.readouterr()
    assert [request["input"] for request, _ in agent.requests] == ["first", "second"]
    assert out.startswith("What can be seen in cat.jpg: a cat\n")
    assert "Done." in out
    assert "Ctrl-D or /quit ends the chat." in err


@pytest.mark.parametrize("as_json", [False, True])
def test_control_characters_reach_no_terminal(tmp_path: Path, capsys: Captured, as_json: bool) -> None:
    answer = "red \x1b[31mcat\x1b]0;x\x07 \x9b2J [bold]kept[/bold] :cat:"
    run = a_run(tmp_path / "a\x1b[31m\x07.wav", answer=answer)
    terminal.one_shot(FakeAgent(run), {"input": "x"}, as_json=as_json)
    out = capsys.readouterr().out
    assert not {"\x1b", "\x07", "\x9b"} & set(out)
    assert "[bold]kept[/bold] :cat:" in out
    if as_json:
        assert json.loads(out)["answer"] == answer


@pytest.mark.parametrize(("after", "results"), [(1, 0), (8, 1)])
def test_an_interrupted_run_prints_finished_results(
    tmp_path: Path, capsys: Captured, after: int, results: int
) -> None:
    for as_json in (False, True):
        agent = FakeAgent(a_run(tmp_path / "a.wav"), interrupt_after=after)
        with pytest.raises(KeyboardInterrupt):
            terminal.one_shot(agent, {"input": "x"}, as_json=as_json)
        out, err = capsys.readouterr()
        assert agent.closed
        if as_json:
            assert len(Run.model_validate_json(out).results) == results
        else:
            assert (out, "Interrupted." in err) == ("What can be seen in cat.jpg: a cat\n" * results, True)


@pytest.mark.parametrize("word", ["/quit", "quit", "/exit", "exit"])
def test_a_chat_can_be_quit(capsys: Captured, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    say(monkeypatch, f"{word}\nnever asked\n")
    agent = FakeAgent(model_name="gpt-x")
    assert terminal.chat(agent)
    assert "gpt-x" in capsys.readouterr().err
    assert agent.requests == []


def test_a_chat_survives_an_error(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, "look at nope.jpg\n/tmp/cat.jpg\n")
    agent = FakeAgent(InputError("nope.jpg does not exist"), a_run(tmp_path / "a.wav"))
    assert terminal.chat(agent)
    out, err = capsys.readouterr()
    assert "nope.jpg does not exist\n" in err
    assert "A cat." in out
    say(monkeypatch, "look at nope.jpg\n")
    assert not terminal.chat(FakeAgent(InputError("nope.jpg does not exist"))), "nothing was answered"


def test_the_agent_is_closed_after_errors_and_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = FakeAgent(InputError("the request is empty"))
    with pytest.raises(InputError):
        terminal.one_shot(agent, {"input": ""}, as_json=False)
    assert agent.closed
    say(monkeypatch, "first\nsecond\n")
    agent = FakeAgent(a_run(tmp_path / "a.wav"), interrupt_after=1)
    with pytest.raises(KeyboardInterrupt):
        terminal.chat(agent)
    assert (len(agent.requests), agent.closed) == (1, True)
