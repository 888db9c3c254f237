"""Reports of evaluations in a terminal: a row a figure, a column a run, intervals beside them.

console.print(scores_table(reports))
console.print(groups_table("no model", reports))      # a row a report
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from jarvis_agent.core.text import clean
from jarvis_agent.evaluation.report import Figure, Report

if TYPE_CHECKING:
    from jarvis_agent.evaluation.selection import Chosen
    from jarvis_agent.evaluation.paper import Judged
    from jarvis_agent.core.types import Task


def scores_table(
    reports: Sequence[Report], gains: Mapping[str, Sequence[Figure]] | None = None
) -> RenderableType:
    """The figures in percent with their 95 % intervals; below them, by how much the second run is better."""
    table = Table(box=None, pad_edge=False)
    table.add_column("", header_style="dim")
    for report in reports:
        table.add_column(Text(f"{clean(report.name)}\n{report.mode}"), justify="right", header_style="bold")
    for row in zip(*(report.figures for report in reports), strict=True):
        cells = [_percent(figure) if of.requests else "–" for of, figure in zip(reports, row, strict=True)]
        table.add_row(row[0].name, *cells)
    for label, cells in _facts(reports):
        table.add_row(Text(label, "dim"), *cells)
    gain_tables = [_gains(mode, figures) for mode, figures in (gains or {}).items()]
    return Group(table, *_reasons(reports), *gain_tables)


def groups_table(title: str, reports: Sequence[Report]) -> RenderableType:
    """A row a report, a column a figure; the first figure with its 95 % interval, all in percent."""
    facts = [
        Text(f"{label}: {cells[0]}", "dim") for label, cells in _facts(reports[:1]) if label != "requests"
    ]
    return Group(_rows(title, reports), *facts, *_reasons(reports[:1]))


def types_table(reports: Sequence[Report]) -> RenderableType:
    """A row for each type of plan, as in `groups_table`."""
    return _rows(f"By the type of the gold plan, {reports[0].mode}", reports)


def _rows(title: str, reports: Sequence[Report]) -> Table:
    table = Table(title=Text(clean(title), "bold"), title_justify="left", box=None, pad_edge=False)
    first, *others = (figure.name for figure in reports[0].figures)
    table.add_column("", header_style="dim")
    for name in ("requests", first, *others):
        table.add_column(name, justify="right", header_style="bold")
    for report in reports:
        headline, *rest = report.figures
        cells = [f"{100 * figure.value:.1f}" for figure in rest]
        table.add_row(clean(report.name), str(report.requests), _percent(headline), *cells)
    return table


def wrong_plans(judged: Sequence[Judged]) -> RenderableType:
    """Requests whose plan is not right, each with the plan that was expected and the one that came."""
    lines = []
    for one in judged:
        lines += [
            Text(f"{one.asked.id}: {clean(one.asked.request)}", "bold"),
            *(Text(f"  expected  {_plan(plan)}") for plan in one.asked.plans[:1]),
            *(Text(f"  or        {_plan(plan)}", "dim") for plan in one.asked.plans[1:]),
            Text(f"  got       {clean(one.error) if one.error else _plan(one.tasks)}"),
        ]
    return Group(*lines)


def wrong_choices(chosen: Sequence[Chosen]) -> RenderableType:
    """Cases whose choice is not right, each with what was expected and why, and what came."""
    lines = []
    for one in chosen:
        faults = f" (wrong: {', '.join(sorted(one.faults))})" if one.faults else ""
        lines += [
            Text(f"{one.case.id}: {clean(one.case.request)}", "bold"),
            Text(f"  expected  {', '.join(one.case.right) or 'a refusal'}. {one.case.reason}"),
            Text(f"  got       {clean(one.model or 'a refusal')}{faults}: {clean(one.reason)}"),
        ]
    return Group(*lines)


def _plan(tasks: Sequence[Task]) -> str:
    """A plan on one line: `0 image-to-text(image=a.jpg), 1 text-to-speech(text=<resource>-0)`."""
    written = [
        f"{task.id} {task.task}({', '.join(f'{name}={value}' for name, value in task.args.items())})"
        for task in tasks
    ]
    return clean(", ".join(written)) or "no task"


def _facts(reports: Sequence[Report]) -> list[tuple[str, list[str]]]:
    facts = [
        ("requests", [str(report.requests) for report in reports]),
        ("without a result", [str(report.unanswered) for report in reports]),
    ]
    if any(report.left_out for report in reports):
        facts.append(("left out", [str(report.left_out) for report in reports]))
    if any(report.failed for report in reports):
        facts.append(("failed", [str(report.failed) for report in reports]))
    if any(report.seconds for report in reports):
        facts.append(("ms a request, median and 95th percentile", [times(each.seconds) for each in reports]))
    if any(report.usage.calls for report in reports):
        facts.append(("calls of the language model", [str(report.usage.calls) for report in reports]))
        tokens = [f"{report.usage.input_tokens} in, {report.usage.output_tokens} out" for report in reports]
        facts.append(("tokens", tokens))
    return facts


def _reasons(reports: Sequence[Report]) -> list[Text]:
    """Why most of the failures were, a line a run."""
    told = {report.name: report.reason for report in reports if report.reason}
    return [Text(f"{clean(name)} failed mostly so: {clean(reason)}") for name, reason in told.items()]


def times(seconds: Sequence[float]) -> str:
    """Seconds as milliseconds, `36 / 63`; a dash if there are none."""
    return " / ".join(f"{1000 * each:.0f}" for each in seconds) or "–"


def _percent(figure: Figure) -> str:
    return f"{100 * figure.value:.1f} ({100 * figure.low:.1f} … {100 * figure.high:.1f})"


def _gains(mode: str, figures: Sequence[Figure]) -> Table:
    table = Table(title=f"The second less the first, {mode}", title_justify="left", box=None, pad_edge=False)
    for column in ("", "points", "95 % interval", ""):
        table.add_column(column, justify="left" if not column else "right", header_style="dim")
    for figure in figures:
        sure = "" if figure.low <= 0 <= figure.high else "they differ"
        interval = f"{100 * figure.low:+.1f} … {100 * figure.high:+.1f}"
        table.add_row(figure.name, f"{100 * figure.value:+.1f}", interval, sure)
    return table
