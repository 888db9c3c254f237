"""The executor: what starts when, what fails with what, and what is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from jarvis_agent.core.context import RunContext
from jarvis_agent.core.errors import NoCandidateError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import Arg, TaskSpec
from jarvis_agent.core.types import Attempt, Resource, Selection, Task, TaskResult
from jarvis_agent.execution.executor import Executor
from jarvis_agent.execution.inputs import TaskCall, bind_inputs
from jarvis_agent.execution.run import Event
from jarvis_agent.media.store import ResourceStore

ECHO = TaskSpec("echo", "text", "Say it again.", (Arg("text", "text"),), ("text",))
DRAW = TaskSpec("draw", "vision", "Draw it.", (Arg("text", "text"),), ("image",))
LOOK = TaskSpec("look", "vision", "Look at it.", (Arg("image", "image"),), ("text",))


@dataclass
class FakeWorker:
    """A worker that says its text again, after what `gate` makes it wait for."""

    spec: TaskSpec = ECHO
    gate: Callable[[TaskCall], object] | None = None
    choose: Callable[[Task], object] | None = None
    seen: list[dict[str, object]] = field(default_factory=list)

    async def select(self, task: Task, context: RunContext) -> Selection | None:
        if self.choose is not None:
            result = self.choose(task)
            if asyncio.iscoroutine(result):
                await result
        return Selection(model=f"model-for-{task.task}", reason="it is the only one", chosen_by="only")

    async def run(self, selection: Selection | None, step: TaskCall) -> TaskResult:
        self.seen.append(dict(step.inputs))
        if self.gate is not None:
            result = self.gate(step)
            if asyncio.iscoroutine(result):
                await result
        text = str(step.inputs.get("text", "done"))
        return TaskResult(
            task=step.task,
            status="ok",
            selection=selection,
            resources=[Resource(kind="text", text=text)],
            output=text,
        )


@pytest.fixture
def settings(tmp_path):
    return Settings(output_dir=tmp_path, run_timeout=20, task_timeout=10)


def executor(
    settings: Settings, emit: Callable[[Event], None] = lambda e: None, **workers: FakeWorker
) -> Executor:
    workers = workers or {"echo": FakeWorker()}
    return Executor(workers, ResourceStore(settings), RunContext(request=""), settings, emit)


def echo(number: int, text: str, *dep: int) -> Task:
    return Task(task="echo", id=number, dep=list(dep) or [-1], args={"text": text})


async def test_a_reference_is_replaced_by_what_the_task_made(settings):
    worker = FakeWorker()
    async with executor(settings, echo=worker) as run:
        results = await run.join(
            [echo(0, "hello"), echo(1, "<resource>-0", 0), echo(2, "say: <resource>-1!", 1)]
        )
    assert [r.output for r in results] == ["hello", "hello", "say: hello!"]


async def test_results_come_in_plan_order_whoever_ends_first(settings):
    slow = FakeWorker(gate=lambda step: asyncio.sleep(0.05) if step.task.id == 0 else None)
    async with executor(settings, echo=slow) as run:
        results = await run.join([echo(0, "a"), echo(1, "b")])
    assert [r.task.id for r in results] == [0, 1]


async def test_a_task_starts_when_its_own_dependencies_end_and_waits_for_no_other(settings):
    """There is no barrier: task 2 needs only task 1, and ends while task 0 still runs."""
    two_ended = asyncio.Event()

    def gate(step: TaskCall) -> object:
        if step.task.id == 0:
            return two_ended.wait()
        if step.task.id == 2:
            two_ended.set()
        return None

    async with executor(settings, echo=FakeWorker(gate=gate)) as run:
        results = await run.join([echo(0, "slow"), echo(1, "quick"), echo(2, "<resource>-1", 1)])
    assert [r.status for r in results] == ["ok", "ok", "ok"]


async def test_independent_tasks_run_at_the_same_time(settings):
    both = asyncio.Barrier(2)
    async with executor(settings, echo=FakeWorker(gate=lambda step: both.wait())) as run:
        results = await run.join([echo(0, "a"), echo(1, "b")])
    assert all(r.status == "ok" for r in results)


async def test_no_more_tasks_run_at_once_than_the_settings_say(settings):
    running, most = 0, 0

    async def gate(step: TaskCall) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    limited = settings.model_copy(update={"max_parallel": 3})
    async with executor(limited, echo=FakeWorker(gate=gate)) as run:
        await run.join([echo(i, "x") for i in range(20)])
    assert most == 3


async def test_selection_happens_while_the_dependencies_still_run(settings):
    """Task 0 ends only after the model of task 1 has been chosen."""
    chosen = asyncio.Event()

    def choose(task: Task) -> None:
        if task.id == 1:
            chosen.set()

    worker = FakeWorker(choose=choose, gate=lambda step: chosen.wait() if step.task.id == 0 else None)
    async with executor(settings, echo=worker) as run:
        results = await run.join([echo(0, "a"), echo(1, "<resource>-0", 0)])
    assert [r.status for r in results] == ["ok", "ok"]
    assert results[1].selection is not None


async def test_a_failure_skips_its_dependants_and_nothing_else(settings):
    def gate(step: TaskCall) -> None:
        if step.task.id == 0:
            raise ValueError("no luck")

    async with executor(settings, echo=FakeWorker(gate=gate)) as run:
        plan = [echo(0, "a"), echo(1, "<resource>-0", 0), echo(2, "<resource>-1", 1), echo(3, "free")]
        results = await run.join(plan)
    assert [r.status for r in results] == ["failed", "skipped", "skipped", "ok"]
    assert "no luck" in (results[0].error or "")
    assert results[1].error == "it needs task 0 (echo), which failed"
    assert results[2].error == "it needs task 1 (echo), which was skipped"
    assert results[2].started == results[2].ended


async def test_a_task_for_which_no_model_is_left_fails_with_the_reason(settings):
    def choose(task: Task) -> None:
        raise NoCandidateError("nothing here can echo")

    async with executor(settings, echo=FakeWorker(choose=choose)) as run:
        (result,) = await run.join([echo(0, "a")])
    assert (result.status, result.error) == ("failed", "nothing here can echo")


async def test_a_task_that_takes_too_long_is_stopped_and_named(settings):
    short = settings.model_copy(update={"task_timeout": 0.05})
    async with executor(short, echo=FakeWorker(gate=lambda step: asyncio.sleep(60))) as run:
        (result,) = await run.join([echo(0, "a")])
    assert result.status == "failed"
    assert "JARVIS_TASK_TIMEOUT" in (result.error or "")


async def test_at_the_run_deadline_what_was_finished_stays(settings):
    worker = FakeWorker(gate=lambda step: asyncio.sleep(60) if step.task.id == 1 else None)
    async with executor(settings, echo=worker) as run:
        results = await run.join([echo(0, "a"), echo(1, "b"), echo(2, "<resource>-1", 1)], deadline=0.2)
    assert [r.status for r in results] == ["ok", "failed", "failed"]
    assert "JARVIS_RUN_TIMEOUT" in (results[1].error or "")


async def test_a_dependency_that_is_in_no_plan_is_told_and_not_waited_for(settings):
    async with executor(settings) as run:
        (result,) = await run.join([echo(1, "x", 7)])
    assert (result.status, result.error) == ("skipped", "it needs task 7 (unknown), which failed")


async def test_leaving_the_block_early_leaves_no_coroutine_behind(settings):
    before = asyncio.all_tasks()
    stopped = asyncio.Event()

    async def gate(step: TaskCall) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    async with executor(settings, echo=FakeWorker(gate=gate)) as run:
        run.add(echo(0, "a"))
        await asyncio.sleep(0.01)
    assert stopped.is_set()
    assert asyncio.all_tasks() == before


async def test_tasks_may_be_added_while_others_run(settings):
    gate = asyncio.Event()
    async with executor(settings, echo=FakeWorker(gate=lambda step: gate.wait())) as run:
        run.add(echo(0, "first"))
        await asyncio.sleep(0)
        gate.set()
        results = await run.join([echo(0, "first"), echo(1, "<resource>-0", 0)])
    assert [r.output for r in results] == ["first", "first"]


async def test_a_result_without_the_kind_that_is_needed_is_an_error_that_says_so(settings):
    workers = {"echo": FakeWorker(), "look": FakeWorker(LOOK)}
    async with executor(settings, **workers) as run:
        look = Task(task="look", id=1, dep=[0], args={"image": "<resource>-0"})
        results = await run.join([echo(0, "words"), look])
    assert "produced text; its image is needed" in (results[1].error or "")


async def test_the_events_of_a_task_come_in_their_order(settings):
    events: list[Event] = []
    async with executor(settings, events.append) as run:
        await run.join([echo(0, "a")])
    assert [event.kind for event in events] == ["task", "selected", "started", "finished"]


async def test_a_list_of_references_gives_a_list(settings):
    worker = FakeWorker()
    async with executor(settings, echo=worker) as run:
        both = Task(task="echo", id=2, dep=[0, 1], args={"text": ["<resource>-0", "<resource>-1"]})
        await run.join([echo(0, "a"), echo(1, "b"), both])
    assert worker.seen[-1] == {"text": ["a", "b"]}


async def test_what_was_tried_is_told_of_a_task_that_is_stopped(settings):
    """The deadline of the task passes while its second try runs: the first one is not lost."""

    async def gate(step: TaskCall) -> None:
        step.attempts.append(Attempt(model="a", backend="b", started=0, ended=1, error="503"))
        await asyncio.sleep(60)

    short = settings.model_copy(update={"task_timeout": 0.2})
    async with executor(short, echo=FakeWorker(gate=gate)) as run:
        (result,) = await run.join([echo(0, "a")])
    assert [attempt.error for attempt in result.attempts] == ["503"]
    assert result.selection is not None
    assert 0 < result.ended - result.started < 5


async def test_at_the_run_deadline_the_choice_and_the_tries_are_kept_too(settings):
    async def gate(step: TaskCall) -> None:
        step.attempts.append(Attempt(model="a", backend="b", started=0, ended=1, error="503"))
        await asyncio.sleep(60)

    async with executor(settings, echo=FakeWorker(gate=gate)) as run:
        (result,) = await run.join([echo(0, "a")], deadline=0.2)
    assert result.selection is not None
    assert len(result.attempts) == 1


async def test_tasks_that_wait_for_each_other_fail_at_once_and_say_so(settings):
    async with executor(settings) as run:
        plan = [echo(0, "x", 1), echo(1, "x", 0), echo(2, "<resource>-1", 1), echo(3, "<resource>-3")]
        results = await run.join(plan)
    assert [r.status for r in results] == ["failed", "failed", "skipped", "failed"]
    assert results[0].error == "it waits for its own result"


async def test_a_task_that_nobody_offers_fails_in_words(settings):
    async with executor(settings) as run:
        (result,) = await run.join([Task(task="nonsense", id=0)])
    assert "no task 'nonsense'" in (result.error or "")


async def test_what_a_detection_found_may_stand_in_an_argument_of_data(settings):
    crop = TaskSpec("crop", "media", "Crop it.", (Arg("box", "data"),), ("text",))
    found = [{"label": "dog", "score": 0.9, "box": {"xmin": 1, "ymin": 2, "xmax": 3, "ymax": 4}}]
    boxes = TaskResult(
        task=Task(task="find", id=0),
        status="ok",
        resources=(Resource(kind="data", data=found),),
        output=found,
    )
    task = Task(task="crop", id=1, dep=[0], args={"box": "<resource>-0"})
    assert await bind_inputs(task, crop, {0: boxes}, ResourceStore(settings)) == {"box": found}


@pytest.mark.parametrize("box", [[1, 2, 3, 4], {"xmin": 1, "ymin": 2, "xmax": 3, "ymax": 4}, 512, "512"])
async def test_numbers_and_boxes_are_given_on_as_they_are(settings, box):
    crop = TaskSpec("crop", "media", "Crop it.", (Arg("box", "data"),), ("text",))
    task = Task(task="crop", id=0, args={"box": box})
    assert await bind_inputs(task, crop, {}, ResourceStore(settings)) == {"box": box}


async def test_a_list_of_files_may_mix_names_and_references(settings, tmp_path):
    for name in ("made.txt", "own.txt"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    spec = TaskSpec("rank", "multimodal", "Rank them.", (Arg("file", "file", many=True),), ("data",))
    made = Resource(kind="file", path=tmp_path / "made.txt")
    drawn = TaskResult(task=Task(task="draw", id=0), status="ok", resources=(made,))
    store = ResourceStore(settings)
    store.admit([made])
    await store.grant(str(tmp_path / "own.txt"))
    args = {"file": ["<resource>-0", str(tmp_path / "own.txt")]}
    inputs = await bind_inputs(Task(task="rank", id=1, dep=[0], args=args), spec, {0: drawn}, store)
    assert [resource.path.name for resource in inputs["file"]] == ["made.txt", "own.txt"]
