"""Lists in a terminal: task types, the models for one of them, the doctor's report.

    console.print(task_table(listing))

Texts of models and their cards are cleaned and never read as markup (see jarvis_agent.interfaces.cli.progress).
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from jarvis_agent.core.text import clean
from jarvis_agent.interfaces.cli.doctor import Report, State, size_text
from jarvis_agent.interfaces.cli.listing import ModelList, TaskList
from jarvis_agent.interfaces.cli.progress import shorten

_MARKS: dict[State, tuple[str, str]] = {
    "ok": ("✓", "green"),
    "note": ("–", "yellow"),
    "problem": ("✗", "red"),
}


def task_table(listing: TaskList) -> RenderableType:
    """The task types, a table a category."""
    tables: dict[str, Table] = {}
    for line in listing.tasks:
        table = tables.setdefault(
            line.category, _table(line.category, "task", "takes", "makes", "what it does", "here")
        )
        mark = Text("✓ " if line.available else "✗ ", "green" if line.available else "red")
        cells = (line.name, ", ".join(line.takes), ", ".join(line.makes), line.description)
        table.add_row(*map(_cell, cells), mark + _cell(line.how))
    able = sum(line.available for line in listing.tasks)
    return Group(*tables.values(), Text(f"{able} of {len(listing.tasks)} task types can be run here."))


def model_table(listing: ModelList) -> RenderableType:
    """The models for a task in the order in which they are tried, then those that are left out."""
    table = _table(
        f"Models for {listing.task}", "", "model", "source", "size", "licence", "runs on", "downloads"
    )
    for rank, line in enumerate(listing.models, start=1):
        size = size_text(line.size) if line.size is not None else "?"
        place = f"{line.runs_on or 'nothing here'}{', is here' if line.local else ''}"
        cells = (str(rank), line.id, line.source, size, line.license or "?", place, str(line.downloads or ""))
        table.add_row(*map(_cell, cells))
    shown: list[RenderableType] = [table] if listing.models else []
    if listing.rejected:
        shown.append(_rejected(listing.rejected))
    return Group(*shown, *(Text(shorten(note, 1000)) for note in listing.notes))


def _rejected(reasons: dict[str, str]) -> Table:
    table = _table("Left out", "model", "why")
    for model, reason in reasons.items():
        table.add_row(_cell(model), _cell(reason))
    return table


def report_text(report: Report) -> RenderableType:
    """The doctor's report, a line a check, with what to do below it."""
    verdict = (
        "A plain run is possible." if report.ready else "A plain run is not possible: see what is marked ✗."
    )
    return Group(*_report_lines(report), Text(verdict, "bold"))


def _report_lines(report: Report) -> Iterator[Text]:
    for check in report.checks:
        mark, style = _MARKS[check.state]
        yield Text.assemble((f"{mark} ", style), (check.name, "bold"), f": {clean(check.found)}")
        if check.advice:
            yield Text(f"    → {clean(check.advice)}", "dim")


_NAMES = {"task", "model"}
"""Columns that stay whole in a narrow terminal, since their words are to be copied."""


def _table(title: str, *columns: str) -> Table:
    table = Table(title=Text(clean(title), "bold"), title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in _NAMES, header_style="dim")
    return table


def _cell(text: str) -> Text:
    return Text(shorten(text, 300))
