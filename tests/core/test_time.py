"""Time limits of a run: slow models, sources, selectors, tools and disks cannot block it.

Time limits have their default values; `loop_time` lets them pass at once.
"""

import asyncio
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from clock import LoopTime
from langchain_core.messages import HumanMessage
from langchain_core.tools import ToolException
from small_agents import CAPTION, DESCRIBE, block, hub_tools, picture, plan, small_agent

from jarvis_agent import JarvisAgent, Settings
from jarvis_agent.agent.stages import PipelineStages
from jarvis_agent.core.errors import DeadlineError, InputError
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate, Selection
from jarvis_agent.media.run_directory import RunDirectory
from jarvis_agent.media.store import ResourceStore
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate

pytestmark = pytest.mark.usefixtures("home", "loop_time")

REQUEST = "Describe a.jpg"
SLOW = (" ", 20.0) * 100
"""A reply of white space; each pause is shorter than `llm_timeout`."""


async def never(*_: Any, **__: Any) -> Any:
    await asyncio.Event().wait()


class Silent(FakeSource):
    """A source that never answers."""

    candidates = never


class Mute(FakeSource):
    """A remote source that lists models, but never describes or finds one."""

    describe = find = never

    def estimate(self, spec: TaskSpec) -> list[Candidate]:
        return [fake_candidate(spec.name)]


async def selection_of(
    *sources: FakeSource, replies: dict[str, Any] | None = None, **options: Any
) -> Selection:
    """The selection in a run that captions an image."""
    agent = JarvisAgent(
        ScriptedLLM({"plan": DESCRIBE, "respond": "Done.", **(replies or {})}),
        sources=sources,
        backends=[FakeBackend({"image-to-text": CAPTION})],
        settings=Settings(offline=False, context_window=128_000),
        **options,
    )
    async with agent:
        events = {event.kind: event async for event in agent.aevents(REQUEST)}
    assert events["selected"].seconds - events["task"].seconds < 75, "the limit is 60 s"
    result = events["finished"].result
    assert result is not None
    assert result.status == "ok"
    assert result.selection is not None
    return result.selection


async def test_a_run_does_not_wait_for_a_source_that_never_answers() -> None:
    selection = await selection_of(Silent([], "silent"), FakeSource([fake_candidate("image-to-text")]))
    assert "JARVIS_LLM_TIMEOUT" in selection.rejected["source silent"]
    source = Mute([fake_candidate("image-to-text", "a")])
    selection = await selection_of(source, models={"image-to-text": "my/own"})
    assert (selection.model, selection.chosen_by) == ("my/own", "pinned")
    assert "JARVIS_LLM_TIMEOUT" in selection.rejected.get("source fake", ""), selection


async def test_the_rank_decides_without_a_choice_in_time() -> None:
    # Models without downloads count as unknown, so that both have some.
    models = [fake_candidate("image-to-text", name, downloads=n) for n, name in enumerate(("b", "a"), 1)]
    cases: list[tuple[FakeSource, Any, str]] = [
        (FakeSource(models), SLOW, "the choice of a model did not finish within"),
        (Mute(models), '{"id": "b"}', "JARVIS_LLM_TIMEOUT"),
    ]
    silent = Silent([], "silent")  # a source and the choice after it have half of the time each
    choice = await selection_of(silent, FakeSource(models), replies={"select": (" ", 20.0, '{"id": "b"}')})
    assert (choice.model, choice.chosen_by) == ("b", "llm")
    for source, reply, reason in cases:
        selection = await selection_of(silent, source, replies={"select": reply})
        assert (selection.model, selection.chosen_by) == ("a", "rank")
        assert reason in selection.reason


def captioner(expert: Any, settings: Settings | None = None) -> Any:
    return hub_tools("image-to-text", experts={"image-to-text": expert}, settings=settings)[0]


async def test_a_tool_called_alone_has_the_time_limit_of_a_task() -> None:
    tool = captioner(never)
    tool.handle_tool_error = False
    with pytest.raises(ToolException, match="JARVIS_TASK_TIMEOUT"):
        await tool.ainvoke({"image": "a.jpg"})


async def test_a_run_that_times_out_reports_what_is_done_and_what_is_not() -> None:
    written = plan(
        ("image-to-text", [], {"image": "a.jpg"}), ("translation", [], {"text": "hi", "tgt_lang": "fr"})
    )
    agent, llm, _ = small_agent(written, {"translation": never}, settings=Settings(budget={"seconds": 100}))
    async with agent:
        run = await agent.ainvoke(REQUEST)
    assert [result.status for result in run.results] == ["ok", "failed"]
    for part in (CAPTION, "translation", "JARVIS_BUDGET"):
        assert part in run.answer
    assert llm.stages() == ["plan"]


async def test_planning_and_the_answer_have_time_limits_and_keep_what_is_complete() -> None:
    agent, _, _ = small_agent((DESCRIBE[:-1], *SLOW), respond=("It is", *SLOW))
    async with agent:
        run = await agent.ainvoke(REQUEST)
    assert [result.status for result in run.results] == ["ok"]
    assert run.plan.notes == [
        "planning failed: the planner did not finish within 300 s. "
        "What helps: JARVIS_LLM_TIMEOUT=60 sets this limit"
    ]
    assert run.answer.startswith("It is")
    assert "JARVIS_LLM_TIMEOUT=60" in run.answer
    assert CAPTION in run.answer


async def test_a_plan_alone_has_the_time_limits_of_a_run() -> None:
    """If there is time left, the offline planner plans instead of a silent language model."""
    for settings, tasks in ((Settings(), ["image-to-text"]), (Settings(budget={"seconds": 100}), [])):
        agent, _, _ = small_agent(SLOW, settings=settings)
        async with agent:
            planned = await agent.aplan(REQUEST)
        assert "the planner did not finish within" in planned.notes[0]
        assert [task.task for task in planned.tasks] == tasks


@pytest.mark.parametrize("step", ["find_runners", "grant", "grant_block", "grant_mention"])
@pytest.mark.parametrize("way", ["run", "plan", "budget"])
async def test_the_time_limit_includes_what_precedes_planning(
    step: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = PipelineStages if step == "find_runners" else ResourceStore
    monkeypatch.setattr(owner, step, never)
    agent, llm, _ = small_agent(settings={"budget": {"seconds": 3}} if way == "budget" else None)
    request: Any = {"input": REQUEST, "files": ["a.jpg"] if step == "grant" else []}
    if step == "grant_block":
        request = {"messages": [HumanMessage([{"type": "text", "text": REQUEST}, block("a.jpg")])]}
    before = asyncio.all_tasks()
    async with agent:
        left = r"[23](\.\d+)?" if way == "budget" else r"(900|8\d\d)"  # when the reading began
        within = rf"within {left} s.*JARVIS_BUDGET"
        with pytest.raises(DeadlineError, match=within):
            await (agent.aplan(request) if way == "plan" else agent.ainvoke(request))
    assert llm.calls == []
    assert asyncio.all_tasks() == before


async def test_files_are_opened_concurrently_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    opening, grant, names = asyncio.Barrier(3), ResourceStore.grant, ["a.jpg", "b.jpg", "c.jpg"]

    async def together(self: ResourceStore, name: str) -> Any:
        await opening.wait()
        return await grant(self, name)

    monkeypatch.setattr(ResourceStore, "grant", together)
    for name in names:
        picture(Path(name))
    monkeypatch.setattr("jarvis_agent.media.store.MAX_FILES", 3)
    agent, _, _ = small_agent("[]")
    async with agent:
        run = await agent.ainvoke({"input": "hello", "files": names})
        assert run.answer == "Hello!"
        with pytest.raises(InputError, match="4 files, more than 3"):
            await agent.ainvoke({"input": "hello", "files": [*names, "a.jpg"]})


@pytest.mark.parametrize("slow", ["prepare", "close"])
async def test_a_blocked_disk_blocks_neither_a_run_nor_a_tool_called_alone(
    slow: str, monkeypatch: pytest.MonkeyPatch, loop_time: LoopTime
) -> None:
    free, freed = threading.Event(), list[bool]()

    def block(self: RunDirectory) -> None:
        loop_time.skip(1000)
        freed.append(free.wait(60))

    monkeypatch.setattr(RunDirectory, slow, block)
    agent, _, _ = small_agent()
    try:
        with suppress(DeadlineError):
            assert (await agent.ainvoke(REQUEST)).plan.tasks
        await captioner(CAPTION).ainvoke({"image": "a.jpg"})
    finally:
        free.set()
    assert all(freed)
