"""The progress of a run: the tree, the lines, and that no text in them controls the terminal."""

import io
import json
from pathlib import Path

import pytest
from fake_agent import CAPTION, SPEECH, a_run, drawn, events_of, failed

from jarvis_agent.backends import jobs
from jarvis_agent.core.text import clean, clean_json
from jarvis_agent.core.types import Attempt, Selection, Task, TaskResult
from jarvis_agent.execution.run import Event
from jarvis_agent.interfaces.common.progress import (
    RunProgress,
    echo_json,
    format_event,
    make_console,
    plan_tree,
)
from jarvis_agent.planning.plan import Plan


def tree_after(*events: Event) -> str:
    progress = RunProgress(clock=lambda: 0.0)
    for event in events:
        progress.update(event)
    return drawn(progress)


def selected(task: Task, model: str, reason: str) -> Event:
    return Event(kind="selected", task=task, selection=Selection(model=model, reason=reason))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]52;c;ZXZpbA==\x1b\\after", "after"),
        ("\x1b]8;;http://x\nthe next line stays", "\nthe next line stays"),
        ("\x9b2Jcleared", "2Jcleared"),
        ("bell\x07, back\x08space, return\rover", "bell, backspace, returnover"),
        ("\x1bcreset", "reset"),
        ("ends with \x1b", "ends with "),
        ("fine \u202eesrever", "fine esrever"),
        ("日本語 é 🐱", "日本語 é 🐱"),
    ],
)
def test_terminal_control_sequences_are_removed(text: str, shown: str) -> None:
    assert clean(text) == shown


def test_json_stays_the_same_value_without_raw_control_characters() -> None:
    value = {"text": "a\x9b2J\x7f\x1b[2J"}
    raw = json.dumps(value, ensure_ascii=False)
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 or c == "\u202e" for c in clean_json(raw))
    assert json.loads(clean_json(raw)) == value


def test_the_tree_shows_each_state() -> None:
    assert tree_after() == "Planning …\n"
    assert tree_after(Event(kind="planned", plan=Plan(notes=["no task fits"]))) == "note: no task fits\n"
    started = [Event(kind="task", task=CAPTION), Event(kind="task", task=SPEECH)]
    assert "0 image-to-text  selecting" in tree_after(*started)
    chosen = [*started, selected(SPEECH, "org/voice", "the only one")]
    assert "1 text-to-speech  after 0  waiting" in tree_after(*chosen)
    assert "org/voice: the only one" in tree_after(*chosen)
    running = [*chosen, Event(kind="started", task=CAPTION)]
    assert "0 image-to-text  running" in tree_after(*running)
    ended = [*running, Event(kind="finished", task=CAPTION, result=failed(CAPTION, "it does not fit"))]
    assert "0 image-to-text  failed 0.5 s" in tree_after(*ended)
    assert "it does not fit" in tree_after(*ended)
    skipped = TaskResult(task=SPEECH, status="skipped", error="task 0 failed")
    assert "after 0  skipped" in tree_after(*ended, Event(kind="finished", task=SPEECH, result=skipped))


def test_a_fallback_is_named_with_the_failure() -> None:
    result = TaskResult(
        task=CAPTION,
        status="ok",
        selection=Selection(model="org/first", reason="most downloaded"),
        attempts=[
            Attempt(model="org/first", backend="b", started=0, ended=1, error="out of memory"),
            Attempt(model="org/second", backend="b", started=1, ended=2),
        ],
    )
    shown = tree_after(Event(kind="task", task=CAPTION), Event(kind="finished", task=CAPTION, result=result))
    assert "org/second, in place of org/first: most downloaded" in shown
    assert "org/first failed: out of memory" in shown


def test_the_only_model_for_a_task_needs_no_reason() -> None:
    selection = Selection(model="org/one", reason="it is the only model that can do this", chosen_by="only")
    event = Event(kind="selected", task=CAPTION, selection=selection)
    assert str(format_event(event)).endswith("chose org/one")
    assert "only model" not in tree_after(Event(kind="task", task=CAPTION), event)


def test_a_task_is_below_the_last_of_its_dependencies() -> None:
    plan = Plan(
        tasks=[
            Task(task="depth-control", id=0, args={"image": "a.jpg"}),
            Task(task="image-to-text", id=1, args={"image": "b.jpg"}),
            Task(task="depth-text-to-image", id=2, dep=[0, 1], args={"text": "<resource>-1"}),
        ],
        notes=["repaired a name"],
    )
    lines = drawn(plan_tree(plan)).splitlines()
    depth = {name: next(line.index(name) for line in lines if name in line) for name in ("0 d", "1 i", "2 d")}
    assert depth["0 d"] == depth["1 i"] < depth["2 d"]
    assert lines.index(next(x for x in lines if "1 image" in x)) + 1 == lines.index(
        next(x for x in lines if "2 depth" in x)
    )
    assert "after 0, 1" in drawn(plan_tree(plan))
    assert "note: repaired a name" in drawn(plan_tree(plan))


def test_markup_and_escapes_of_a_model_are_plain_text() -> None:
    task = Task(task="[bold]evil[/bold]", id=0, args={"text": "[red]\x1b[2Jx :smile:"})
    shown = tree_after(Event(kind="task", task=task), selected(task, "[link=x]m[/link]", "\x1b]0;t\x07why"))
    assert "[bold]evil[/bold]" in shown
    assert "[red]x :smile:" in shown
    assert "[link=x]m[/link]: why" in shown
    assert "\x1b" not in shown


def test_each_event_is_one_line(tmp_path: Path) -> None:
    texts = [format_event(event) for event in events_of(a_run(tmp_path / "a.wav"))]
    lines = [line.split("] ")[1] for line in texts if line]
    assert lines[:3] == [
        "0 image-to-text: planned, image=cat.jpg",
        "0 image-to-text: chose org/model: most downloaded",
        "1 text-to-speech: planned after 0, text=<resource>-0",
    ]
    assert "plan complete, tasks: 2" in lines
    assert "0 image-to-text: running" in lines
    assert lines[-1] == "1 text-to-speech: ok in 0.5 s by org/model"


def test_lines_report_failures_skips_and_tasks_without_arguments() -> None:
    failure = Event(kind="finished", task=CAPTION, result=failed(CAPTION, "no memory\nleft"))
    assert str(format_event(failure)).endswith("0 image-to-text: failed in 0.5 s: no memory left")
    skip = TaskResult(task=SPEECH, status="skipped", error="task 0 failed")
    skipped = format_event(Event(kind="finished", task=SPEECH, result=skip))
    assert str(skipped).endswith("1 text-to-speech: skipped, task 0 failed")
    assert format_event(Event(kind="token", text="hello")) is None
    assert str(format_event(Event(kind="task", task=Task(task="record", id=0)))).endswith("0 record: planned")


def test_a_text_that_is_being_written_shows_how_far_it_is() -> None:
    progress = RunProgress(activities=jobs.activities.get())
    with jobs.listed(jobs.Generation("org/writer", 200, done=57)):
        assert "org/writer: 57 of at most 200 tokens written" in drawn(progress)


def test_the_run_of_the_progress_is_what_is_known_so_far(tmp_path: Path) -> None:
    progress = RunProgress()
    run = a_run(tmp_path / "a.wav")
    for event in list(events_of(run))[:-1]:
        progress.update(event)
    assert progress.run == run.model_copy(update={"usage": {}, "timings": {}})


def test_a_console_that_is_no_terminal_does_not_break_lines(capsys: pytest.CaptureFixture[str]) -> None:
    make_console().print("x" * 150)
    assert capsys.readouterr().out == "x" * 150 + "\n"


@pytest.mark.parametrize("encoding", ["cp1252", "cp932", "utf-16", "ascii", "utf-8"])
def test_json_is_read_from_a_stream_of_any_encoding(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding=encoding, write_through=True))
    echo_json({"answer": "é 中 🐈 “x”"})
    assert json.loads(written.getvalue()) == {"answer": "é 中 🐈 “x”"}
