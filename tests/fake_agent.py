"""An agent that plays back a Run as events, for the tests of the command line."""

import asyncio
import io
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from jarvis_agent.core.types import Attempt, Resource, Selection, Task, TaskResult, Usage
from jarvis_agent.execution.run import Event, Run
from jarvis_agent.planning.plan import Plan

CAPTION = Task(task="image-to-text", id=0, args={"image": "cat.jpg"})
SPEECH = Task(task="text-to-speech", id=1, dep=[0], args={"text": "<resource>-0"})


def done(task: Task, *resources: Resource, model: str = "org/model", **fields: Any) -> TaskResult:
    """A task that went well in half a second."""
    return TaskResult(
        task=task,
        status="ok",
        selection=Selection(model=model, reason="most downloaded"),
        attempts=[Attempt(model=model, backend="fake", started=0.1, ended=0.6)],
        resources=list(resources),
        started=0.1,
        ended=0.6,
        **fields,
    )


def failed(task: Task, error: str) -> TaskResult:
    """A task that did not go well."""
    return TaskResult(task=task, status="failed", error=error, started=0.1, ended=0.6)


def a_run(wav: Path, answer: str = "A cat. I spoke it.") -> Run:
    """A caption that is spoken into `wav`."""
    return Run(
        answer=answer,
        plan=Plan(tasks=[CAPTION, SPEECH]),
        results=[
            done(CAPTION, Resource(kind="text", text="a cat")),
            done(SPEECH, Resource(kind="audio", path=wav)),
        ],
        usage={"plan": Usage(calls=1)},
        timings={"total": 1.0},
    )


def events_of(run: Run, token_size: int = 5) -> Iterator[Event]:
    """The events of a run, in an order in which an agent may tell them."""
    for result in run.results:
        yield Event(kind="task", task=result.task)
        yield Event(kind="selected", task=result.task, selection=result.selection)
    yield Event(kind="planned", plan=run.plan)
    for result in run.results:
        yield Event(kind="started", task=result.task)
        yield Event(kind="finished", task=result.task, result=result)
    for start in range(0, len(run.answer), token_size):
        yield Event(kind="token", text=run.answer[start : start + token_size])
    yield Event(kind="done", run=run)


def drawn(what: RenderableType) -> str:
    """What is printed on a wide screen."""
    screen = io.StringIO()
    Console(file=screen, width=200, markup=False, color_system=None).print(what)
    return screen.getvalue()


class FakeAgent:
    """Plays back one run a request.

    An exception in place of a run is raised; `interrupt_after` is the number of events after which the user
    presses Ctrl-C.
    """

    def __init__(
        self, *runs: Run | Exception, model_name: str | None = None, interrupt_after: int | None = None
    ) -> None:
        self._runs = list(runs)
        self._interrupt_after = interrupt_after
        self.model_name = model_name
        self.requests: list[tuple[Any, Any]] = []
        self.closed = False

    async def aevents(self, request: Any, config: Any = None) -> AsyncIterator[Event]:
        self.requests.append((request, config))
        run = self._next()
        for number, event in enumerate(events_of(run)):
            if number == self._interrupt_after:
                self._interrupt_after = None
                signal.raise_signal(signal.SIGINT)
                await asyncio.sleep(30)
            yield event

    async def aplan(self, request: Any, config: Any = None) -> Plan:
        self.requests.append((request, config))
        return self._next().plan

    async def aclose(self) -> None:
        self.closed = True

    def _next(self) -> Run:
        run = self._runs.pop(0)
        if isinstance(run, Exception):
            raise run
        return run
