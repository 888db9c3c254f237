"""A run from beginning to end: what was finished is kept, whatever fails after it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from stages import FakeStage, plan_of, saying

from jarvis_agent import JarvisAgent, Settings, Task
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


async def test_a_responder_that_outlasts_the_run_is_cut_off_and_the_report_is_given(tmp_path, loop_time):
    async with agent(tmp_path, FakeStage(saying("It i", 60)), run_timeout=50) as jarvis:
        run = await jarvis.ainvoke("Shorten it")
    assert run.answer.startswith("It i\n\n")
    assert "summarization" in run.answer


async def test_a_responder_that_never_waits_and_never_ends_is_cut_off(tmp_path, loop_time):
    async def endless(inputs: Any) -> AsyncIterator[str]:
        while True:
            loop_time.skip(1)
            yield "on "

    async with agent(tmp_path, FakeStage(endless)) as jarvis:
        run = await jarvis.ainvoke("Shorten it")
    assert run.answer.startswith("on on ")
    assert "JARVIS_LLM_TIMEOUT" in run.answer


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


async def test_an_old_attachment_that_is_gone_does_not_stop_the_chat(tmp_path):
    blocks = [
        {"type": "image", "url": "http://127.0.0.1:9/gone.png"},
        {"type": "image", "url": "/no/such/file.png"},
        {"type": "image", "file_id": "file-1"},
    ]
    earlier = [{"role": "user", "content": blocks}, {"role": "assistant", "content": "A cat."}]
    async with agent(tmp_path, FakeStage(saying("It is short."))) as jarvis:
        run = await jarvis.ainvoke({"input": "Shorten it", "chat_history": earlier})
    assert run.answer == "It is short."


async def test_the_longest_file_name_in_a_request_is_the_one_that_is_meant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "照片1.txt").write_text("words")
    reader = FakeStage(saying("done"))
    async with agent(tmp_path / "out", reader) as jarvis:
        await jarvis.ainvoke("总结照片1.txt里的文字")
    files = reader.inputs[0]["files"]
    assert [(file.name, file.path) for file in files] == [("照片1.txt", tmp_path / "照片1.txt")]


async def test_an_odd_name_in_a_request_does_not_stop_the_run(tmp_path):
    async with agent(tmp_path, FakeStage(saying("done"))) as jarvis:
        for words in ("describe ~nouser/x.png", f"describe {'a' * 300}.png", "see http://[abc/x.png"):
            assert (await jarvis.ainvoke(words)).answer == "done"
