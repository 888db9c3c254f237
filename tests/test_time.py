"""Every wait has an end: slow sources, slow choices, slow tools; what is there is used meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import ToolException
from small_agents import CAPTION, DESCRIBE, picture, small_agent

from jarvis_agent import JarvisAgent, Settings, hf_tools
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate
from jarvis_agent.tools.spec import TaskSpec
from jarvis_agent.types import Candidate, Selection, Task

REQUEST = "Describe a.jpg"
SHORT = Settings(select_timeout=0.4, retries=0)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    picture(tmp_path / "a.jpg")


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
    assert "JARVIS_SELECT_TIMEOUT" in run.results[0].selection.rejected["source silent"]


async def test_a_language_model_that_does_not_choose_in_time_leaves_it_to_the_rank() -> None:
    """It drips words for ever, so that no silence is too long."""
    drip = tuple(part for _ in range(2000) for part in ("…", 0.02))
    agent, _, _ = small_agent(models=["a", "b"], select=drip, settings=SHORT)
    async with asyncio.timeout(30), agent:
        run = await agent.ainvoke(REQUEST)
    selection = run.results[0].selection
    assert selection is not None
    assert (selection.model, selection.by) == ("image-to-text/a", "rank")
    assert "did not choose in time" in selection.reason


async def test_a_selector_that_never_chooses_fails_its_task_alone() -> None:
    class Undecided:
        async def select(self, task: Task, spec: TaskSpec, brief: Any) -> Selection:
            await asyncio.Event().wait()
            raise AssertionError

    agent, _, _ = small_agent(selector=Undecided(), settings=Settings(task_timeout=0.2))
    async with asyncio.timeout(30), agent:
        run = await agent.ainvoke(REQUEST)
    assert [result.status for result in run.results] == ["failed"]
    assert "no model for image-to-text was chosen within 0.2 s" in (run.results[0].error or "")
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


async def test_a_run_whose_time_is_over_tells_what_is_done_and_what_is_not() -> None:
    async def hang(call: Any) -> Any:
        await asyncio.Event().wait()

    written = (
        '[{"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": "a.jpg"}},'
        ' {"task": "translation", "id": 1, "dep": [-1], "args": {"text": "hi", "tgt_lang": "fr"}}]'
    )
    agent, llm, _ = small_agent(written, {"translation": hang}, settings=Settings(run_timeout=1.0))
    async with asyncio.timeout(30), agent:
        run = await agent.ainvoke(REQUEST)
    assert [result.status for result in run.results] == ["ok", "failed"]
    assert CAPTION in run.answer
    assert "translation" in run.answer
    assert "JARVIS_RUN_TIMEOUT" in run.answer
    assert "replan" not in llm.stages()
