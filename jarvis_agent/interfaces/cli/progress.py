"""What a run looks like in a terminal: the plan as a tree that changes while its tasks run, or as lines.

    board = Board()
    for event in events:
        board.feed(event)
        line = line_of(event)          # one line, for a log or a pipe
    console.print(board)               # the tree, for a terminal

Names, reasons and answers come from models and files that are not to be trusted: everything passes through
`clean`, and nothing is read as rich's markup.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rich.console import Console, Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from jarvis_agent.backends.hub.snapshot import active_downloads
from jarvis_agent.core.text import clean
from jarvis_agent.core.types import Selection, Task, TaskResult
from jarvis_agent.execution.run import Event, Run
from jarvis_agent.planning.plan import Plan

PIPE_WIDTH = 160
"""Columns of what is written to a pipe or file, where no terminal says how wide it is."""

State = Literal["planned", "selecting", "waiting", "running", "ok", "failed", "skipped"]

_LOOKS: dict[State, tuple[str, str]] = {
    "planned": ("○", ""),
    "selecting": ("○", "cyan"),
    "waiting": ("○", "dim"),
    "running": ("▶", "yellow"),
    "ok": ("✓", "green"),
    "failed": ("✗", "red"),
    "skipped": ("–", "dim"),
}


def shorten(text: str, length: int) -> str:
    """The text, cleaned, on one line of at most `length` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def make_console(*, stderr: bool = False) -> Console:
    """A console that takes every text as it is: no markup, no emoji codes, no highlighting."""
    console = Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console


@dataclass(slots=True)
class Row:
    """One task on the board; `since` is when it started, by the board's clock."""

    task: Task
    state: State = "selecting"
    selection: Selection | None = None
    result: TaskResult | None = None
    since: float | None = None


@dataclass
class Board:
    """What is known of a run so far, and its picture."""

    clock: Callable[[], float] = time.monotonic
    rows: dict[int, Row] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    answer: str = ""

    def feed(self, event: Event) -> None:
        """Take in what happened."""
        if event.kind == "note":
            self.notes.append(event.text)
        elif event.kind == "token":
            self.answer += event.text
        elif event.kind == "planned" and event.plan is not None:
            self.notes.extend(event.plan.notes)
        elif event.task is not None:
            self._feed_task(event, event.task)

    def _feed_task(self, event: Event, task: Task) -> None:
        row = self.rows.setdefault(task.id, Row(task))
        row.task = task
        if event.result is not None:
            row.selection = event.result.selection or row.selection
        if event.kind == "selected" and row.state == "selecting":
            row.state = "waiting"
        elif event.kind == "started":
            row.state, row.since = "running", self.clock()
        elif event.kind == "finished" and event.result is not None:
            row.state, row.result = event.result.status, event.result

    @property
    def run(self) -> Run:
        """The run as far as it has come."""
        return Run(
            answer=self.answer,
            plan=Plan(tasks=[row.task for row in self.rows.values()], notes=self.notes),
            results=[row.result for row in self.rows.values() if row.result is not None],
        )

    def __rich__(self) -> RenderableType:
        rows = list(self.rows.values())
        tree = _tree(rows, self.clock()) if rows else Text("Planning …", "dim")
        downloads = [clean(str(download)) for download in active_downloads()]
        notes = [f"note: {shorten(note, 300)}" for note in self.notes]
        return Group(tree, *(Text(line, "dim") for line in (*downloads, *notes)))


def plan_tree(plan: Plan) -> RenderableType:
    """A plan that is not run, with its notes."""
    notes = [Text(f"note: {clean(note)}", "dim") for note in plan.notes]
    if not plan.tasks:
        return Group(Text("The plan is empty."), *notes)
    return Group(_tree([Row(task, "planned") for task in plan.tasks], 0.0), *notes)


def _tree(rows: Sequence[Row], now: float) -> Tree:
    """Each task under the last of those that it waits for."""
    tree = Tree(Text(f"Plan: {len(rows)} task{'' if len(rows) == 1 else 's'}", "bold"))
    nodes: dict[int, Tree] = {}
    open_rows = list(rows)
    while open_rows:
        ready = [row for row in open_rows if not _unplaced(row, open_rows)] or open_rows[:1]
        for row in ready:
            above = [nodes[i] for i in sorted(row.task.deps) if i in nodes]
            nodes[row.task.id] = (above[-1] if above else tree).add(_label(row, now))
        open_rows = [row for row in open_rows if row not in ready]
    return tree


def _unplaced(row: Row, open_rows: Iterable[Row]) -> bool:
    return any(other.task.id in row.task.deps for other in open_rows)


def _label(row: Row, now: float) -> Text:
    icon, style = _LOOKS[row.state]
    head = Text.assemble((f"{icon} {row.task.id} {shorten(row.task.task, 60)}", style))
    if row.task.deps:
        head.append(f"  after {', '.join(map(str, row.task.deps))}", "dim")
    if row.state != "planned":
        head.append(f"  {row.state}{_duration(row, now)}", style)
    head.append(f"  {_arguments(row.task)}", "dim")
    for line in _details(row):
        head.append(f"\n  {line}", "dim")
    return head


def _duration(row: Row, now: float) -> str:
    if row.result is not None and row.state != "skipped":
        return f" {_seconds(row.result.ended - row.result.started)}"
    return f" {_seconds(now - row.since)}" if row.state == "running" and row.since is not None else ""


def _details(row: Row) -> Iterator[str]:
    if row.selection is not None:
        yield _choice(row.result.model if row.result else None, row.selection)
    if row.result is not None:
        yield from (shorten(attempt, 200) for attempt in _failed_attempts(row.result))
        yield from (shorten(note, 200) for note in row.result.notes)
        if row.result.error:
            yield shorten(row.result.error, 300)


def _choice(used: str | None, selection: Selection) -> str:
    """The model and why it was chosen; a model that stepped in for the chosen one is named first."""
    chosen = f"{shorten(selection.model, 80)}: {shorten(selection.reason, 160)}"
    return chosen if used in (None, selection.model) else f"{shorten(str(used), 80)}, in place of {chosen}"


def _failed_attempts(result: TaskResult) -> Iterator[str]:
    return (f"{attempt.model} failed: {attempt.error}" for attempt in result.attempts if not attempt.ok)


def _arguments(task: Task) -> str:
    return " ".join(f"{shorten(name, 20)}={_value(value)}" for name, value in task.args.items())


def _value(value: Any) -> str:
    text = shorten(str(value), 60)
    return f'"{text}"' if " " in text else text


def _seconds(seconds: float) -> str:
    return f"{max(seconds, 0.0):.1f} s"


def line_of(event: Event) -> str | None:
    """One line that tells an event; None for those that a log does not need."""
    told = _told(event)
    return f"[{event.seconds:6.1f} s] {told}" if told else None


def _told(event: Event) -> str | None:
    if event.kind == "note":
        return f"note: {shorten(event.text, 300)}"
    if event.kind == "planned" and event.plan is not None:
        notes = "".join(f"; {shorten(note, 300)}" for note in event.plan.notes)
        return f"plan complete, tasks: {len(event.plan.tasks)}{notes}"
    if event.task is None:
        return None
    name = f"{event.task.id} {shorten(event.task.task, 60)}"
    if event.kind == "task":
        after = f" after {', '.join(map(str, event.task.deps))}" if event.task.deps else ""
        return f"{name}: planned{after}, {_arguments(event.task)}"
    if event.kind == "started":
        return f"{name}: running"
    if event.result is None:
        return None
    if event.kind == "selected":
        return f"{name}: chose {_choice(None, event.result.selection)}" if event.result.selection else None
    return f"{name}: {_ending(event.result)}"


def _ending(result: TaskResult) -> str:
    if result.status == "skipped":
        return f"skipped, {shorten(result.error or '', 300)}"
    took = f"{result.status} in {_seconds(result.ended - result.started)}"
    by = f" by {shorten(result.model, 80)}" if result.model and result.attempts else ""
    why = f": {shorten(result.error, 300)}" if result.error else ""
    return f"{took}{by}{why}"


def unmentioned_files(run: Run) -> list[str]:
    """Full paths of the files that the run made and its answer does not name."""
    paths = dict.fromkeys(str(resource.path) for resource in run.resources if resource.path is not None)
    return [path for path in paths if path not in run.answer]


def finished_work(run: Run) -> str:
    """What an interrupted run had finished, a line a result."""
    done = [result for result in run.results if result.status == "ok"]
    return "\n".join(f"{r.task.id} {shorten(r.task.task, 60)}: {_gist(r)}" for r in done)


def _gist(result: TaskResult) -> str:
    paths = [clean(str(path)) for path in result.paths()]
    text = result.resource("text")
    said = [clean(text.as_text())] if text is not None else []
    return ", ".join([*paths, *said]) or "done"
