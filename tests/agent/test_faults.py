"""Faults in every part of a run: an exception, a hang, a cancellation, an exit, a wrong type, a partial file.

The run ends within its time limits; `loop_time` lets them pass at once. Each task ends once, as ok, failed or
skipped. What does not need the broken part is done, the answer says what failed, and nothing is left running.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.tools import BaseTool
from small_agents import Row, hub_tools, plan
from stages import FakeStage
from threads import running_threads

from jarvis_agent import JarvisAgent, Run, Settings
from jarvis_agent.agent.stages import PipelineStages
from jarvis_agent.backends.base import Call
from jarvis_agent.core.errors import DeadlineError
from jarvis_agent.core.types import Task
from jarvis_agent.execution.fallback import HFTaskRunner
from jarvis_agent.execution.run import Event
from jarvis_agent.media.store import ResourceStore
from jarvis_agent.planning.plan import Plan
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM

pytestmark = pytest.mark.usefixtures("loop_time")
REQUEST = "Say it shorter, aloud, and translate it"
TRANSLATE: Row = ("translation", [], {"text": "a cat", "tgt_lang": "fr"})
SPEAK: Row = ("text-to-speech", [0], {"text": "<resource>-0"})
PLAN = plan(("summarization", [], {"text": "a long text"}), SPEAK, TRANSLATE)
RESULTS = {
    "summarization": {"summary_text": "short"},
    "text-to-speech": {"audio": np.zeros(160, dtype=np.float32), "sampling_rate": 16_000},
    "translation": {"translation_text": "un chat"},
    "image-to-text": "a cat",
}
FAULTS = ["exception", "hang", "cancel", "wrong type"]


async def fail(fault: str) -> Any:
    """Fail in one of the ways of FAULTS."""
    if fault == "hang":
        await asyncio.Event().wait()
    if fault == "cancel":
        raise asyncio.CancelledError
    if fault == "exception":
        raise ValueError("a fault")
    return object()


def broken(fault: str, original: Callable[..., Any], fails: Callable[..., bool]) -> Callable[..., Any]:
    """An async function that fails for some arguments."""

    async def call(*args: Any, **options: Any) -> Any:
        return await (fail(fault) if fails(*args) else original(*args, **options))

    return call


def agent(
    tmp_path: Path,
    results: Mapping[str, Any] = RESULTS,
    *,
    planned: str = PLAN,
    tools: Sequence[BaseTool] = (),
    planner: Any = None,
    responder: Any = None,
    **options: Any,
) -> JarvisAgent:
    """An agent whose plan has a task, a task that needs it, and an independent one."""
    fixed = {"output_dir": tmp_path / "out", "offline": True, "context_window": 128_000}
    settings = Settings(**(fixed | options))
    llm = ScriptedLLM({"plan": planned, "respond": "It is done.", "chat": "Hello!", "repair": "[]"})
    experts = hub_tools(*RESULTS, experts=results, settings=settings)
    return JarvisAgent(llm, [*experts, *tools], planner=planner, responder=responder, settings=settings)


async def checked_run(jarvis: JarvisAgent, request: str = REQUEST) -> Run:
    """Run the request; check that each task ends once and that no coroutine or thread is left."""
    tasks, threads = asyncio.all_tasks(), running_threads()
    finished: Counter[int] = Counter()
    run = Run()
    async for event in jarvis.aevents(request):
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
    assert running_threads() <= threads
    return run


def statuses(run: Run) -> list[str]:
    return [result.status for result in run.results]


def unnamed_files(run: Run, tmp_path: Path) -> set[Path]:
    """Files on disk that belong to no result."""
    named = {path for result in run.results for resource in result.resources if (path := resource.path)}
    return {path for path in (tmp_path / "out").rglob("*") if path.is_file()} - named


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    ("place", "method"),
    [
        (HFTaskRunner, "select"),
        (HFTaskRunner, "run"),
        (FakeSource, "candidates"),
        (FakeBackend, "run"),
        (ResourceStore, "text_of"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
async def test_a_fault_in_a_task_fails_only_the_task_and_its_dependants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Any, method: str, fault: str
) -> None:
    def fails(*args: Any) -> bool:
        """The call is for the first task, its models or its text."""
        specs = [getattr(value, "spec", value) for value in args[:2]]
        return bool({"summarization", "a long text"} & {getattr(spec, "name", str(spec)) for spec in specs})

    monkeypatch.setattr(place, method, broken(fault, getattr(place, method), fails))
    run = await checked_run(agent(tmp_path))
    if (method, fault) == ("text_of", "wrong type"):  # a double accepts any text
        assert run.ok
        return
    assert statuses(run) == ["failed", "skipped", "ok"]
    assert "summarization" in run.answer
    assert not unnamed_files(run, tmp_path)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("begun", [False, True], ids=["at once", "midway"])
@pytest.mark.parametrize("stage", ["planner", "responder"])
async def test_the_output_of_a_stage_before_its_fault_is_used(
    tmp_path: Path, stage: str, begun: bool, fault: str
) -> None:
    """The tasks of a broken planner are done; the report completes a broken answer."""
    first = Plan(tasks=[Task(task="translation", id=0, args={"text": "a cat", "tgt_lang": "fr"})])

    async def write(inputs: Any) -> AsyncIterator[Any]:
        if begun:
            yield first if stage == "planner" else "It is "
        yield await fail(fault)

    stages: dict[str, Any] = {stage: FakeStage(write)}
    run = await checked_run(agent(tmp_path, **stages))
    if stage == "planner":
        assert run.plan.notes
        assert fault != "exception" or "ValueError: a fault" in run.plan.notes[0]
        assert not begun or (run.plan.tasks, statuses(run)) == (first.tasks, ["ok"])
    else:
        assert statuses(run) == ["ok", "ok", "ok"]
        assert run.answer.startswith("It is " if begun else "- The summary")
        assert "un chat" in run.answer


@pytest.mark.parametrize("fault", ["disk", "hang", "cancel", "wrong type"])
async def test_a_partial_file_is_removed(tmp_path: Path, fault: str) -> None:
    async def write(call: Call) -> Any:
        call.new_path(".wav").write_bytes(b"RIFF\x00\x00")
        if fault == "disk":
            raise OSError(5, "Input/output error")
        return await fail(fault)

    run = await checked_run(agent(tmp_path, {**RESULTS, "text-to-speech": write}))
    assert statuses(run) == ["ok", "failed", "ok"]
    assert not unnamed_files(run, tmp_path)


class Unstoppable:
    """Work that ignores its cancellation until the test releases it."""

    def __init__(self) -> None:
        self.begun, self.release = asyncio.Event(), asyncio.Event()

    async def wait(self, *_: Any) -> Any:
        self.begun.set()
        while not self.release.is_set():
            with suppress(asyncio.CancelledError):
                await self.release.wait()

    async def end(self) -> None:
        self.release.set()
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("limit", ["task_timeout", "budget"])
async def test_an_expert_that_ignores_cancellation_is_abandoned(tmp_path: Path, limit: str) -> None:
    """Neither its task nor the run waits for it, and the file that it writes later is removed."""
    work = Unstoppable()

    async def write(call: Call) -> Any:
        path = call.new_path(".wav")
        await work.wait()
        path.parent.mkdir(exist_ok=True)  # the empty directory of the run was removed
        path.write_bytes(b"RIFF\x00\x00")
        raise ValueError("too late")

    limits: dict[str, Any] = {limit: {"seconds": 100} if limit == "budget" else 100}
    jarvis = agent(tmp_path, {**RESULTS, "text-to-speech": write}, **limits)
    run = await jarvis.ainvoke(REQUEST)
    assert statuses(run) == ["ok", "failed", "ok"]
    expected = {"task_timeout": "AllCandidatesFailedError", "budget": "DeadlineError"}
    assert run.results[1].failure == expected[limit]
    await work.end()
    assert not unnamed_files(run, tmp_path)
    await jarvis.aclose()


@pytest.mark.parametrize("way", ["limit", "cancel"])
@pytest.mark.parametrize("stage", ["workers", "planner", "responder"])
async def test_a_stage_that_ignores_cancellation_is_abandoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, way: str
) -> None:
    """At the run's time limit and when the run is cancelled; its later output is not used."""
    work = Unstoppable()
    late = Task(task="summarization", id=7, args={"text": "late"})

    async def write_late(inputs: Any) -> AsyncIterator[Any]:
        await work.wait()
        yield Plan(tasks=[late]) if stage == "planner" else "late"

    if stage == "workers":
        monkeypatch.setattr(PipelineStages, "find_runners", work.wait)
    stages: dict[str, Any] = {stage: FakeStage(write_late)} if stage in ("planner", "responder") else {}
    jarvis = agent(tmp_path, budget={"seconds": 100}, **stages)
    events: list[Event] = []

    async def read() -> Run:
        async for event in jarvis.aevents("Say it shorter"):
            events.append(event)  # noqa: PERF401 - what came before it was stopped counts too
        return events[-1].run or Run()

    running = asyncio.create_task(read())
    await work.begun.wait()
    if way == "cancel":
        running.cancel()
    await asyncio.wait([running])
    seen = len(events)
    await work.end()
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
