"""Whatever the plan and whatever fails: each task ends once, as it should, and none runs before its time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from jarvis_agent.core.context import RunContext
from jarvis_agent.core.errors import BadInputError, ExpertError, NoCandidateError
from jarvis_agent.core.references import refs_in
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import Arg, TaskSpec
from jarvis_agent.core.types import Resource, Selection, Task, TaskResult
from jarvis_agent.execution.executor import Executor
from jarvis_agent.execution.inputs import TaskCall
from jarvis_agent.execution.run import Event
from jarvis_agent.media.store import ResourceStore

WORK = TaskSpec("work", "text", "Work.", (Arg("text", "text"),), ("text",))


@dataclass(frozen=True)
class Fate:
    """What becomes of a task: at which of its two stages it goes wrong, how, and how long each takes."""

    wrong: str = ""
    error: type[Exception] | None = None
    choosing: int = 0
    working: int = 0


ERRORS = [ExpertError, BadInputError, NoCandidateError, ValueError, TimeoutError, asyncio.InvalidStateError]
moments = st.integers(0, 6)
fates = st.one_of(
    st.builds(Fate, choosing=moments, working=moments),
    st.builds(Fate, st.just("select"), st.sampled_from(ERRORS), moments, moments),
    st.builds(Fate, st.just("perform"), st.sampled_from(ERRORS), moments, moments),
    st.builds(Fate, st.sampled_from(["result", "junk"]), st.none(), moments, moments),
)


@st.composite
def plans(draw: st.DrawFn) -> list[Task]:
    """A plan of up to 30 tasks, whose dependencies are written in `dep`, in the arguments, or in both."""
    ids = draw(st.lists(st.integers(0, 60), min_size=1, max_size=30, unique=True))
    tasks = []
    for place, number in enumerate(ids):
        before = st.lists(st.sampled_from(ids[:place]), max_size=4, unique=True) if place else st.just([])
        needs, told = draw(before), draw(before)
        text = "words " + " ".join(f"<resource>-{i}" for i in told)
        tasks.append(Task(task="work", id=number, dep=needs or [-1], args={"text": text}))
    return tasks


@dataclass
class Fateful:
    """A worker that does to each task what its fate says, and notes what runs when."""

    fates: Mapping[int, Fate]
    needs: Mapping[int, set[int]]
    spec: TaskSpec = WORK
    done: set[int] = field(default_factory=set)
    ran: Counter[int] = field(default_factory=Counter)
    running: int = 0
    peak: int = 0

    async def select(self, task: Task, context: RunContext) -> Selection | None:
        fate = self.fates[task.id]
        await _pass(fate.choosing)
        if fate.wrong == "select" and fate.error is not None:
            raise fate.error("it went wrong")
        return None

    async def run(self, selection: Selection | None, step: TaskCall) -> TaskResult:
        number = step.task.id
        assert self.needs[number] <= self.done, "it ran before what it needs had ended well"
        self.ran[number] += 1
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            await _pass(self.fates[number].working)
            return self._result(step)
        finally:
            self.running -= 1

    def _result(self, step: TaskCall) -> Any:
        fate = self.fates[step.task.id]
        if fate.wrong == "perform" and fate.error is not None:
            raise fate.error("it went wrong")
        if fate.wrong == "junk":
            return "no result at all"
        if fate.wrong == "result":
            return TaskResult(task=step.task, status="failed", error="in its own words")
        return TaskResult(task=step.task, status="ok", resources=[Resource(kind="text", text="done")])


async def _pass(moments: int) -> None:
    for _ in range(moments):
        await asyncio.sleep(0)


def needs_of(tasks: list[Task]) -> dict[int, set[int]]:
    return {task.id: {*task.deps, *refs_in(task.args)} for task in tasks}


@dataclass
class Outcome:
    """What was seen of one execution."""

    results: list[TaskResult]
    events: list[Event]
    worker: Fateful
    left: set[asyncio.Task[Any]]


async def execute(tasks: list[Task], worker: Fateful, limit: int, early: int) -> Outcome:
    """Run the tasks, the first `early` of them before the rest of the plan is known."""
    before = asyncio.all_tasks()
    events: list[Event] = []

    def emit(event: Event) -> None:
        events.append(event)
        if event.kind == "finished" and event.result is not None and event.result.status == "ok":
            worker.done.add(event.result.task.id)

    settings = Settings(output_dir=Path("/nonexistent"), max_parallel=limit)
    store = ResourceStore(settings)
    async with Executor({"work": worker}, store, RunContext(request=""), settings, emit) as executor:
        for task in tasks[:early]:
            executor.add(task)
            await asyncio.sleep(0)
        results = await executor.join(tasks)
    return Outcome(results, events, worker, asyncio.all_tasks() - before)


@examples(max_examples=150, derandomize=True, deadline=None)
@given(plans(), st.data())
def test_each_task_ends_once_and_as_what_it_needs_allows(tasks: list[Task], data: st.DataObject) -> None:
    drawn = {task.id: data.draw(fates, label=f"fate of {task.id}") for task in tasks}
    limit = data.draw(st.integers(1, 8), label="max_parallel")
    early = data.draw(st.integers(0, len(tasks)), label="early")
    needs = needs_of(tasks)
    seen = asyncio.run(execute(tasks, Fateful(drawn, needs), limit, early))

    assert [result.task for result in seen.results] == tasks
    finished = Counter(event.task.id for event in seen.events if event.kind == "finished" and event.task)
    assert finished == Counter(needs.keys())
    status = {result.task.id: result.status for result in seen.results}
    for number, needed in needs.items():
        if any(status[other] != "ok" for other in needed):
            assert status[number] == "skipped"
            assert seen.worker.ran[number] == 0
        else:
            assert status[number] == ("failed" if drawn[number].wrong else "ok")
            assert seen.worker.ran[number] == (drawn[number].wrong != "select")
    assert all(result.error for result in seen.results if result.status != "ok")
    assert seen.worker.peak <= limit
    assert not seen.left


@examples(max_examples=60, derandomize=True, deadline=None)
@given(plans(), st.data())
def test_a_run_that_is_stopped_at_any_moment_leaves_nothing_behind(
    tasks: list[Task], data: st.DataObject
) -> None:
    drawn = {task.id: data.draw(fates) for task in tasks}
    moment = data.draw(st.integers(0, 40), label="moment")

    async def stopped() -> tuple[set[asyncio.Task[Any]], int]:
        before = asyncio.all_tasks()
        worker = Fateful(drawn, needs_of(tasks))
        running = asyncio.create_task(execute(tasks, worker, 3, len(tasks) // 2))
        await _pass(moment)
        running.cancel()
        await asyncio.wait([running])
        return asyncio.all_tasks() - before, worker.running

    left, running = asyncio.run(stopped())
    assert not left
    assert running == 0


@examples(max_examples=60, derandomize=True, deadline=None)
@given(plans(), st.data())
def test_at_its_deadline_what_is_done_stays_and_the_rest_says_why(
    tasks: list[Task], data: st.DataObject
) -> None:
    """Some tasks never end by themselves; those that need none of them are done all the same."""
    endless = data.draw(st.sets(st.sampled_from([task.id for task in tasks]), min_size=1), label="endless")
    needs = needs_of(tasks)

    class Endless(Fateful):
        async def run(self, selection: Selection | None, step: TaskCall) -> TaskResult:
            if step.task.id in endless:
                await asyncio.Event().wait()
            return await super().run(selection, step)

    async def run() -> list[TaskResult]:
        settings = Settings(output_dir=Path("/nonexistent"), max_parallel=30)
        worker = Endless({number: Fate() for number in needs}, needs)

        def emit(event: Event) -> None:
            if event.kind == "finished" and event.result is not None and event.result.status == "ok":
                worker.done.add(event.result.task.id)

        ticks = iter(range(10**6))
        clock = lambda: 0.0 if next(ticks) < 2000 else 1.0  # noqa: E731
        async with Executor(
            {"work": worker}, ResourceStore(settings), RunContext(""), settings, emit, clock
        ) as it:
            return await it.join(tasks, deadline=0.05)

    blocked = set(endless)
    for number, needed in needs.items():
        if needed & blocked:
            blocked.add(number)
    results = asyncio.run(run())
    assert {r.task.id for r in results if r.status == "ok"} == needs.keys() - blocked
    assert all("time was over" in (r.error or "") for r in results if r.status != "ok")
    assert all(r.failure == "DeadlineError" for r in results if r.status != "ok")
