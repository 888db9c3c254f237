"""Every wait has an end: slow sources, slow choices, slow tools; what is there is used meanwhile."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.tools import ToolException
from small_agents import CAPTION, DESCRIBE, block, picture, small_agent

from jarvis_agent import JarvisAgent, Settings, hf_tools
from jarvis_agent.core.errors import DeadlineError, InputError
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate, Task
from jarvis_agent.media.store import ResourceStore
from jarvis_agent.planning.offline import OfflinePlanner
from jarvis_agent.planning.plan import Plan
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate

REQUEST = "Describe a.jpg"
SHORT = Settings(llm_timeout=0.4, retries=0)
QUICK: dict[str, Any] = {"context_window": 128_000}
"""Planning does not wait for sentence embeddings."""

DRIP = tuple(part for _ in range(2000) for part in (" ", 0.02))
"""A language model that writes white space for ever, so that no silence is too long."""


pytestmark = pytest.mark.usefixtures("home")


class Silent(FakeSource):
    """A source that never answers."""

    def __init__(self) -> None:
        super().__init__([], "silent")

    async def candidates(self, spec: TaskSpec, limit: int) -> list[Candidate]:
        await asyncio.Event().wait()
        return []


async def test_a_source_that_never_answers_holds_neither_the_run_nor_the_choice() -> None:
    sources = [Silent(), FakeSource([fake_candidate("image-to-text")])]
    agent = JarvisAgent(
        ScriptedLLM({"plan": DESCRIBE, "respond": "Done."}),
        sources=sources,
        backends=[FakeBackend({"image-to-text": CAPTION})],
        settings=SHORT,
    )
    async with asyncio.timeout(30), agent:
        run = await agent.ainvoke(REQUEST)
    assert [result.status for result in run.results] == ["ok"]
    assert run.results[0].selection is not None
    assert "JARVIS_LLM_TIMEOUT" in run.results[0].selection.rejected["source silent"]


async def test_a_language_model_that_does_not_choose_in_time_leaves_it_to_the_rank() -> None:
    """It drips words for ever, so that no silence is too long."""
    drip = tuple(part for _ in range(2000) for part in ("…", 0.02))
    agent, _, _ = small_agent(models=["a", "b"], select=drip, settings=SHORT)
    async with asyncio.timeout(30), agent:
        run = await agent.ainvoke(REQUEST)
    selection = run.results[0].selection
    assert selection is not None
    assert (selection.model, selection.chosen_by) == ("image-to-text/a", "rank")
    assert "did not choose in time" in selection.reason


async def test_a_selector_that_never_chooses_fails_its_task_alone() -> None:
    async def undecided(inputs: Any) -> str:
        return str(await asyncio.Event().wait())

    settings = Settings(task_timeout=0.2)
    agent, _, _ = small_agent(models=["a", "b"], selector=undecided, settings=settings)
    async with asyncio.timeout(30), agent:
        run = await agent.ainvoke(REQUEST)
    assert [result.status for result in run.results] == ["failed"]
    assert "model selection for image-to-text did not finish within 0.2 s" in (run.results[0].error or "")
    assert run.results[0].failure == "DeadlineError"


async def test_a_tool_called_alone_has_the_deadline_of_a_task() -> None:
    async def hang(call: Any) -> Any:
        await asyncio.Event().wait()

    (tool,) = hf_tools(
        tasks=["image-to-text"],
        sources=[FakeSource([fake_candidate("image-to-text")])],
        backends=[FakeBackend({"image-to-text": hang})],
        settings=Settings(task_timeout=0.2),
    )
    tool.handle_tool_error = False
    with pytest.raises(ToolException, match="JARVIS_TASK_TIMEOUT"):
        async with asyncio.timeout(30):
            await tool.ainvoke({"image": "a.jpg"})


async def test_a_disk_that_does_not_answer_a_tool_called_alone_holds_up_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, answered, mkdir = threading.Event(), Future[bool](), Path.mkdir

    def slow(path: Path, *args: Any, **options: Any) -> None:
        if path.parent == tmp_path:
            answered.set_result(answers.wait(2.0))
        mkdir(path, *args, **options)

    async def write(call: Any) -> Any:
        await asyncio.to_thread(call.new_path, ".txt")

    monkeypatch.setattr(Path, "mkdir", slow)
    monkeypatch.setattr("jarvis_agent.core.concurrency.limits.CANCEL_GRACE_S", 0.05)
    (tool,) = hf_tools(
        tasks=["image-to-text"],
        sources=[FakeSource([fake_candidate("image-to-text")])],
        backends=[FakeBackend({"image-to-text": write})],
        settings=Settings(task_timeout=0.2, output_dir=tmp_path),
    )
    assert "JARVIS_TASK_TIMEOUT" in await tool.ainvoke({"image": "a.jpg"})
    answers.set()
    assert await asyncio.to_thread(answered.result, 10)


async def test_a_run_whose_time_is_over_tells_what_is_done_and_what_is_not() -> None:
    async def hang(call: Any) -> Any:
        await asyncio.Event().wait()

    written = (
        '[{"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": "a.jpg"}},'
        ' {"task": "translation", "id": 1, "dep": [-1], "args": {"text": "hi", "tgt_lang": "fr"}}]'
    )
    agent, llm, _ = small_agent(written, {"translation": hang}, settings=Settings(run_timeout=2.0, **QUICK))
    async with asyncio.timeout(30), agent:
        run = await agent.ainvoke(REQUEST)
    assert [result.status for result in run.results] == ["ok", "failed"]
    assert CAPTION in run.answer
    assert "translation" in run.answer
    assert "JARVIS_RUN_TIMEOUT" in run.answer
    assert "replan" not in llm.stages()


async def never(*_: Any, **__: Any) -> Any:
    await asyncio.Event().wait()


async def test_planning_has_a_limit_of_its_own_and_what_was_planned_by_then_is_done() -> None:
    agent, _, _ = small_agent((DESCRIBE[:-1], *DRIP), settings=Settings(llm_timeout=0.2, **QUICK))
    async with asyncio.timeout(30), agent:
        run = await agent.ainvoke(REQUEST)
    assert [result.status for result in run.results] == ["ok"]
    assert run.plan.notes == ["planning did not finish in its time (1 s, 5 × JARVIS_LLM_TIMEOUT)"]
    assert run.answer == "It is done."


async def test_where_nothing_was_planned_in_time_it_is_planned_without_the_language_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def plan(self: Any, *args: Any) -> Plan:
        return Plan(tasks=[Task(task="image-to-text", id=0, args={"image": "a.jpg"})])

    monkeypatch.setattr(OfflinePlanner, "ainvoke", plan)
    agent, _, _ = small_agent(DRIP, settings=Settings(llm_timeout=0.1, **QUICK))
    async with asyncio.timeout(30), agent:
        run = await agent.ainvoke(REQUEST)
    assert [result.status for result in run.results] == ["ok"]


async def test_an_answer_that_is_late_is_the_report() -> None:
    agent, _, _ = small_agent(respond=("It is", *DRIP), settings=Settings(llm_timeout=0.25, **QUICK))
    async with asyncio.timeout(30), agent:
        run = await agent.ainvoke(REQUEST)
    assert run.answer.startswith("It is")
    assert "0.5 s, 2 × JARVIS_LLM_TIMEOUT" in run.answer
    assert CAPTION in run.answer


async def test_a_plan_alone_has_the_limits_of_a_run() -> None:
    for settings in (Settings(llm_timeout=0.1, **QUICK), Settings(run_timeout=2.0, **QUICK)):
        agent, _, _ = small_agent(DRIP, settings=settings)
        async with asyncio.timeout(30), agent:
            plan = await agent.aplan(REQUEST)
        assert "did not finish in its time" in plan.notes[0]


@pytest.mark.parametrize("seam", ["workers", "grant", "keep", "grant_mention"])
@pytest.mark.parametrize("way", ["run", "plan"])
async def test_what_comes_before_planning_is_a_part_of_the_run(
    seam: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*((JarvisAgent, "_runners") if seam == "workers" else (ResourceStore, seam)), never)
    agent, _, _ = small_agent(settings=Settings(run_timeout=0.3))
    request: Any = {"input": REQUEST, "files": ["a.jpg"] if seam == "grant" else []}
    if seam == "keep":
        request = {"messages": [HumanMessage([{"type": "text", "text": REQUEST}, block("a.jpg")])]}
    before = asyncio.all_tasks()
    async with asyncio.timeout(30), agent:
        with pytest.raises(DeadlineError, match="JARVIS_RUN_TIMEOUT"):
            await (agent.ainvoke(request) if way == "run" else agent.aplan(request))
    assert asyncio.all_tasks() == before


async def test_files_are_opened_at_once_and_there_is_a_most_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    opening, grant, names = asyncio.Barrier(3), ResourceStore.grant, ["a.jpg", "b.jpg", "c.jpg"]

    async def together(self: ResourceStore, name: str) -> Any:
        await opening.wait()
        return await grant(self, name)

    monkeypatch.setattr(ResourceStore, "grant", together)
    for name in names:
        picture(Path(name))
    agent, _, _ = small_agent("[]", settings=Settings(max_files=3, **QUICK))
    async with asyncio.timeout(30), agent:
        run = await agent.ainvoke({"input": "hello", "files": names})
        assert run.answer == "Hello!"
        with pytest.raises(InputError, match="4 files, more than 3"):
            await agent.ainvoke({"input": "hello", "files": [*names, "a.jpg"]})


class Mute(FakeSource):
    """A source that lists its models, and then tells nothing of them."""

    describe = find = never


async def test_a_source_that_does_not_describe_its_models_leaves_the_choice_to_the_rank() -> None:
    models = [fake_candidate("image-to-text", name, downloads=n) for n, name in enumerate(("b", "a"))]
    llm = ScriptedLLM({"plan": DESCRIBE, "respond": "Done.", "select": '{"id": "b"}'})
    agent = JarvisAgent(
        llm, sources=[Mute(models)], backends=[FakeBackend({"image-to-text": CAPTION})], settings=SHORT
    )
    async with asyncio.timeout(30), agent:
        run = await agent.ainvoke(REQUEST)
    selection = run.results[0].selection
    assert selection is not None
    assert (selection.model, selection.chosen_by) == ("a", "rank")
    assert "JARVIS_LLM_TIMEOUT" in selection.reason


async def test_a_source_that_does_not_find_a_pinned_model_holds_nobody() -> None:
    agent = JarvisAgent(
        ScriptedLLM({"plan": DESCRIBE, "respond": "Done."}),
        sources=[Mute([fake_candidate("image-to-text", "a")])],
        backends=[FakeBackend({"image-to-text": CAPTION})],
        models={"image-to-text": "my/own"},
        settings=Settings(llm_timeout=0.4, offline=False),
    )
    async with asyncio.timeout(30), agent:
        run = await agent.ainvoke(REQUEST)
    selection = run.results[0].selection
    assert selection is not None
    assert (selection.model, selection.chosen_by) == ("my/own", "pinned")
    assert "JARVIS_LLM_TIMEOUT" in selection.rejected["source fake"]


@pytest.mark.parametrize("slow", ["prepare", "close"])
async def test_a_disk_that_does_not_answer_holds_no_run(slow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    free = threading.Event()
    monkeypatch.setattr(ResourceStore, slow, lambda self: free.wait(60))
    monkeypatch.setattr("jarvis_agent.core.concurrency.limits.CANCEL_GRACE_S", 0.1)
    agent, _, _ = small_agent(settings=Settings(run_timeout=1.0, **QUICK))
    try:
        async with asyncio.timeout(20):
            with suppress(DeadlineError):
                assert (await agent.ainvoke(REQUEST)).plan.tasks
    finally:
        free.set()
