"""The progress of a run in a terminal: a tree that is redrawn while tasks run, or one line per event.

Names, reasons and answers come from models and files. All text passes through `clean`, which removes control
characters, and rich never reads it as markup.
"""

from __future__ import annotations

import codecs
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import typer
from pydantic import BaseModel
from pydantic_core import to_json
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text
from rich.tree import Tree

from jarvis_agent.backends.jobs import Activity
from jarvis_agent.core.phrases import ENGLISH, Phrases
from jarvis_agent.core.text import brief_text, clean, clean_json
from jarvis_agent.core.types import Selection, Task, TaskResult
from jarvis_agent.execution.run import Event, Run
from jarvis_agent.planning.plan import Plan
from jarvis_agent.response.report import is_unavailable

State = Literal["planned", "selecting", "waiting", "running", "ok", "failed", "skipped"]

STYLES: dict[State, tuple[str, str]] = {
    "planned": ("○", ""),
    "selecting": ("○", "cyan"),
    "waiting": ("○", "dim"),
    "running": ("▶", "yellow"),
    "ok": ("✓", "green"),
    "failed": ("✗", "red"),
    "skipped": ("–", "dim"),
}
"""The icon of each state, and its style in a terminal."""


def make_console(*, stderr: bool = False) -> Console:
    """Return a console without markup, emoji codes and highlighting."""
    console = Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = 10_000  # no line is wrapped
    return console


def echo_json(data: BaseModel | Mapping[str, Any]) -> None:
    """Print JSON on stdout. Control characters are escaped, and all but ASCII if stdout is not UTF-8."""
    is_utf8 = codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"
    text = to_json(data, indent=2, ensure_ascii=not is_utf8, inf_nan_mode="null").decode()
    typer.echo(clean_json(text))


@dataclass(slots=True)
class TaskProgress:
    """One task; `started` is in seconds of the clock of `RunProgress`."""

    task: Task
    state: State = "selecting"
    selection: Selection | None = None
    result: TaskResult | None = None
    started: float | None = None


@dataclass
class RunProgress:
    """The state of a run as far as its events tell; rich renders it as a tree.

    `activities` are shown too: the task that runs the agent sets them as `jobs.activities` before. `done` is
    the Run, once it has ended.
    """

    clock: Callable[[], float] = time.monotonic
    words: Phrases = ENGLISH
    tasks: dict[int, TaskProgress] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    answer: str = ""
    is_planned: bool = False
    activities: list[Activity] = field(default_factory=list)
    done: Run | None = None

    @classmethod
    def of(cls, run: Run, words: Phrases = ENGLISH) -> RunProgress:
        """The progress of an earlier run as far as it came."""
        rows = {task.id: TaskProgress(task, "planned") for task in run.plan.tasks}
        for result in run.results:
            rows[result.task.id] = TaskProgress(result.task, result.status, result.selection, result)
        return cls(words=words, tasks=rows, notes=run.plan.notes, answer=run.answer, is_planned=True)

    def update(self, event: Event) -> None:
        """Apply the next event."""
        self.done = event.run or self.done
        if event.kind == "token":
            self.answer += event.text
        elif event.kind == "planned" and event.plan is not None:
            self.notes = event.plan.notes
            self.is_planned = True
        elif event.task is not None:
            row = self.tasks.setdefault(event.task.id, TaskProgress(event.task))
            row.task = event.task
            row.selection = (event.result or event).selection or row.selection
            if event.kind == "selected" and row.state == "selecting":
                row.state = "waiting"
            elif event.kind == "started":
                row.state, row.started = "running", self.clock()
            elif event.kind == "finished" and event.result is not None:
                row.state, row.result = event.result.status, event.result

    @property
    def run(self) -> Run:
        """The run, or what is known of it so far."""
        if self.done is not None:
            return self.done
        rows = self.tasks.values()
        plan = Plan(tasks=[row.task for row in rows], notes=self.notes)
        results = [row.result for row in rows if row.result is not None]
        return Run(answer=self.answer, plan=plan, results=results)

    def __rich__(self) -> RenderableType:
        count, nodes = len(self.tasks), dict[int, Tree]()
        tree = Tree(Text(f"Plan: {count} task{'' if count == 1 else 's'}", "bold"))
        for row in [*self.tasks.values()]:  # each below the last of its dependencies
            parents = [nodes[number] for number in sorted(row.task.deps) if number in nodes]
            nodes[row.task.id] = (parents[-1] if parents else tree).add(self._label(row))
        plan = [tree] if nodes else [] if self.is_planned else [Text("Planning …", "dim")]
        lines = [clean(str(each)) for each in list(self.activities)]
        lines += [f"note: {brief_text(self.words.translated(note), 300)}" for note in self.notes]
        return Group(*plan, *(Text(line, "dim") for line in lines))

    def _label(self, row: TaskProgress) -> RenderableType:
        icon, style = STYLES[row.state]
        label = Text.assemble((f"{icon} {_name(row.task)}", style))
        label.append(_after(row.task, "  after "), "dim")
        if row.state != "planned":
            label.append(f"  {row.state}", style)
        if row.result is not None and row.state != "skipped":
            label.append(f" {_seconds(row.result)}", style)
        elif row.state == "running" and row.started is not None:
            label.append(f" {self.clock() - row.started:.1f} s", style)
        label.append(f"  {_arguments(row.task)}", "dim")
        details = (Padding(Text(line, "dim"), (0, 0, 0, 2)) for line in _details(row, self.words))
        return Group(label, *details)


def plan_tree(plan: Plan, words: Phrases = ENGLISH) -> RenderableType:
    """Return a plan that is not run, with its notes."""
    progress = RunProgress.of(Run(plan=plan), words)
    return progress if plan.tasks else Group(Text("The plan is empty."), progress)


def _name(task: Task) -> str:
    return f"{task.id} {brief_text(task.task, 60)}"


def _after(task: Task, prefix: str) -> str:
    return f"{prefix}{', '.join(map(str, task.deps))}" if task.deps else ""


def _details(row: TaskProgress, words: Phrases) -> Iterator[str]:
    if row.selection is not None:
        yield _choice(row.result.model if row.result else None, row.selection, words)
    if row.result is not None:
        failed = (attempt for attempt in row.result.attempts if not attempt.ok)
        failures = (f"{attempt.model} failed: {attempt.error}" for attempt in failed)
        yield from (brief_text(words.translated(line), 200) for line in (*failures, *row.result.notes))
        if row.result.error:
            yield brief_text(words.translated(row.result.error), 300)


def _choice(used: str | None, selection: Selection, words: Phrases) -> str:
    """The chosen model with the reason, if there were others; a fallback that ran instead is named first."""
    reason = (
        "" if selection.chosen_by == "only" else f": {brief_text(words.translated(selection.reason), 160)}"
    )
    chosen = brief_text(selection.model, 80) + reason
    return chosen if used in (None, selection.model) else f"{brief_text(str(used), 80)}, in place of {chosen}"


def _arguments(task: Task) -> str:
    texts = {brief_text(name, 20): brief_text(str(value), 60) for name, value in task.args.items()}
    return " ".join(f'{name}="{text}"' if " " in text else f"{name}={text}" for name, text in texts.items())


def _seconds(result: TaskResult) -> str:
    return f"{max(result.ended - result.started, 0.0):.1f} s"


def format_event(event: Event, words: Phrases = ENGLISH) -> str | None:
    """Return the event as one line; None for events that a log does not need."""
    text = _event_text(event, words)
    return f"[{event.seconds:6.1f} s] {text}" if text else None


def _event_text(event: Event, words: Phrases) -> str | None:
    if event.kind == "planned" and event.plan is not None:
        notes = "".join(f"; {brief_text(words.translated(note), 300)}" for note in event.plan.notes)
        return f"plan complete, tasks: {len(event.plan.tasks)}{notes}"
    if event.task is None:
        return None
    name, result = _name(event.task), event.result
    if event.kind == "task":
        arguments = f", {_arguments(event.task)}" if event.task.args else ""
        return f"{name}: planned{_after(event.task, ' after ')}{arguments}"
    if event.kind == "started":
        return f"{name}: running"
    if event.kind == "selected":
        choice = _choice(None, event.selection, words) if event.selection else None
        return choice and f"{name}: chose {choice}"
    if result is None:
        return None
    error = brief_text(words.translated(result.error or ""), 300)
    if result.status == "skipped":
        return f"{name}: skipped, {error}"
    model = f" by {brief_text(result.model, 80)}" if result.model and result.attempts else ""
    return f"{name}: {result.status} in {_seconds(result)}{model}{f': {error}' if error else ''}"


def answered(run: Run) -> bool:
    """Whether a task succeeded, or the language model answered a request that needs none."""
    if run.plan.tasks:
        return any(result.status == "ok" for result in run.results)
    chat = run.usage.get("chat")
    # Tokens tell an answer from a failed call, but not every model reports them.
    has_chatted = chat is not None and (chat.output_tokens > 0 or chat.cached > 0 or not run.plan.notes)
    return has_chatted and not is_unavailable(run.plan)
