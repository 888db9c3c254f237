"""Faults in every part of a run: an exception, a hang, a cancellation, an exit, a wrong type, half a file.

The run ends within its time limits; `loop_time` lets them pass at once. Each task ends once, as ok, failed or
skipped. What does not need the broken part is done, the answer says what failed, and nothing is left running.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from small_agents import picture, plan
from stages import FakeStage

from jarvis_agent import JarvisAgent, Run, Settings, hf_tools
from jarvis_agent.backends.base import Call
from jarvis_agent.core.context import RunContext
from jarvis_agent.core.errors import DeadlineError
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Task, TaskResult
from jarvis_agent.execution.executor import Executor
from jarvis_agent.execution.run import Event
from jarvis_agent.media.store import ResourceStore
from jarvis_agent.planning.plan import Plan
from jarvis_agent.response.chain import template_responder
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate
from jarvis_agent.tools.hf_task_tool import HFTaskRunner

pytestmark = pytest.mark.usefixtures("loop_time")
PLAN = plan(
    ("summarization", [], {"text": "a long text"}),
    ("text-to-speech", [0], {"text": "<resource>-0"}),
    ("translation", [], {"text": "a cat", "tgt_lang": "fr"}),
)
RESULTS = {
    "summarization": {"summary_text": "short"},
    "text-to-speech": {"audio": np.zeros(160, dtype=np.float32), "sampling_rate": 16_000},
    "translation": {"translation_text": "un chat"},
}
QUICK = {"retries": 0, "context_window": 128_000}
FAULTS = ["exception", "hang", "cancel", "exit", "interrupt", "wrong type"]


async def strike(fault: str) -> Any:
    """What a broken part does in the place of its work."""
    if fault == "hang":
        await asyncio.Event().wait()
    if fault == "cancel":
        raise asyncio.CancelledError
    if fault == "exit":
        raise SystemExit(3)
    if fault == "interrupt":
        raise KeyboardInterrupt
    if fault == "exception":
        raise ValueError("a fault")
    return object()


def broken(fault: str, original: Callable[..., Any], meant: Callable[..., bool]) -> Callable[..., Any]:
    """An async function that strikes where it is meant to, and else does its work."""

    async def call(*args: Any, **options: Any) -> Any:
        if meant(*args, **options):
            return await strike(fault)
        return await original(*args, **options)

    return call


def agent(
    tmp_path: Path,
    backend: FakeBackend | None = None,
    planner: Any = None,
    responder: Any = None,
    **settings: Any,
) -> JarvisAgent:
    given = Settings(output_dir=tmp_path / "out", offline=True, **{**QUICK, **settings})
    llm = ScriptedLLM({"plan": PLAN, "respond": "It is done.", "chat": "Hello!", "repair": "[]"})
    tools = hf_tools(
        tasks=RESULTS,
        sources=[FakeSource(fake_candidate(task) for task in RESULTS)],
        backends=[backend or FakeBackend(RESULTS)],
        settings=given,
    )
    return JarvisAgent(llm, tools, planner=planner, responder=responder, settings=given)


async def watched(jarvis: JarvisAgent, request: str = "Say it shorter, aloud, and translate it") -> Run:
    """The run, after it is seen that it ended, once for each task, and left nothing behind."""
    tasks, threads = asyncio.all_tasks(), _threads()
    finished: Counter[int] = Counter()
    run = Run()
    async for event in jarvis.events(request):
        if event.kind == "finished" and event.task:
            finished[event.task.id] += 1
        run = event.run or run
    await jarvis.aclose()
    assert finished == Counter(task.id for task in run.plan.tasks)
    assert [result.task for result in run.results] == run.plan.tasks
    assert all(result.error for result in run.results if result.status != "ok")
    assert run.answer
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == tasks
    assert _threads() <= threads
    return run


def _threads() -> set[str]:
    """Those beside the reserves of the event loop and of planning, which stay for the next work."""
    for thread in threading.enumerate():
        if thread.name == "jarvis-daemon":
            thread.join(1.0)  # its work is done, and it is about to end
    kept = ("asyncio_", "AnyIO")
    return {thread.name for thread in threading.enumerate() if not thread.name.startswith(kept)}


def statuses(run: Run) -> list[str]:
    return [result.status for result in run.results]


def left_over(run: Run, tmp_path: Path) -> set[Path]:
    """The files on disk that no result names."""
    named = {path for result in run.results for resource in result.resources if (path := resource.path)}
    return {path for path in (tmp_path / "out").rglob("*") if path.is_file()} - named


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    ("place", "seam"),
    [
        (HFTaskRunner, "select"),
        (HFTaskRunner, "run"),
        (FakeSource, "candidates"),
        (FakeBackend, "run"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
async def test_a_fault_in_one_task_is_that_task_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Any, seam: str, fault: str
) -> None:
    """Task 0 is struck: it fails, task 1, which needs it, is skipped, and task 2 is done."""

    def meant(*args: Any) -> bool:
        told = [args[0], *args[1:2]]
        return any(
            "summarization" in str(getattr(one, "name", one)) or one == "a long text" for one in told
        ) or (isinstance(args[1], Call) and args[1].spec.name == "summarization")

    monkeypatch.setattr(place, seam, broken(fault, getattr(place, seam), meant))
    run = await watched(agent(tmp_path))
    assert statuses(run) == ["failed", "skipped", "ok"]
    assert "summarization" in run.answer
    assert not left_over(run, tmp_path)


OPENED: dict[str, tuple[str, Any]] = {
    "text_of": ("summarization", {"text": "a long text"}),
    "path_of": ("ruined", {"text": "a long text"}),
    "resolve": ("image-to-text", {"image": "a.jpg"}),
    "grant": ("image-to-text", {"image": "http://example.org/a.jpg"}),
}
"""The store's coroutines that the executor awaits: a task whose argument each of them opens."""


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("seam", OPENED)
async def test_a_fault_in_opening_an_argument_is_its_task_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seam: str, fault: str
) -> None:
    """What the planner wrote is opened when the task runs: a file, a text, a URL that the request named."""
    picture(tmp_path / "a.jpg")
    monkeypatch.chdir(tmp_path)
    task, args = OPENED[seam]
    struck: list[str] = []

    def meant(store: Any, value: Any, *_: Any) -> bool:
        struck.append(value)
        return value in args.values() or str(value).endswith("a.jpg")

    monkeypatch.setattr(ResourceStore, seam, broken(fault, getattr(ResourceStore, seam), meant))

    @tool
    async def ruined(text: str) -> str:
        """A tool that is one of nobody's."""
        return text

    rows = [(task, [], args), ("translation", [0], {"text": "<resource>-0", "tgt_lang": "fr"})]
    results = {**RESULTS, "image-to-text": "a cat"}
    given = Settings(output_dir=tmp_path / "out", **QUICK)
    tools = hf_tools(
        tasks=results,
        sources=[FakeSource(fake_candidate(name) for name in results)],
        backends=[FakeBackend(results)],
        settings=given,
    )
    llm = ScriptedLLM({"plan": plan(*rows, *[("translation", [], {"text": "a", "tgt_lang": "fr"})])})
    jarvis = JarvisAgent(llm, [*tools, ruined], responder=template_responder(), settings=given)
    named = "at http://example.org/a.jpg" if seam == "grant" else "in a.jpg"
    run = await watched(jarvis, f"What is {named}?")
    assert struck
    if fault == "wrong type":
        # What the store gives goes on as it is, and a double takes anything.
        assert run.results[2].status == "ok"
    else:
        assert statuses(run) == ["failed", "skipped", "ok"]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("begun", [False, True], ids=["at once", "midway"])
@pytest.mark.parametrize("stage", ["planner", "responder"])
async def test_a_stage_that_breaks_leaves_what_it_gave(
    tmp_path: Path, stage: str, begun: bool, fault: str
) -> None:
    """The tasks of a broken planner are done; the report completes a broken answer."""
    first = Plan(tasks=[Task(task="translation", id=0, args={"text": "a cat", "tgt_lang": "fr"})])

    async def write(inputs: Any) -> AsyncIterator[Any]:
        if begun:
            yield first if stage == "planner" else "It is "
        yield await strike(fault)

    run = await watched(agent(tmp_path, **{stage: FakeStage(write)}))
    if stage == "planner":
        assert run.plan.notes
        assert not begun or (run.plan.tasks, statuses(run)) == (first.tasks, ["ok"])
    else:
        assert statuses(run) == ["ok", "ok", "ok"]
        assert run.answer.startswith("It is " if begun else "Here")
        assert "un chat" in run.answer


@pytest.mark.parametrize("fault", FAULTS)
async def test_planning_again_that_breaks_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    async def replan(inputs: Any) -> Any:
        return await strike(fault)

    monkeypatch.setattr(
        "jarvis_agent.agent.stages.replanning_chain", lambda *args, **options: RunnableLambda(replan)
    )
    run = await watched(agent(tmp_path, FakeBackend({**RESULTS, "summarization": ValueError("no")})))
    assert statuses(run) == ["failed", "skipped", "ok"]
    assert any("planning again" in note or "the planner" in note for note in run.plan.notes)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("stage", ["plan", "respond"])
async def test_a_language_model_that_breaks_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, fault: str
) -> None:
    original = ScriptedLLM._astream

    async def stream(self: Any, messages: Any, *args: Any, **options: Any) -> AsyncIterator[Any]:
        if messages[0].additional_kwargs.get("jarvis_stage") == stage:
            yield await strike(fault)
        async for chunk in original(self, messages, *args, **options):
            yield chunk

    monkeypatch.setattr(ScriptedLLM, "_astream", stream)
    run = await watched(agent(tmp_path))
    if stage == "respond":
        assert statuses(run) == ["ok", "ok", "ok"]
        assert "un chat" in run.answer
    else:
        assert run.plan.notes


@pytest.mark.parametrize("failure", ["the disk", "a hang", "a cancellation", "a wrong result"])
async def test_half_a_file_is_removed(tmp_path: Path, failure: str) -> None:
    async def write(call: Call) -> Any:
        path = call.new_path(".wav")
        path.write_bytes(b"RIFF\x00\x00")
        if failure == "the disk":
            raise OSError(5, "Input/output error")
        return await strike({"a hang": "hang", "a cancellation": "cancel"}.get(failure, "wrong type"))

    run = await watched(agent(tmp_path, FakeBackend({**RESULTS, "text-to-speech": write})))
    assert statuses(run) == ["ok", "failed", "ok"]
    assert not left_over(run, tmp_path)


@pytest.mark.parametrize("fault", ["exception", "hang", "cancel", "wrong type"])
async def test_a_result_store_that_breaks_stops_the_run(tmp_path: Path, fault: str) -> None:
    """What is not stored must not be used: the executor raises, or ends at its deadline."""
    ran: list[int] = []

    class Store:
        async def get_or_run(self, task: Task, work: Callable[[], Any]) -> Any:
            result = await work()
            return await strike(fault) if task.id == 0 else result

    class Worker:
        spec = TASKS["summarization"]

        async def select(self, task: Task, context: RunContext) -> None:
            return None

        async def run(self, selection: Any, step: Any) -> TaskResult:
            ran.append(step.task.id)
            return TaskResult(task=step.task, status="ok")

    before, settings = asyncio.all_tasks(), Settings(output_dir=tmp_path)
    tasks = [Task(task="summarization", id=0), Task(task="summarization", id=1, dep=[0])]
    store = ResourceStore(settings)
    executor = Executor({"summarization": Worker()}, store, RunContext(""), settings, results=Store())
    try:
        async with executor:
            results = await executor.join(tasks, deadline=100)
            assert [result.status for result in results] == ["failed", "failed"]
    except (ValueError, AttributeError, asyncio.CancelledError):
        assert fault != "hang"
    assert ran == [0]
    assert asyncio.all_tasks() == before


class Deaf:
    """A part that goes on whoever cancels it, until the test lets it go."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()

    async def wait(self, *_: Any) -> Any:
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                continue


@pytest.mark.parametrize("limit", ["task_timeout", "run_timeout"])
async def test_an_expert_that_does_not_stop_is_left_alone(tmp_path: Path, limit: str) -> None:
    """It swallows its cancellation, and holds neither its task nor the run. What it writes is removed."""
    deaf = Deaf()

    async def write(call: Call) -> Any:
        path = call.new_path(".wav")
        await deaf.wait()
        path.write_bytes(b"RIFF\x00\x00")

    jarvis = agent(tmp_path, FakeBackend({**RESULTS, "text-to-speech": write}), **{limit: 100.0})
    run = await jarvis.ainvoke("Say it shorter, aloud, and translate it")
    assert statuses(run) == ["ok", "failed", "ok"]
    expected = "AllCandidatesFailedError" if limit == "task_timeout" else "DeadlineError"
    assert run.results[1].failure == expected
    deaf.let_go.set()
    await asyncio.sleep(0.05)
    assert not left_over(run, tmp_path)
    await jarvis.aclose()


@pytest.mark.parametrize("way", ["limit", "cancel"])
@pytest.mark.parametrize("stage", ["workers", "planner", "responder", "replan"])
async def test_a_stage_that_does_not_stop_holds_the_run_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, way: str
) -> None:
    """Neither the run's limit nor a cancellation waits for it; what it writes later counts for nothing."""
    deaf, begun = Deaf(), asyncio.Event()
    late = Task(task="summarization", id=7, args={"text": "late"})

    async def wait(*_: Any) -> Any:
        begun.set()
        await deaf.wait()

    async def write_late(inputs: Any) -> AsyncIterator[Any]:
        await wait()
        yield Plan(tasks=[late]) if stage == "planner" else "late"

    if stage == "workers":
        monkeypatch.setattr(JarvisAgent, "_runners", wait)
    elif stage == "replan":
        monkeypatch.setattr(
            "jarvis_agent.agent.stages.replanning_chain", lambda *args, **options: RunnableLambda(wait)
        )
    given: dict[str, Any] = {stage: FakeStage(write_late)} if stage in ("planner", "responder") else {}
    backend = FakeBackend({**RESULTS, "summarization": ValueError("no")} if stage == "replan" else RESULTS)
    jarvis = agent(tmp_path, backend, run_timeout=100.0, **given)
    events: list[Event] = []

    async def read() -> Run:
        async for event in jarvis.events("Say it shorter"):
            events.append(event)  # noqa: PERF401 - what came before it was stopped counts too
        return events[-1].run or Run()

    running = asyncio.create_task(read())
    await begun.wait()
    if way == "cancel":
        running.cancel()
    await asyncio.wait([running])
    seen = len(events)
    deaf.let_go.set()
    await asyncio.sleep(0.05)
    assert len(events) == seen
    if way == "cancel":
        assert running.cancelled()
    elif stage == "workers":
        assert isinstance(running.exception(), DeadlineError)
    else:
        run = running.result()
        assert "late" not in run.answer.split()
        assert late not in run.plan.tasks
        assert run.answer
    await jarvis.aclose()
