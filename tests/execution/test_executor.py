"""The executor: when tasks start, what fails with what, and how inputs are bound."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from clock import LoopTime
from small_agents import picture

from jarvis_agent.core.context import RunContext
from jarvis_agent.core.references import refs_in
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import Arg, TaskSpec
from jarvis_agent.core.types import Attempt, Resource, Selection, Task, TaskResult
from jarvis_agent.execution.executor import Executor
from jarvis_agent.execution.inputs import TaskCall, bind_inputs, runs_of
from jarvis_agent.execution.run import Event
from jarvis_agent.media.store import ResourceStore

ECHO = TaskSpec("echo", "text", "Repeat it.", (Arg("text", "text"),), ("text",))
LOOK = TaskSpec("look", "vision", "Look at it.", (Arg("image", "image"),), ("text",))


async def _ready(value: Any) -> None:
    if asyncio.iscoroutine(value):
        await value


@dataclass
class EchoRunner:
    """Repeats its text, once `gate` has ended; `choose` is called for each selection."""

    gate: Callable[[TaskCall], object] = lambda call: None
    choose: Callable[[Task], object] = lambda task: None
    spec: TaskSpec = ECHO
    inputs: list[dict[str, Any]] = field(default_factory=list)

    async def select(self, task: Task, context: RunContext) -> Selection | None:
        await _ready(self.choose(task))
        return Selection(model="org/echo", reason="it is the only one", chosen_by="only")

    async def run(self, selection: Selection | None, call: TaskCall) -> TaskResult:
        self.inputs.append(dict(call.inputs))
        await _ready(self.gate(call))
        text = str(call.inputs.get("text", "done"))
        made = [Resource(kind="text", text=text)]
        return TaskResult(task=call.task, status="ok", output=text, resources=made)


def echo(number: int, text: Any, *dep: int) -> Task:
    return Task(task="echo", id=number, dep=list(dep) or [-1], args={"text": text})


@pytest.fixture
def store(tmp_path: Path) -> ResourceStore:
    return ResourceStore(Settings(output_dir=tmp_path))


Execute = Callable[..., Any]
NO_TASK = "there is no task 'nonsense' here; the planner made it up"


@pytest.fixture
def execute(store: ResourceStore) -> Execute:
    async def run(
        *tasks: Task, runner: EchoRunner | None = None, deadline: float | None = None, **settings: Any
    ) -> list[TaskResult]:
        runners = {"echo": runner or EchoRunner(), "look": EchoRunner(spec=LOOK)}
        given = Settings(**{"budget": {"seconds": 600}, "task_timeout": 300, **settings})
        async with Executor(runners, store, RunContext(request=""), given, lambda _: None) as executor:
            return await executor.join(tasks, deadline)

    return run


def statuses(results: list[TaskResult]) -> list[str]:
    return [result.status for result in results]


async def test_references_are_replaced_by_results(execute: Execute) -> None:
    runner = EchoRunner()
    both = echo(3, ["<resource>-0", "<resource>-1"], 0, 1)
    results = await execute(
        echo(0, "hello"), echo(1, "<resource>-0", 0), echo(2, "say: <resource>-1!", 1), both, runner=runner
    )
    assert [result.output for result in results[:3]] == ["hello", "hello", "say: hello!"]
    assert {"text": ["hello", "hello"]} in runner.inputs


async def test_a_task_starts_when_its_own_dependencies_have_ended(execute: Execute) -> None:
    """Task 2 needs only task 1, and ends while task 0 still runs; results are in plan order."""
    two_ended = asyncio.Event()

    def gate(call: TaskCall) -> object:
        if call.task.id == 2:
            two_ended.set()
        return two_ended.wait() if call.task.id == 0 else None

    results = await execute(
        echo(0, "slow"), echo(1, "quick"), echo(2, "<resource>-1", 1), runner=EchoRunner(gate)
    )
    assert [(result.task.id, result.status) for result in results] == [(0, "ok"), (1, "ok"), (2, "ok")]


async def test_a_model_is_selected_while_the_dependencies_run(execute: Execute) -> None:
    chosen = asyncio.Event()
    runner = EchoRunner(
        gate=lambda call: chosen.wait() if call.task.id == 0 else None,
        choose=lambda task: chosen.set() if task.id == 1 else None,
    )
    assert statuses(await execute(echo(0, "a"), echo(1, "<resource>-0", 0), runner=runner)) == ["ok", "ok"]


async def test_a_task_may_name_a_file_that_another_made(execute: Execute, tmp_path: Path) -> None:
    image = Resource(kind="image", path=picture(tmp_path / "made.png"))

    class Drawing(EchoRunner):
        async def run(self, selection: Selection | None, call: TaskCall) -> TaskResult:
            return (await super().run(selection, call)).model_copy(update={"resources": [image]})

    look = Task(task="look", id=1, dep=[0], args={"image": "made.png"})
    assert statuses(await execute(echo(0, "a"), look, runner=Drawing())) == ["ok", "ok"]


async def test_plans_that_cannot_work_fail_at_once(execute: Execute) -> None:
    look = Task(task="look", id=1, dep=[0], args={"image": "<resource>-0"})
    loop = [echo(0, "x", 1), echo(1, "x", 0), echo(2, "<resource>-1", 1), echo(3, "<resource>-3")]
    cases: list[tuple[list[Task], list[str], str]] = [
        ([echo(1, "x", 7)], ["skipped"], "it needs task 7 (unknown), which failed"),
        ([echo(1, "x", 7), echo(2, "x", 1)], ["skipped"] * 2, "it needs task 1 (echo), which was skipped"),
        (loop, ["failed", "failed", "skipped", "failed"], "it waits for its own result"),
        ([Task(task="nonsense", id=0)], ["failed"], NO_TASK),
        ([echo(0, "words"), look], ["ok", "failed"], "task 0 (echo) produced text; its image is needed here"),
    ]
    for tasks, expected, error in cases:
        results = await execute(*tasks)
        assert statuses(results) == expected
        assert error in [result.error for result in results]


@pytest.mark.parametrize("limit", ["task_timeout", "budget"])
async def test_a_task_that_is_stopped_keeps_its_selection_and_attempts(
    execute: Execute, limit: str, loop_time: LoopTime
) -> None:
    async def gate(call: TaskCall) -> None:
        if call.task.id == 1:
            call.attempts.append(Attempt(model="a", backend="b", started=0, ended=1, error="503"))
            await asyncio.Event().wait()

    options = {"task_timeout": 100} if limit == "task_timeout" else {"deadline": 100, "task_timeout": 200}
    done, late = await execute(echo(0, "a"), echo(1, "b"), runner=EchoRunner(gate), **options)
    assert (done.status, late.status, late.failure) == ("ok", "failed", "DeadlineError")
    assert f"JARVIS_{limit.upper()}" in (late.error or "")
    assert [attempt.error for attempt in late.attempts] == ["503"]
    assert late.selection is not None
    assert late.ended - late.started == pytest.approx(100, abs=20)


async def test_inputs_are_bound_by_the_kind_of_argument(store: ResourceStore, tmp_path: Path) -> None:
    for name in ("made.txt", "own.txt"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    made = Resource(kind="file", path=tmp_path / "made.txt")
    store.grant_resources([made])
    await store.grant(str(tmp_path / "own.txt"))
    boxes = [{"label": "dog", "box": {"xmin": 1, "ymin": 2, "xmax": 3, "ymax": 4}}]
    both = [made, Resource(kind="data", data=boxes)]
    found = TaskResult(task=Task(task="find", id=0), status="ok", output=boxes, resources=both)

    async def bound(arg: Arg, value: Any) -> Any:
        spec = TaskSpec("use", "media", "Use it.", (arg,), ("text",))
        task = Task(task="use", id=1, dep=[0], args={arg.name: value})
        return (await bind_inputs(task, spec, {0: found}, store, []))[arg.name]

    assert await bound(Arg("box", "data"), "<resource>-0") == boxes
    for plain in ([1, 2, 3, 4], boxes[0]["box"], 512, "512"):
        assert await bound(Arg("box", "data"), plain) == plain
    files = await bound(Arg("file", "file", many=True), ["<resource>-0", str(tmp_path / "own.txt")])
    assert [resource.path.name for resource in files] == ["made.txt", "own.txt"]


def result_of(name: str, *resources: Resource, number: int = 0) -> TaskResult:
    return TaskResult(task=Task(task=name, id=number), status="ok", resources=list(resources))


def image(name: str) -> Resource:
    return Resource(kind="image", path=Path("/out", name))


def args_of_runs(
    spec: TaskSpec, args: dict[str, Any], *results: TaskResult
) -> tuple[list[dict[str, Any]], bool]:
    found = {result.task.id: [result] for result in results}
    tasks, is_cut = runs_of(Task(task=spec.name, id=5, dep=list(found), args=args), spec, found)
    assert [set(task.dep) for task in tasks] == [{*refs_in(task.args)} or set(found) for task in tasks]
    return [task.args for task in tasks], is_cut


def test_results_of_their_own_are_frames_and_what_tools_return_but_no_masks() -> None:
    pictures = [image("a.png"), image("b.png")]
    data = Resource(kind="data", data=[1, 2])
    first, second = {"image": "<resource>-0[1]"}, {"image": "<resource>-0[2]"}
    once = [{"image": "<resource>-0"}]
    expected = {"extract-frames": [first, second], "my_tool": [first, second], "image-segmentation": once}
    for name, runs in expected.items():
        assert args_of_runs(LOOK, {"image": "<resource>-0"}, result_of(name, *pictures, data)) == (
            runs,
            False,
        )
    use = TaskSpec("use", "tool", "Use it.", (Arg("file", "file"), Arg("it", "any"), Arg("rows", "data")), ())
    for name in ("file", "it"):
        runs = args_of_runs(use, {name: "<resource>-0"}, result_of("extract-frames", *pictures, data))[0]
        assert runs == [{name: "<resource>-0[1]"}, {name: "<resource>-0[2]"}]
    assert args_of_runs(use, {"rows": "<resource>-0"}, result_of("extract-frames", *pictures, data)) == (
        [{"rows": "<resource>-0"}],
        False,
    )


def test_references_to_several_results_are_zipped_or_combined_and_limited() -> None:
    ask = TaskSpec("ask", "tool", "Ask.", (Arg("image", "image"), Arg("text", "text")), ("text",))
    both = {"image": "<resource>-0", "text": "<resource>-1"}
    texts = [Resource(kind="text", text=text) for text in "xyz"]

    def rows(pictures: int) -> list[tuple[str, str]]:
        made = result_of("take", *[image(f"{n}.png") for n in range(pictures)])
        found, _ = args_of_runs(ask, both, made, result_of("write", *texts, number=1))
        return [(args["image"][-2], args["text"][-2]) for args in found]

    assert rows(3) == [("1", "1"), ("2", "2"), ("3", "3")]
    assert rows(2) == [(a, b) for a in "12" for b in "123"]
    many = result_of("take", *[image(f"{n}.png") for n in range(70)])
    runs, is_cut = args_of_runs(LOOK, {"image": "<resource>-0"}, many)
    assert (len(runs), is_cut) == (64, True)


def test_all_results_are_used_where_a_list_is_taken_and_inside_a_text() -> None:
    pages = TaskSpec(
        "pages", "tool", "Rank.", (Arg("image", "image", many=True), Arg("text", "text")), ("text",)
    )
    made = result_of("take", image("a.png"), image("b.png"))
    texts = result_of("write", *[Resource(kind="text", text=text) for text in "xy"], number=1)
    args = {"image": ["<resource>-0", "c.png"], "text": "Say: <resource>-1!"}
    assert args_of_runs(pages, args, made, texts)[0] == [
        {
            "image": ["<resource>-0[1]", "<resource>-0[2]", "c.png"],
            "text": "Say: <resource>-1[1]\n<resource>-1[2]!",
        }
    ]
    listed = {"image": "<resource>-0 and <resource>-1"}
    other = result_of("draw", image("d.png"), number=1)
    images = ["<resource>-0[1]", "<resource>-0[2]", "<resource>-1"]
    assert [run["image"] for run in args_of_runs(LOOK, listed, made, other)[0]] == images


async def test_further_runs_have_the_selection_of_the_first_and_own_events(store: ResourceStore) -> None:
    """The model is chosen once. Those beyond the limit are left out, which the first result says."""

    class Writing(EchoRunner):
        async def run(self, selection: Selection | None, call: TaskCall) -> TaskResult:
            result = await super().run(selection, call)
            texts = [Resource(kind="text", text=f"{n}") for n in range(66 if call.task.id == 0 else 1)]
            return result.model_copy(update={"resources": texts})

    chosen: list[int] = []
    events: list[Event] = []
    runner = Writing(choose=lambda task: chosen.append(task.id))
    context = RunContext(request="")
    async with Executor({"echo": runner}, store, context, Settings(), events.append) as executor:
        results = await executor.join([echo(0, "a"), echo(1, "<resource>-0", 0), echo(2, "b")])
        assert await executor.join([result.task for result in results]) == results
    assert [result.task.id for result in results] == [0, 1, *range(2001, 2064), 2]
    assert chosen == [0, 1, 2]
    assert all(result.selection == results[1].selection for result in results[2:65])
    assert results[1].notes == ["there are more than 64 results; only the first were used"]
    own = [event.kind for event in events if event.task and event.task.id == 2001]
    assert own == ["task", "selected", "started", "finished"]
    assert executor.notes == ["task 1 (echo) was run 64 times, once for each result of task 0"]


def test_the_results_that_belong_to_a_failed_run_are_left_out_with_it() -> None:
    ask = TaskSpec("ask", "tool", "Ask.", (Arg("image", "image"), Arg("text", "text")), ("text",))
    said = [result_of("say", Resource(kind="text", text="x"), number=i) for i in (1, 2001, 2002)]
    said[1] = said[1].model_copy(update={"status": "failed", "resources": []})
    found = {0: [result_of("extract-frames", *[image(f"{n}.png") for n in "abc"])], 1: said}
    task = Task(task="ask", id=5, dep=[0, 1], args={"image": "<resource>-0", "text": "<resource>-1"})
    tasks, _ = runs_of(task, ask, found)
    assert [task.args for task in tasks] == [
        {"image": "<resource>-0[1]", "text": "<resource>-1[1]"},
        {"image": "<resource>-0[3]", "text": "<resource>-2002[1]"},
    ]
