"""Reports of evaluations in a terminal: a row a figure, a column a run, intervals beside them.

console.print(scores_table(reports))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from jarvis_agent.console.show import clean
from jarvis_agent.eval.report import Figure, Report


def scores_table(
    reports: Sequence[Report], gains: Mapping[str, Sequence[Figure]] | None = None
) -> RenderableType:
    """The figures in percent with their 95 % intervals; below them, by how much the second run is better."""
    table = Table(box=None, pad_edge=False)
    table.add_column("", header_style="dim")
    for report in reports:
        table.add_column(f"{clean(report.name)}\n{report.mode}", justify="right", header_style="bold")
    for row in zip(*(report.figures for report in reports), strict=True):
        table.add_row(row[0].name, *map(_percent, row))
    for label, cells in _facts(reports):
        table.add_row(Text(label, "dim"), *cells)
    return Group(table, *(_gains(mode, figures) for mode, figures in (gains or {}).items()))


def _facts(reports: Sequence[Report]) -> list[tuple[str, list[str]]]:
    facts = [
        ("requests", [str(report.requests) for report in reports]),
        ("without a plan", [str(report.unanswered) for report in reports]),
    ]
    if any(report.seconds for report in reports):
        facts.append(("ms a request, median and 95th percentile", [_times(report) for report in reports]))
    if any(report.usage.calls for report in reports):
        facts.append(("calls of the language model", [str(report.usage.calls) for report in reports]))
        tokens = [f"{report.usage.input_tokens} in, {report.usage.output_tokens} out" for report in reports]
        facts.append(("tokens", tokens))
    return facts


def _times(report: Report) -> str:
    return " / ".join(f"{1000 * seconds:.0f}" for seconds in report.seconds) or "–"


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
