"""A run from beginning to end: what was finished is kept, whatever fails after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from jarvis_agent import JarvisAgent, Plan, Settings, Task, TaskResult
from jarvis_agent.core.errors import LLMError
from jarvis_agent.core.request import RunContext
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate

PLAN = '[{"task": "summarization", "id": 0, "dep": [-1], "args": {"text": "a long text"}}]'


class Responder:
    """Says its pieces; an exception among them is raised, a number is a pause in seconds."""

    def __init__(self, *pieces: Any) -> None:
        self.pieces = pieces

    async def respond(
        self, brief: RunContext, plan: Plan, results: Sequence[TaskResult]
    ) -> AsyncIterator[str]:
        for piece in self.pieces:
            if isinstance(piece, Exception):
                raise piece
            if isinstance(piece, str):
                yield piece
            else:
                await asyncio.sleep(piece)


class Planner:
    """Gives out its tasks, then does what its last item says: raises it, or returns a plan of it."""

    def __init__(self, given: Sequence[Task], then: Exception | Sequence[Task]) -> None:
        self.given, self.then = given, then

    async def plan(self, brief: RunContext, on_task: Callable[[Task], None]) -> Plan:
        for task in self.given:
            on_task(task)
        if isinstance(self.then, Exception):
            raise self.then
        return Plan(tasks=list(self.then))


QUICK = {"context_window": 128_000}
"""Planning does not wait for sentence embeddings."""


def agent(
    tmp_path: Any, responder: Responder, planner: Planner | None = None, **settings: Any
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
    async with agent(tmp_path, Responder("It is ", "short.")) as jarvis:
        run = await jarvis.ainvoke("Shorten it")
    assert run.answer == "It is short."


@pytest.mark.parametrize("pieces", [(ValueError("a bug"),), ("It i", ValueError("a bug"))])
async def test_a_responder_that_fails_does_not_take_the_results_with_it(tmp_path, pieces):
    async with agent(tmp_path, Responder(*pieces)) as jarvis:
        run = await jarvis.ainvoke("Shorten it")
    assert run.results[0].output == {"summary_text": "short"}
    assert "short" in run.answer
    assert run.answer.startswith("It i\n\n" if len(pieces) > 1 else "Here")


async def test_a_responder_that_outlasts_the_run_is_cut_off_and_the_report_is_given(tmp_path):
    async with agent(tmp_path, Responder("It i", 60), run_timeout=1.0) as jarvis:
        run = await jarvis.ainvoke("Shorten it")
    assert run.answer.startswith("It i\n\n")
    assert "summarization" in run.answer


async def test_a_responder_that_never_waits_and_never_ends_is_cut_off(tmp_path):
    class Endless(Responder):
        async def respond(self, *_: Any) -> AsyncIterator[str]:
            while True:
                yield "on "

    async with agent(tmp_path, Endless(), llm_timeout=0.25) as jarvis:
        run = await jarvis.ainvoke("Shorten it")
    assert run.answer.startswith("on on ")
    assert "JARVIS_LLM_TIMEOUT" in run.answer


async def test_a_run_that_is_left_early_is_cancelled(tmp_path):
    before = asyncio.all_tasks()
    async with agent(tmp_path, Responder(60)) as jarvis:
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
    async with agent(tmp_path, Responder("ok"), Planner([SUM], error)) as jarvis:
        run = await jarvis.ainvoke("Shorten it")
    assert [result.status for result in run.results] == ["ok"]
    assert [task.id for task in run.plan.tasks] == [0]
    assert told in run.plan.notes[0]
    assert "a bug" not in run.plan.notes[0]


async def test_a_planner_that_gives_out_what_is_no_task_is_told(tmp_path):
    async with agent(tmp_path, Responder("ok"), Planner([SUM, "translation"], [])) as jarvis:
        run = await jarvis.ainvoke("Shorten it")
    assert [result.status for result in run.results] == ["ok"]
    assert "TypeError" in run.plan.notes[0]


async def test_a_planner_that_gives_out_tasks_in_a_thread_is_told_and_they_are_done(tmp_path):
    class Bare(Planner):
        async def plan(self, brief: RunContext, on_task: Callable[[Task], None]) -> Plan:
            await asyncio.to_thread(on_task, SUM)
            return Plan()

    async with agent(tmp_path, Responder("ok"), Bare([], [])) as jarvis:
        run = await jarvis.ainvoke("Shorten it")
    assert [result.status for result in run.results] == ["ok"]
    assert "RuntimeError" in run.plan.notes[0]


async def test_a_planner_that_forgets_what_it_gave_out_does_not_make_it_undone(tmp_path):
    async with agent(tmp_path, Responder("ok"), Planner([SUM], [])) as jarvis:
        run = await jarvis.ainvoke("Shorten it")
    assert [result.status for result in run.results] == ["ok"]


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
    async with agent(tmp_path, Responder("It is short.")) as jarvis:
        run = await jarvis.ainvoke({"input": "Shorten it", "chat_history": earlier})
    assert run.answer == "It is short."


async def test_the_longest_file_name_that_there_is_is_the_one_that_is_meant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "照片1.txt").write_text("words")
    seen: list[RunContext] = []

    class Reader(Responder):
        async def respond(
            self, brief: RunContext, plan: Plan, results: Sequence[TaskResult]
        ) -> AsyncIterator[str]:
            seen.append(brief)
            yield "done"

    async with agent(tmp_path / "out", Reader()) as jarvis:
        await jarvis.ainvoke("总结照片1.txt里的文字")
    assert [(file.name, file.path) for file in seen[0].files] == [("照片1.txt", tmp_path / "照片1.txt")]


@pytest.mark.parametrize(
    "words", ["describe ~nouser/x.png", f"describe {'a' * 300}.png", "see http://[abc/x.png"]
)
async def test_an_odd_name_in_the_words_does_not_stop_the_run(tmp_path, words):
    async with agent(tmp_path, Responder("done")) as jarvis:
        assert (await jarvis.ainvoke(words)).answer == "done"
