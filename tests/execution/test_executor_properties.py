"""For any plan and any failures: each task ends once with the right status, and nothing is left behind."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

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
from jarvis_agent.execution.checkpointed_steps import CheckpointedSteps
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

    settings = Settings(output_dir=Path("/nonexistent"))
    store = ResourceStore(settings)
    with mock.patch("jarvis_agent.execution.executor.MAX_PARALLEL", max_parallel):
        executor = Executor({"work": runner}, store, RunContext(request=""), settings, emit)
    async with executor:
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


MAKE = TaskSpec(
    "make", "tool", "Make texts.", (Arg("text", "text"), Arg("all", "text", many=True)), ("text",)
)


@dataclass(frozen=True)
class Making:
    """What a task takes from others ("each" of one, or "text" or "list" with all), and what its runs do."""

    takes: str
    sources: list[int]
    makes: int
    failing: frozenset[int]

    def task(self, number: int) -> Task:
        refs = [f"<resource>-{i}" for i in self.sources]
        args: dict[str, Any] = {"text": " and ".join(refs) + " end"}
        if self.takes == "each" and refs:
            args = {"text": refs[0]}
        elif self.takes == "list":
            args = {"all": refs}
        return Task(task="make", id=number, args=args)

    def inputs(self, made: Mapping[int, list[str]]) -> list[Any]:
        """What each run gets, [] if a source made nothing."""
        if self.takes == "each" and self.sources:
            return made[self.sources[0]][:64]
        if any(not made[i] for i in self.sources):
            return []
        if self.takes == "list":
            return [[text for i in self.sources for text in made[i]]]
        return [" and ".join("\n".join(made[i]) for i in self.sources) + " end"]


@st.composite
def makings(draw: st.DrawFn) -> list[Making]:
    return [
        Making(
            draw(st.sampled_from(["each", "each", "text", "list"])),
            draw(st.lists(st.integers(0, place - 1), max_size=2, unique=True)) if place else [],
            draw(st.integers(1, 5)),
            draw(st.frozensets(st.integers(0, 3), max_size=2)),
        )
        for place in range(draw(st.integers(1, 6)))
    ]


@dataclass
class MakingRunner:
    """Makes texts that name the task, the run and their place; runs fail as they are made to."""

    makings: list[Making]
    inputs: dict[int, Any] = field(default_factory=dict)
    ran: Counter[int] = field(default_factory=Counter)
    spec: TaskSpec = MAKE

    async def select(self, task: Task, context: RunContext) -> Selection | None:
        return None

    async def run(self, selection: Selection | None, call: TaskCall) -> TaskResult:
        number, run = origin(call.task.id)
        self.ran[call.task.id] += 1
        self.inputs[call.task.id] = next(iter(call.inputs.values()))
        await _turns((7 * number + 3 * run) % 5)
        if run in self.makings[number].failing:
            raise ExpertError("it failed")
        texts = [f"{number}.{run}.{place}" for place in range(self.makings[number].makes)]
        return TaskResult(
            task=call.task, status="ok", resources=[Resource(kind="text", text=text) for text in texts]
        )


def origin(number: int) -> tuple[int, int]:
    """The task that an id is a run of, and the place of the run."""
    return (number // 1000 - 1, number % 1000) if number >= 1000 else (number, 0)


class Crashing(CheckpointedSteps):
    """Stores results, and fails once it has stored `room` of them."""

    def __init__(self, room: int = 10_000, stored: dict[int, TaskResult] | None = None) -> None:
        super().__init__()
        self.room, self.stored, self.is_gone = room, {} if stored is None else stored, False

    async def get_or_run(self, task: Task, work: Any) -> TaskResult:
        if task.id not in self.stored:
            result = await work()
            if self.is_gone:
                await asyncio.Event().wait()
            if len(self.stored) >= self.room:
                self.is_gone = True
                raise ConnectionError("the store is gone")
            self.stored[task.id] = TaskResult.model_validate_json(result.model_dump_json())
        return self.stored[task.id]


async def make(tasks: list[Task], runner: MakingRunner, results: Crashing | None = None) -> list[TaskResult]:
    before = asyncio.all_tasks()
    settings, context = Settings(output_dir=Path("/nonexistent")), RunContext(request="")
    try:
        async with Executor(
            {"make": runner}, ResourceStore(settings), context, settings, steps=results
        ) as executor:
            return await executor.join(tasks)
    finally:
        assert asyncio.all_tasks() == before


@examples(max_examples=100)
@given(makings())
def test_a_task_runs_once_for_each_result_that_it_takes_one_of(makings: list[Making]) -> None:
    runner = MakingRunner(makings)
    results = asyncio.run(make([making.task(i) for i, making in enumerate(makings)], runner))

    made: dict[int, list[str]] = {}
    expected: list[tuple[int, int, str]] = []
    for number, making in enumerate(makings):
        inputs, made[number] = making.inputs(made), []
        expected += [] if inputs else [(number, 0, "skipped")]
        for run, given_to_run in enumerate(inputs):
            failed = run in making.failing
            expected.append((number, run, "failed" if failed else "ok"))
            made[number] += [] if failed else [f"{number}.{run}.{place}" for place in range(making.makes)]
            assert runner.inputs[1000 * (number + 1) + run if run else number] == given_to_run
    assert [(*origin(result.task.id), result.status) for result in results] == expected
    assert set(runner.ran.values()) <= {1}


@examples(max_examples=100)
@given(makings(), st.integers(0, 12))
def test_a_resumed_run_has_the_same_runs_and_repeats_no_stored_one(makings: list[Making], room: int) -> None:
    tasks = [making.task(i) for i, making in enumerate(makings)]
    whole = asyncio.run(make(tasks, MakingRunner(makings)))
    store = Crashing(room)
    with suppress(ConnectionError):
        asyncio.run(make(tasks, MakingRunner(makings), store))
    kept = set(store.stored)
    runner, store = MakingRunner(makings), Crashing(stored=store.stored)
    resumed = asyncio.run(make(tasks, runner, store))

    def outcome(result: TaskResult) -> tuple[Any, ...]:
        return result.task, result.status, result.resources, result.error, result.notes

    assert [outcome(result) for result in resumed] == [outcome(result) for result in whole]
    assert kept.isdisjoint(runner.ran)
