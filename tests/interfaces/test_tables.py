"""Lists for a terminal: everything that matters is on them, and nothing in them is markup."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType

from jarvis_agent.interfaces.cli.doctor import Check, Report, report_text
from jarvis_agent.interfaces.cli.listing import (
    ModelLine,
    ModelList,
    TaskLine,
    TaskList,
    model_table,
    task_table,
)

EVIL = "[red]x[/red]\x1b[2J\x07"


def drawn(what: RenderableType, width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width, markup=False, color_system=None)
    console.print(what)
    return console.file.getvalue()  # type: ignore[attr-defined]


def task_line(name: str, category: str, *, available: bool, how: str) -> TaskLine:
    return TaskLine(
        name=name,
        category=category,
        takes=["text", "[tgt_lang]"],
        makes=["text"],
        description="Do it.",
        available=available,
        how=how,
    )


def test_tasks_stand_below_their_category_with_what_runs_them() -> None:
    shown = drawn(
        task_table(
            TaskList(
                tasks=[
                    task_line("translation", "text", available=True, how="org/mt (cache)"),
                    task_line("text-to-video", "vision", available=False, how='needs the extra "local"'),
                ]
            )
        )
    )
    first, second = shown.index("translation"), shown.index("text-to-video")
    assert shown.index("text") < first < shown.index("vision") < second
    assert "✓ org/mt (cache)" in shown
    assert '✗ needs the extra "local"' in shown
    assert "text, [tgt_lang]" in shown
    assert "1 of 2 task types can be run here." in shown


def test_in_a_narrow_terminal_names_can_still_be_copied() -> None:
    task, model = "unconditional-image-generation", "sentence-transformers/all-MiniLM-L6-v2"
    tasks = TaskList(tasks=[task_line(task, "vision", available=True, how=model)])
    models = ModelList(task=task, models=[model_line(model, 1)], rejected={f"{model}-qdrant": "it is gated"})
    assert task in drawn(task_table(tasks), width=72)
    assert model in drawn(model_table(models), width=72)
    assert f"{model}-qdrant" in drawn(model_table(models), width=72)


def model_line(name: str, size: int | None) -> ModelLine:
    return ModelLine(
        id=name,
        source="hub",
        size=size,
        downloads=1200,
        license="mit",
        local=False,
        runs_on="transformers",
    )


def test_models_are_numbered_and_the_rejected_follow_with_their_reasons() -> None:
    listing = ModelList(
        task="translation",
        models=[model_line("org/first", 1_500_000_000), model_line("org/second", None)],
        rejected={"org/third": "it is gated"},
        notes=["the Hub did not answer"],
    )
    lines = drawn(model_table(listing)).splitlines()
    assert "1" in lines[2]
    assert "org/first" in lines[2]
    assert "1.5 GB" in lines[2]
    assert "?" in lines[3]
    assert any("org/third" in line and "it is gated" in line for line in lines[4:])
    assert lines[-1] == "the Hub did not answer"


def test_the_report_marks_each_check_and_gives_its_advice() -> None:
    report = Report(
        ready=False,
        checks=[
            Check(name="Python", state="ok", found="3.11"),
            Check(name="token", state="note", found="none", advice="set HF_TOKEN"),
            Check(name="experts", state="problem", found="none", advice="install some"),
        ],
    )
    lines = drawn(report_text(report)).splitlines()
    assert lines == [
        "✓ Python: 3.11",
        "– token: none",
        "    → set HF_TOKEN",
        "✗ experts: none",
        "    → install some",
        "Requests cannot be run: see the checks marked ✗.",
    ]


def test_no_list_obeys_markup_or_control_characters() -> None:
    shown = [
        drawn(task_table(TaskList(tasks=[task_line(EVIL, "text", available=True, how=EVIL)]))),
        drawn(
            model_table(
                ModelList(task=EVIL, models=[model_line(EVIL, 1)], rejected={EVIL: EVIL}, notes=[EVIL])
            )
        ),
        drawn(report_text(Report(ready=True, checks=[Check(name="x", state="ok", found=EVIL, advice=EVIL)]))),
    ]
    for text in shown:
        assert "[red]x[/red]" in text
        assert not {"\x1b", "\x07"} & set(text)
