"""The plans of a chat as HTML: a graph whose boxes show the details of their tasks, the newest first.

html = PlanView(visitor.clean, texts_for("en")).html(visitor.turns)     # "" without a turn

All names, reasons and results are from models and files. They are escaped, and cleaned of the server's paths.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jarvis_agent.core.messages import phrases
from jarvis_agent.core.types import Task, TaskResult
from jarvis_agent.interfaces.common.progress import RunProgress, TaskProgress, shorten
from jarvis_agent.interfaces.ui.texts import Texts
from jarvis_agent.interfaces.ui.visitor import PageTurn, models_of
from jarvis_agent.planning.plan import levels_of

ICONS = {
    "planned": "○",
    "selecting": "○",
    "waiting": "○",
    "loading": "↓",
    "running": "▶",
    "ok": "✓",
    "failed": "✗",
    "skipped": "–",
    "stopped": "■",
}
_HEIGHT, _ROW, _WIDTH = 78, 116, 150
"""Pixels: a box, a level with the lines below it, the least width of a box."""
_MAX_CHARS = 4_000
_OPEN = frozenset({"planned", "selecting", "waiting", "loading", "running"})


class PlanView:
    """Draws plans in one language, for one visitor."""

    def __init__(self, clean: Callable[[str], str], text: Texts) -> None:
        """`clean` removes from a text what the visitor must not see."""
        self._clean = clean
        self._text = text
        self._translated = phrases(text("plan")).translated

    def html(self, turns: Sequence[PageTurn]) -> str:
        """The turns that have tasks, all but the last one closed; a plan that waits for the visitor alone."""
        if turns and turns[-1].proposal is not None:
            tasks = map(Task.model_validate, turns[-1].proposal["plan"])
            return self._graph(len(turns) - 1, turns[-1], [TaskProgress(task, "planned") for task in tasks])
        parts = [self.turn(len(turns) - 1, turns[-1])] if turns else []
        for number, turn in reversed(list(enumerate(turns[:-1]))):
            if not turn.progress.tasks:
                continue
            title = self._text("earlier", request=shorten(turn.request, 60))
            summary = f"<summary>{self._escape(title)}</summary>"
            parts.append(
                f'<details class="earlier" data-task="{number}">{summary}{self.turn(number, turn)}</details>'
            )
        return "".join(parts)

    def state(self, turn: PageTurn, row: TaskProgress) -> str:
        """The state of a task, as a key of ICONS."""
        return "stopped" if turn.is_stopped and row.state in _OPEN else row.state

    def seconds(self, progress: RunProgress, row: TaskProgress) -> str:
        """How long a task took, or has been running; "" if it has not started."""
        if row.result is not None and row.result.attempts:
            return self._text("seconds", number=max(row.result.ended - row.result.started, 0.0))
        if row.state == "running" and row.started is not None:
            return self._text("seconds", number=progress.clock() - row.started)
        return ""

    def turn(self, number: int, turn: PageTurn) -> str:
        """The plan of a turn with the details of its tasks; "" without tasks."""
        progress, rows = turn.progress, turn.progress.tasks
        if not rows:
            return ""
        notes = [*progress.notes, *(map(str, list(progress.activities)) if not turn.is_over else ())]
        listed = "".join(f"<li>{self._translate(note)}</li>" for note in dict.fromkeys(notes))
        details = "".join(self._details(number, turn, row) for row in rows.values())
        return f'{self._graph(number, turn, list(rows.values()))}<ul class="notes">{listed}</ul>{details}'

    def _graph(self, number: int, turn: PageTurn, rows: Sequence[TaskProgress]) -> str:
        levels = levels_of([row.task for row in rows])
        place = {
            task: ((index + 0.5) / len(level) * 100, depth)
            for depth, level in enumerate(levels)
            for index, task in enumerate(level)
        }
        lines = "".join(
            _line(place[dep], place[row.task.id]) for row in rows for dep in row.task.deps if dep in place
        )
        height, widest = len(levels) * _ROW - _ROW + _HEIGHT, max(map(len, levels))
        boxes = ""
        for row in rows:
            x, depth = place[row.task.id]
            width = 100 / len(levels[depth])
            style = f"left:{x:.2f}%;top:{depth * _ROW}px;width:min({width:.2f}% - 8px, 300px)"
            state = self.state(turn, row) + (" dependent" if place.keys() & row.task.deps else "")
            boxes += f'<button type="button" class="task {state}" style="{style}" '
            boxes += f'data-task="{number}-{row.task.id}">{self._box(turn, row)}</button>'
        return (
            f'<div class="scroll"><div class="graph" style="height:{height}px;min-width:{widest * _WIDTH}px">'
            f'<svg viewBox="0 0 100 {height}" preserveAspectRatio="none" aria-hidden="true">{lines}</svg>'
            f"{boxes}</div></div>"
        )

    def _box(self, turn: PageTurn, row: TaskProgress) -> str:
        state, model = self.state(turn, row), _model(row).rsplit("/", 1)[-1]
        times = " · ".join(filter(None, [self._text(state), self.seconds(turn.progress, row)]))
        return (
            f'<b><i aria-hidden="true">{ICONS[state]}</i> {row.task.id} {self._escape(row.task.task)}</b>'
            f"<span>{self._escape(model)}</span><small>{self._escape(times)}</small>"
        )

    def _details(self, number: int, turn: PageTurn, row: TaskProgress) -> str:
        return (
            f'<section class="about {self.state(turn, row)}" data-task="{number}-{row.task.id}" hidden>'
            f"<b>{row.task.id} {self._escape(row.task.task)}</b><dl>{''.join(self._facts(row))}"
            f"{self._again(number, row) if turn.run is not None else ''}</dl></section>"
        )

    def _again(self, number: int, row: TaskProgress) -> str:
        """A choice of models to run the task again with; "" if there are no others."""
        used, *others = map(self._escape, models_of(row) or [""])
        if not others:
            return ""
        options = f'<option value="">{used}</option>' + "".join(f"<option>{one}</option>" for one in others)
        label = self._escape(self._text("again"))
        chooser = f'<select aria-label="{label}" data-task="{number}-{row.task.id}">{options}</select>'
        return f"<dt>{label}</dt><dd>{chooser}</dd>"

    def _facts(self, row: TaskProgress) -> Iterable[str]:
        yield self._fact("input", self._values(row.task))
        if row.selection is not None:
            chosen = row.selection
            why = "; ".join(filter(None, [chosen.reason, chosen.placement]))
            yield self._fact("why", f"<code>{self._escape(chosen.model)}</code> {self._translate(why)}")
        result = row.result
        if result is None:
            return
        if result.status == "ok":
            yield self._fact("output", f"<pre>{self._escape(_output(result))}</pre>")
        if result.attempts:
            yield self._fact("attempts", f"<ol>{''.join(map(self._attempt, result.attempts))}</ol>")
        if result.error:
            yield self._fact("error", self._translate(result.error))
        for note in result.all_notes:
            yield self._fact("note", self._translate(note))

    def _values(self, task: Task) -> str:
        return "".join(
            f"<div><code>{self._escape(name)}</code> {self._escape(as_text(value))}</div>"
            for name, value in task.args.items()
        )

    def _attempt(self, attempt: Any) -> str:
        seconds = self._text("seconds", number=attempt.ended - attempt.started)
        outcome = attempt.error or self._text("ok")
        line = f"{attempt.backend}, {seconds}: {outcome}"
        return f"<li><code>{self._escape(attempt.model)}</code> {self._escape(line)}</li>"

    def _fact(self, name: str, content: str) -> str:
        return f"<dt>{self._escape(self._text(name))}</dt><dd>{content}</dd>"

    def _translate(self, text: str) -> str:
        return self._escape(self._translated(text))

    def _escape(self, text: str) -> str:
        return html.escape(self._clean(text[:_MAX_CHARS]))


def _model(row: TaskProgress) -> str:
    used = row.result.model if row.result is not None else None
    return used or (row.selection.model if row.selection is not None else "")


def as_text(value: Any) -> str:
    """An argument of a task as the page shows it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _output(result: TaskResult) -> str:
    """The text that a task made, else its data, else the names of its files."""
    text = result.resource("text")
    if text is not None and text.text is not None:
        return text.text
    if result.output is not None and not list(result.paths()):
        return json.dumps(result.output, ensure_ascii=False, indent=1)
    return "\n".join(path.name for path in result.paths())


def _line(start: tuple[float, int], end: tuple[float, int]) -> str:
    """A curve from below one box to the top of another; x is in percent."""
    (x1, level1), (x2, level2) = start, end
    y1, y2 = level1 * _ROW + _HEIGHT, level2 * _ROW
    middle = (y1 + y2) / 2
    return f'<path d="M{x1:.2f} {y1}C{x1:.2f} {middle} {x2:.2f} {middle} {x2:.2f} {y2}"/>'
