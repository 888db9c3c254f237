"""The tasks of a plan as an SVG diagram for notebooks. It needs no JavaScript and no network.

diagram_of(plan.tasks)      # '<svg …>…</svg>': a box for each task, an arrow for each dependency
"""

from __future__ import annotations

import html
from collections.abc import Sequence

from jarvis_agent.core.types import Task

_CHAR, _PAD, _HEIGHT, _GAP, _ROW = 8, 12, 30, 40, 44
"""Pixels: a character, the space beside a label, a box, the space between columns, a row."""

_LINE = 'fill="none" stroke="currentColor"'
_ARROW = (
    '<defs><marker id="arrow" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0L8 4L0 8z" fill="currentColor"/></marker></defs>'
)


def levels_of(tasks: Sequence[Task]) -> list[list[int]]:
    """The ids of the tasks by level; each task is one level after the last of its dependencies."""
    levels: list[list[int]] = []
    level_of: dict[int, int] = {}
    for task in tasks:
        level = level_of[task.id] = 1 + max((level_of.get(dep, -1) for dep in task.deps), default=-1)
        levels += [[]] if level == len(levels) else []
        levels[level].append(task.id)
    return levels


def diagram_of(tasks: Sequence[Task]) -> str:
    """The diagram. Tasks come after their dependencies, each in the column after those."""
    labels = {task.id: f"{task.id}: {task.task}" for task in tasks}
    columns = levels_of(tasks)
    boxes: dict[int, tuple[int, int, int]] = {}
    left = 1
    for members in columns:
        width = max(len(labels[task]) for task in members) * _CHAR + 2 * _PAD
        boxes |= {task: (left, 1 + row * _ROW, width) for row, task in enumerate(members)}
        left += width + _GAP
    drawn = [_box(*boxes[task.id], labels[task.id]) for task in tasks]
    drawn += [_line(boxes[dep], boxes[task.id]) for task in tasks for dep in task.deps if dep in boxes]
    width, height = left - _GAP + 1, max(map(len, columns), default=0) * _ROW
    size = f'viewBox="0 0 {width} {height}" width="{width}" style="max-width:100%"'
    name = html.escape(f"Plan with {len(tasks)} tasks: {', '.join(labels.values())}")
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{name}" {size}'
    return f'{svg} font-family="monospace" font-size="13">{_ARROW}{"".join(drawn)}</svg>'


def _box(x: int, y: int, width: int, label: str) -> str:
    text = f'<text x="{x + _PAD}" y="{y + 20}" fill="currentColor">{html.escape(label)}</text>'
    return f'<rect x="{x}" y="{y}" width="{width}" height="{_HEIGHT}" rx="5" {_LINE}/>{text}'


def _line(start: tuple[int, int, int], end: tuple[int, int, int]) -> str:
    x1, y1, x2, y2 = start[0] + start[2], start[1] + _HEIGHT // 2, end[0], end[1] + _HEIGHT // 2
    middle = (x1 + x2) // 2
    path = f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}"
    return f'<path d="{path}" {_LINE} marker-end="url(#arrow)"/>'
