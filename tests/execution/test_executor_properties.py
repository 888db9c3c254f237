"""For any plan and any failures: each task ends once with the right status, and nothing is left behind."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
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


ERRORS = [ExpertError, BadInputError, NoCandidateError, ValueError, TimeoutError, asyncio.InvalidStateError]


@dataclass(frozen=True)
class Behaviour:
    """Where a task fails ("select", "run", "result", "junk"), and the event loop turns that it takes."""

    fails: str = ""
    error: type[Exception] = ValueError
    selecting: int = 0
    running: int = 0


behaviours = st.builds(
    Behaviour,
    st.sampled_from(["", "", "", "select", "run", "result", "junk"]),
    st.sampled_from(ERRORS),
    st.integers(0, 6),
    st.integers(0, 6),
)


@st.composite
def plans(draw: st.DrawFn) -> list[Task]:
    """A plan of up to 30 tasks, with dependencies in `dep`, in the arguments, or in both."""
    ids = draw(st.lists(st.integers(0, 60), min_size=1, max_size=30, unique=True))
    tasks = []
    for place, number in enumerate(ids):
        before = st.lists(st.sampled_from(ids[:place]), max_size=4, unique=True) if place else st.just([])
        text = "words " + " ".join(f"<resource>-{i}" for i in draw(before))
        tasks.append(Task(task="work", id=number, dep=draw(before) or [-1], args={"text": text}))
    return tasks


def needs_of(tasks: list[Task]) -> dict[int, set[int]]:
    return {task.id: {*task.deps, *refs_in(task.args)} for task in tasks}


@dataclass
class ScriptedRunner:
    """Does to each task what its behaviour says, and records what runs."""

    behaviours: Mapping[int, Behaviour]
    needs: Mapping[int, set[int]]
    spec: TaskSpec = WORK
    done: set[int] = field(default_factory=set)
    ran: Counter[int] = field(default_factory=Counter)
    finished: Counter[int] = field(default_factory=Counter)
    running: int = 0
    peak: int = 0

    async def select(self, task: Task, context: RunContext) -> Selection | None:
        behaviour = self.behaviours[task.id]
        await _turns(behaviour.selecting)
        if behaviour.fails == "select":
            raise behaviour.error("it failed")
        return None

    def prepare(self, *args: Any) -> None:
        raise AssertionError("without a model there is nothing to prepare")

    async def run(self, selection: Selection | None, call: TaskCall) -> Any:
        number, behaviour = call.task.id, self.behaviours[call.task.id]
        assert self.needs[number] <= self.done, "it ran before its dependencies had succeeded"
        self.ran[number] += 1
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            await _turns(behaviour.running)
        finally:
            self.running -= 1
        if behaviour.fails == "run":
            raise behaviour.error("it failed")
        if behaviour.fails == "junk":
            return "no result at all"
        if behaviour.fails == "result":
            return TaskResult(task=call.task, status="failed", error="in its own words")
        return TaskResult(task=call.task, status="ok", resources=[Resource(kind="text", text="done")])


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def execute(
    tasks: list[Task], runner: ScriptedRunner, max_parallel: int, early: int
) -> list[TaskResult]:
    """Run the tasks; the first `early` are added before the rest is known. No asyncio task may be left."""
    before = asyncio.all_tasks()

    def emit(event: Event) -> None:
        if event.kind == "finished" and event.result is not None:
            runner.finished[event.result.task.id] += 1
            if event.result.status == "ok":
                runner.done.add(event.result.task.id)

    settings = Settings(output_dir=Path("/nonexistent"), max_parallel=max_parallel)
    store = ResourceStore(settings)
    async with Executor({"work": runner}, store, RunContext(request=""), settings, emit) as executor:
        for task in tasks[:early]:
            executor.add(task)
            await asyncio.sleep(0)
        results = await executor.join(tasks)
    assert asyncio.all_tasks() == before
    return results


@pytest.mark.slow
@examples(max_examples=150)
@given(plans(), st.data())
def test_each_task_ends_once_and_as_its_dependencies_allow(tasks: list[Task], data: st.DataObject) -> None:
    drawn = {task.id: data.draw(behaviours, label=f"task {task.id}") for task in tasks}
    limit = data.draw(st.integers(1, 8), label="max_parallel")
    early = data.draw(st.integers(0, len(tasks)), label="early")
    runner = ScriptedRunner(drawn, needs_of(tasks))
    results = asyncio.run(execute(tasks, runner, limit, early))

    assert [result.task for result in results] == tasks
    assert runner.finished == Counter(drawn.keys())
    status = {result.task.id: result.status for result in results}
    for number, needed in runner.needs.items():
        if any(status[other] != "ok" for other in needed):
            assert status[number] == "skipped"
            assert runner.ran[number] == 0
        else:
            assert status[number] == ("failed" if drawn[number].fails else "ok")
            assert runner.ran[number] == (drawn[number].fails != "select")
    assert all(result.error for result in results if result.status != "ok")
    assert runner.peak <= limit


@examples(max_examples=60)
@given(plans(), st.data())
def test_a_run_that_is_cancelled_leaves_nothing_behind(tasks: list[Task], data: st.DataObject) -> None:
    runner = ScriptedRunner({task.id: data.draw(behaviours) for task in tasks}, needs_of(tasks))
    turns = data.draw(st.integers(0, 40), label="turns")

    async def cancelled() -> set[asyncio.Task[Any]]:
        before = asyncio.all_tasks()
        running = asyncio.create_task(execute(tasks, runner, 3, len(tasks) // 2))
        await _turns(turns)
        running.cancel()
        await asyncio.wait([running])
        return asyncio.all_tasks() - before

    assert not asyncio.run(cancelled())
    assert runner.running == 0
