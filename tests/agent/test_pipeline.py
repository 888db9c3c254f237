"""Custom planners and responders that fail, and file names in requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from stages import FakeStage, plan_of, saying

from jarvis_agent import JarvisAgent, Settings, Task
from jarvis_agent.core.errors import LLMError
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate

PLAN = '[{"task": "summarization", "id": 0, "dep": [-1], "args": {"text": "a long text"}}]'


def agent(
    tmp_path: Any, responder: FakeStage, planner: FakeStage | None = None, **settings: Any
) -> JarvisAgent:
    return JarvisAgent(
        model=ScriptedLLM({"plan": PLAN}),
        sources=[FakeSource([fake_candidate("summarization")])],
        backends=[FakeBackend({"summarization": {"summary_text": "short"}})],
        planner=planner,
        responder=responder,
        settings=Settings(output_dir=tmp_path, offline=True, context_window=128_000, **settings),
    )


async def test_a_responder_that_never_waits_and_never_ends_is_cut_off(tmp_path, loop_time):
    async def endless(inputs: Any) -> AsyncIterator[str]:
        while True:
            loop_time.skip(1)
            yield "on "

    async with agent(tmp_path, FakeStage(endless)) as jarvis:
        run = await jarvis.ainvoke("Shorten it")
    assert run.answer.startswith("on on ")
    assert "JARVIS_LLM_TIMEOUT" in run.answer


async def test_the_error_of_a_planner_is_a_note_and_its_tasks_are_run(tmp_path):
    """Only messages of our own errors are shown."""
    task = Task(task="summarization", id=0, dep=[-1], args={"text": "a long text"})
    for error, message in ((ValueError("a bug"), "ValueError"), (LLMError("it hung up"), "it hung up")):
        async with agent(tmp_path, FakeStage(saying("ok")), FakeStage(plan_of(task, error))) as jarvis:
            run = await jarvis.ainvoke("Shorten it")
        assert [(result.task.id, result.status) for result in run.results] == [(0, "ok")]
        assert message in run.plan.notes[0]
        assert "a bug" not in run.plan.notes[0]


async def test_unusable_names_and_earlier_attachments_do_not_stop_a_run(tmp_path):
    blocks = [
        {"type": "image", "url": "http://127.0.0.1:9/gone.png"},
        {"type": "image", "url": "/no/such/file.png"},
        {"type": "image", "file_id": "file-1"},
    ]
    earlier = [{"role": "user", "content": blocks}, {"role": "assistant", "content": "A cat."}]
    async with agent(tmp_path, FakeStage(saying("done"))) as jarvis:
        for text in ("describe ~nouser/x.png", f"describe {'a' * 300}.png", "see http://[abc/x.png"):
            assert (await jarvis.ainvoke({"input": text, "chat_history": earlier})).answer == "done"


async def test_the_longest_existing_file_name_in_a_request_is_its_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "照片1.txt").write_text("words")
    responder = FakeStage(saying("done"))
    async with agent(tmp_path / "out", responder) as jarvis:
        await jarvis.ainvoke("总结照片1.txt里的文字")
    files = responder.inputs[0]["files"]
    assert [(file.name, file.path) for file in files] == [("照片1.txt", tmp_path / "照片1.txt")]
