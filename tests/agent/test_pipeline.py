"""A run from beginning to end: what was finished is kept, whatever fails after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from stages import FakeStage, plan_of, saying

from jarvis_agent import JarvisAgent, Plan, Settings, Task
from jarvis_agent.core.errors import LLMError
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate

PLAN = '[{"task": "summarization", "id": 0, "dep": [-1], "args": {"text": "a long text"}}]'


QUICK = {"context_window": 128_000}
"""Planning does not wait for sentence embeddings."""


def agent(
    tmp_path: Any, responder: FakeStage, planner: FakeStage | None = None, **settings: Any
) -> JarvisAgent:
    return JarvisAgent(
        model=ScriptedLLM({"plan": PLAN}),
        sources=[FakeSource([fake_candidate("summarization")])],
        backends=[FakeBackend({"summarization": {"summary_text": "short"}})],
        planner=planner,
        responder=responder,
        settings=Settings(output_dir=tmp_path, offline=True, **QUICK, **settings),
    )


async def test_the_answer_is_what_the_responder_says(tmp_path):
    async with agent(tmp_path, FakeStage(saying("It is ", "short."))) as jarvis:
        run = await jarvis.ainvoke("Shorten it")
    assert run.answer == "It is short."


@pytest.mark.parametrize("pieces", [(ValueError("a bug"),), ("It i", ValueError("a bug"))])
async def test_a_responder_that_fails_does_not_take_the_results_with_it(tmp_path, pieces):
    async with agent(tmp_path, FakeStage(saying(*pieces))) as jarvis:
        run = await jarvis.ainvoke("Shorten it")
    assert run.results[0].output == {"summary_text": "short"}
    assert "short" in run.answer
    assert run.answer.startswith("It i\n\n" if len(pieces) > 1 else "Here")


async def test_a_responder_that_outlasts_the_run_is_cut_off_and_the_report_is_given(tmp_path):
    async with agent(tmp_path, FakeStage(saying("It i", 60)), run_timeout=1.0) as jarvis:
        run = await jarvis.ainvoke("Shorten it")
    assert run.answer.startswith("It i\n\n")
    assert "summarization" in run.answer


async def test_a_responder_that_never_waits_and_never_ends_is_cut_off(tmp_path):
    async def endless(inputs: Any) -> AsyncIterator[str]:
        while True:
            yield "on "

    async with agent(tmp_path, FakeStage(endless), llm_timeout=0.25) as jarvis:
        run = await jarvis.ainvoke("Shorten it")
    assert run.answer.startswith("on on ")
    assert "JARVIS_LLM_TIMEOUT" in run.answer


async def test_a_run_that_is_left_early_is_cancelled(tmp_path):
    before = asyncio.all_tasks()
    async with agent(tmp_path, FakeStage(saying(60))) as jarvis:
        async for event in jarvis.events("Shorten it"):
            if event.kind == "finished":
                break
        await asyncio.sleep(0.05)
    assert asyncio.all_tasks() == before


SUM = Task(task="summarization", id=0, dep=[-1], args={"text": "a long text"})


@pytest.mark.parametrize(
    ("error", "told"), [(ValueError("a bug"), "ValueError"), (LLMError("it hung up"), "it hung up")]
)
async def test_what_a_planner_gave_out_is_done_and_told_even_if_it_fails_then(tmp_path, error, told):
    async with agent(tmp_path, FakeStage(saying("ok")), FakeStage(plan_of(SUM, error))) as jarvis:
        run = await jarvis.ainvoke("Shorten it")
    assert [result.status for result in run.results] == ["ok"]
    assert [task.id for task in run.plan.tasks] == [0]
    assert told in run.plan.notes[0]
    assert "a bug" not in run.plan.notes[0]


async def test_a_planner_that_returns_no_plan_is_reported(tmp_path):
    planner = FakeStage(saying(Plan(tasks=[SUM]), "translation"))
    async with agent(tmp_path, FakeStage(saying("ok")), planner) as jarvis:
        run = await jarvis.ainvoke("Shorten it")
    assert [result.status for result in run.results] == ["ok"]
    assert "TypeError" in run.plan.notes[0]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "url": "http://127.0.0.1:9/gone.png"},
        {"type": "image", "url": "/no/such/file.png"},
        {"type": "image", "file_id": "file-1"},
    ],
)
async def test_an_old_attachment_that_is_gone_does_not_stop_the_chat(tmp_path, block):
    earlier = [{"role": "user", "content": [block]}, {"role": "assistant", "content": "A cat."}]
    async with agent(tmp_path, FakeStage(saying("It is short."))) as jarvis:
        run = await jarvis.ainvoke({"input": "Shorten it", "chat_history": earlier})
    assert run.answer == "It is short."


async def test_the_longest_file_name_that_there_is_is_the_one_that_is_meant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "照片1.txt").write_text("words")
    reader = FakeStage(saying("done"))
    async with agent(tmp_path / "out", reader) as jarvis:
        await jarvis.ainvoke("总结照片1.txt里的文字")
    files = reader.inputs[0]["files"]
    assert [(file.name, file.path) for file in files] == [("照片1.txt", tmp_path / "照片1.txt")]


@pytest.mark.parametrize(
    "words", ["describe ~nouser/x.png", f"describe {'a' * 300}.png", "see http://[abc/x.png"]
)
async def test_an_odd_name_in_the_words_does_not_stop_the_run(tmp_path, words):
    async with agent(tmp_path, FakeStage(saying("done"))) as jarvis:
        assert (await jarvis.ainvoke(words)).answer == "done"
