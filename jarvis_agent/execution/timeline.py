"""A run as pictures: its plan as a graph, and what ran when as a Gantt chart, in SVG and as text.

    chart = run.timeline()
    print(chart.text())            # bars of letters, for a terminal or a log
    chart.svg()                    # the same for a page; in a notebook it shows itself
    plan_svg(run.plan)             # the tasks, with arrows from what each needs

Names come from models and are escaped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from jarvis_agent.core.text import clean
from jarvis_agent.core.references import refs_in
from jarvis_agent.core.types import Frozen, Status, TaskResult

if TYPE_CHECKING:
    from jarvis_agent.planning.plan import Plan
    from jarvis_agent.core.types import Task

COLOURS: Mapping[Status, str] = {"ok": "#009e73", "failed": "#d55e00", "skipped": "#999999"}
"""By how a task ended; colour-blind people tell them apart too."""

_MARKS: Mapping[Status, str] = {"ok": "✓", "failed": "✗", "skipped": "–"}
_BARS: Mapping[Status, str] = {"ok": "█", "failed": "▒", "skipped": "·"}
_ROW, _LEFT, _WIDE = 26, 240, 520
_BOX, _GAP_X, _GAP_Y = (180, 34), 56, 16


class Timeline(Frozen):
    """When each task of a run ran, in seconds since the run began."""

    results: list[TaskResult]

    @property
    def seconds(self) -> float:
        """When the last task ended."""
        return max((result.ended for result in self.results), default=0.0)

    def text(self, width: int = 60) -> str:
        """One line a task: a bar of `width` letters for the whole run, its seconds, and its model."""
        if not self.results:
            return "No task was run."
        labels = [_label(result) for result in self.results]
        widest = max(map(len, labels))
        lines = [
            f"{label:<{widest}} |{self._bar(result, width)}| {_span(result)}"
            for label, result in zip(labels, self.results, strict=True)
        ]
        return "\n".join([*lines, f"{'':<{widest}}  0 s{f'{self.seconds:.1f} s'.rjust(width - 3)}"])

    def _bar(self, result: TaskResult, width: int) -> str:
        whole = self.seconds or 1.0
        start = min(int(result.started / whole * width), width - 1)
        length = max(1, round((result.ended - result.started) / whole * width))
        return f"{' ' * start}{_BARS[result.status] * length}"[:width].ljust(width)

    def svg(self) -> str:
        """The chart as one SVG element, a row a task, with a scale in seconds below."""
        height = _ROW * len(self.results) + 34
        return "".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDE + 90}" height="{height}" '
                f'font-family="sans-serif" font-size="12" style="background:white">',
                *self._scale(height),
                *(self._row(number, result) for number, result in enumerate(self.results)),
                "</svg>",
            ]
        )

    def _row(self, number: int, result: TaskResult) -> str:
        top, whole = number * _ROW + 6, self.seconds or 1.0
        start = _LEFT + result.started / whole * _WIDE
        length = max((result.ended - result.started) / whole * _WIDE, 2.0)
        told = escape(clean(f"{_span(result)}{f': {result.error}' if result.error else ''}"))
        label = escape(_short(_label(result), 38))
        return (
            f'<text x="{_LEFT - 8}" y="{top + 13}" text-anchor="end">{label}</text>'
            f'<rect x="{start:.1f}" y="{top}" width="{length:.1f}" height="{_ROW - 8}" rx="2" '
            f'fill="{COLOURS[result.status]}"><title>{told}</title></rect>'
            f'<text x="{start + length + 5:.1f}" y="{top + 13}" fill="#555">'
            f"{result.ended - result.started:.1f} s</text>"
        )

    def _scale(self, height: int) -> Iterator[str]:
        for part in range(5):
            x = _LEFT + part / 4 * _WIDE
            yield (
                f'<line x1="{x}" y1="0" x2="{x}" y2="{height - 24}" stroke="#ddd"/>'
                f'<text x="{x}" y="{height - 8}" text-anchor="middle" fill="#555">'
                f"{self.seconds * part / 4:.1f} s</text>"
            )

    def _repr_html_(self) -> str:
        return self.svg() if self.results else "<p>No task was run.</p>"


def plan_svg(plan: Plan, results: Sequence[TaskResult] = ()) -> str:
    """The plan as one SVG element: tasks in columns by what they wait for, coloured by how they ended."""
    ended = {result.task.id: result.status for result in results}
    places = _places(plan.tasks)
    columns = 1 + max((column for column, _ in places.values()), default=0)
    rows = 1 + max((row for _, row in places.values()), default=0)
    width, height = columns * (_BOX[0] + _GAP_X), rows * (_BOX[1] + _GAP_Y) + _GAP_Y
    return "".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'font-family="sans-serif" font-size="12" style="background:white">',
            *(_arrow(places[need], places[task.id]) for task in plan.tasks for need in _needs(task, places)),
            *(_box(task, places[task.id], ended.get(task.id)) for task in plan.tasks),
            "</svg>",
        ]
    )


def _needs(task: Task, known: Collection[int]) -> list[int]:
    return sorted({need for need in (*task.deps, *refs_in(task.args)) if need in known and need != task.id})


def _places(tasks: Sequence[Task]) -> dict[int, tuple[int, int]]:
    """The column of each task, one to the right of all that it needs, and its row there."""
    ids = {task.id for task in tasks}
    columns = dict.fromkeys(ids, 0)
    for _ in tasks:
        for task in tasks:
            columns[task.id] = max((columns[need] + 1 for need in _needs(task, ids)), default=0)
    rows: dict[int, int] = {}
    found = {}
    for task in tasks:
        column = min(columns[task.id], len(tasks))
        rows[column] = rows.get(column, -1) + 1
        found[task.id] = (column, rows[column])
    return found


def _corner(place: tuple[int, int]) -> tuple[int, int]:
    return place[0] * (_BOX[0] + _GAP_X) + 8, place[1] * (_BOX[1] + _GAP_Y) + _GAP_Y


def _box(task: Task, place: tuple[int, int], status: Status | None) -> str:
    x, y = _corner(place)
    colour = COLOURS[status] if status else "#0072b2"
    label = escape(_short(clean(f"{_MARKS[status] if status else ''} {task.id} {task.task}".strip()), 26))
    return (
        f'<rect x="{x}" y="{y}" width="{_BOX[0]}" height="{_BOX[1]}" rx="5" fill="white" stroke="{colour}" '
        f'stroke-width="2"/><text x="{x + 10}" y="{y + 21}">{label}</text>'
    )


def _arrow(start: tuple[int, int], end: tuple[int, int]) -> str:
    (x1, y1), (x2, y2) = _corner(start), _corner(end)
    x1, y1, y2 = x1 + _BOX[0], y1 + _BOX[1] // 2, y2 + _BOX[1] // 2
    middle = (x1 + x2) / 2
    return (
        f'<path d="M{x1} {y1} C{middle} {y1} {middle} {y2} {x2 - 6} {y2}" fill="none" stroke="#888"/>'
        f'<path d="M{x2 - 7} {y2 - 4} L{x2} {y2} L{x2 - 7} {y2 + 4} Z" fill="#888"/>'
    )


def _label(result: TaskResult) -> str:
    return clean(f"{_MARKS[result.status]} {result.task.id} {result.task.task}")


def _span(result: TaskResult) -> str:
    model = f", {result.model}" if result.model else ""
    return clean(f"{result.started:.1f}–{result.ended:.1f} s{model}")


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
