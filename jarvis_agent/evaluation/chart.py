"""A chart of one evaluation, or of several side by side: bars with their intervals, as PNG or SVG.

draw([report_of_one_planner, report_of_another], Path("planning.svg"))
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jarvis_agent.core.errors import InputError, MissingExtraError
from jarvis_agent.evaluation.jsonl import writing
from jarvis_agent.evaluation.report import Report

ENDINGS = (".png", ".svg")
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
"""Colours that colour-blind people tell apart too (Okabe and Ito 2008)."""


def check_chart(path: Path) -> None:
    """See to it that a chart can be drawn there, which takes no time and may save an evaluation.

    Raises:
        InputError: the path does not end in .png or .svg, or its folder is not there.
        MissingExtraError: matplotlib is not installed.
    """
    if path.suffix.lower() not in ENDINGS:
        raise InputError(f"a chart is a file that ends in {' or '.join(ENDINGS)}, not {path}")
    if not path.parent.is_dir() or path.is_dir():
        raise InputError(f"{path} can not be written: it is a folder, or in one that is not there")
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("a chart of an evaluation", "eval") from error


def draw(reports: Sequence[Report], path: Path) -> None:
    """Draw the figures of the reports, in percent, and write the chart.

    Raises:
        InputError: there is no report, or the chart can not be written there (see `check_chart`).
        MissingExtraError: matplotlib is not installed.
    """
    check_chart(path)
    if not reports:
        raise InputError("there is nothing to draw: no evaluation was given")
    from matplotlib.figure import Figure

    names = [figure.name for figure in reports[0].figures]
    chart = Figure(figsize=(1.5 + 1.4 * len(names), 4.2), layout="constrained")
    axes = chart.subplots()
    width = 0.8 / len(reports)
    for place, report in enumerate(reports):
        at = [n + (place - (len(reports) - 1) / 2) * width for n in range(len(names))]
        values = [100 * figure.value for figure in report.figures]
        below = [100 * (figure.value - figure.low) for figure in report.figures]
        above = [100 * (figure.high - figure.value) for figure in report.figures]
        bars = axes.bar(
            at,
            values,
            width * 0.92,
            yerr=[below, above],
            capsize=2,
            label=f"{report.name} ({report.requests} requests, {report.mode})",
            color=COLOURS[place % len(COLOURS)],
        )
        axes.bar_label(bars, fmt="%.1f", padding=2, fontsize=8 if len(reports) < 3 else 6)
    axes.set_xticks(range(len(names)), names)
    axes.set_ylim(0, 110)
    axes.set_ylabel("%")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.18), ncols=2, frameon=False, fontsize=9)
    with writing(path):
        chart.savefig(path, dpi=150)
