"""Look, and go on: after the results, the language model answers or adds tasks that need them."""

import asyncio
import json
from typing import Any

import pytest
from durable_agents import THREAD
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from small_agents import CAPTION, DESCRIBE, DESCRIBE_ALOUD, plan, small_agent
from waiting import until

from jarvis_agent import JarvisAgent, OfflinePlanner, Plan, Run, Settings
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.testing import ScriptedLLM, first_candidate

REQUEST = "What does a.jpg show? If it is a cat, say it aloud."
BROKEN = {"image-to-text": UnsupportedError("it reads no such image")}

pytestmark = pytest.mark.usefixtures("home")


def tasks(*rows: dict[str, Any]) -> str:
    return json.dumps({"tasks": [{"dep": [-1], **row} for row in rows]})


def look(task_id: int, task: str = "image-to-text") -> dict[str, Any]:
    return {"task": task, "id": task_id, "args": {"image": "a.jpg"}}


def speak(task_id: int, text: str) -> dict[str, Any]:
    return {"task": "text-to-speech", "id": task_id, "args": {"text": text}}


SPEAK = tasks(speak(1, "<resource>-0"))


def run_of(respond: Any, written: str = DESCRIBE, experts: Any = None, **options: Any) -> tuple[Run, Any]:
    """The sum of the chunks of a run, and its language model."""
    given = {"settings": Settings(), **options}
    agent, llm, _ = small_agent(written, experts, respond=respond, **given)
    with agent:
        run = sum(agent.stream(REQUEST), Run())
    assert len(run.plan.notes) == len(set(run.plan.notes))
    return run, llm


def outcome(run: Run) -> dict[int, tuple[str, str]]:
    assert [task.id for task in run.plan.tasks] == [result.task.id for result in run.results]
    return {result.task.id: (result.task.task, result.status) for result in run.results}


def test_a_step_that_depends_on_a_result_is_planned_when_it_is_known() -> None:
    run, llm = run_of([SPEAK, "It is a cat: 1-text-to-speech.wav."])
    assert outcome(run) == {0: ("image-to-text", "ok"), 1: ("text-to-speech", "ok")}
    assert run.plan.tasks[1].dep == [0]
    assert llm.stages() == ["plan", "respond", "respond"]
    assert run.usage["respond"].calls == 2
    assert run.answer == f"It is a cat: {run.results[1].resources[0].path}."
    second = str(llm.calls[2].messages[-1].text)
    for part in (REQUEST, '"task": "image-to-text"', '"task": "text-to-speech"'):
        assert part in second


def test_where_nothing_depends_on_results_there_is_no_further_call() -> None:
    run, llm = run_of("A cat.")
    assert (run.answer, llm.stages()) == ("A cat.", ["plan", "respond"])


def test_failed_tasks_are_done_in_another_way() -> None:
    other_way = tasks(look(2, "object-detection"), speak(3, "<resource>-2"))
    run, llm = run_of([other_way, "image-to-text failed; 3-text-to-speech.wav"], DESCRIBE_ALOUD, BROKEN)
    assert outcome(run) == {
        0: ("image-to-text", "failed"),
        1: ("text-to-speech", "skipped"),
        2: ("object-detection", "ok"),
        3: ("text-to-speech", "ok"),
    }
    assert "it reads no such image" in llm.calls[1].prompt


@pytest.mark.parametrize(("most", "calls"), [(1, 1), (2, 2), (3, 3)])
def test_the_number_of_rounds_is_limited(most: int, calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jarvis_agent.agent.pipeline.MAX_ROUNDS", most)
    replies = [tasks(speak(n, f"number {n}")) for n in range(1, 9)]
    run, llm = run_of(replies)
    assert llm.stages().count("respond") == calls
    assert len(run.plan.tasks) == most
    assert "Their ids are greater" not in llm.calls[-1].prompt
    assert [("Their ids are greater" in call.prompt) for call in llm.calls[1:-1]] == [True] * (calls - 1)


def test_a_repeated_task_ends_it() -> None:
    for again in (tasks(look(7)), tasks(look(7), speak(8, "<resource>-7")), tasks()):
        run, llm = run_of([again, "A cat."])
        assert outcome(run) == {0: ("image-to-text", "ok")}
        assert llm.stages() == ["plan", "respond", "respond"]
        assert "Their ids are greater" not in llm.calls[-1].prompt
        assert run.answer == "A cat."


def test_a_small_model_the_papers_prompts_a_saved_plan_and_another_planner_have_one_round() -> None:
    run, llm = run_of([SPEAK], llm_name="qwen-0.5b", planner=OfflinePlanner())
    assert llm.stages() == []
    run, llm = run_of([SPEAK], settings=Settings(prompts="paper"), models=["a", "b"], select=first_candidate)
    assert (len(run.plan.tasks), llm.stages().count("respond")) == (1, 1)
    agent, llm, _ = small_agent(respond=[SPEAK])
    with agent:
        saved = agent.invoke(agent.plan(REQUEST))
        assert len(saved.plan.tasks) == 1


def test_instructions_in_an_image_read_no_file_and_fetch_no_url(tmp_path: Any) -> None:
    """A model that obeys them can name only files of the request and of the run, and no allowed directory."""
    (secret := tmp_path / "secret.txt").write_text("the launch code is plum")
    images = [str(secret), "http://evil.example/x.png", f"file://{secret}"]
    looks = [
        {"task": "object-detection", "id": n, "args": {"image": name}} for n, name in enumerate(images, 1)
    ]
    settings = Settings(allowed_dirs=(tmp_path,))
    run, llm = run_of([tasks(*looks), "Done."], settings=settings)
    assert outcome(run) == {0: ("image-to-text", "ok")}
    assert llm.stages() == ["plan", "respond", "respond"]
    assert "there is no file" in str(run.plan.removed)
    for text in (str(secret), f"Read {secret}"):
        run, _ = run_of([tasks(speak(1, text)), "Done."], settings=settings)
        assert "plum" not in run.model_dump_json()


async def test_with_a_checkpointer_each_round_is_stored() -> None:
    """A run that was stopped in its second answer repeats no call and no task."""
    replies = [SPEAK, ("It is", 600.0), "It is a cat: 1-text-to-speech.wav."]
    agent, llm, backend = small_agent(respond=replies, checkpointer=InMemorySaver())
    async with agent:
        stopped = asyncio.create_task(agent.ainvoke(REQUEST, THREAD))
        await until(lambda: len(llm.calls) == 3)
        stopped.cancel()
        await asyncio.wait([stopped])
        run = await agent.ainvoke(None, THREAD)
    assert [status for _, status in outcome(run).values()] == ["ok", "ok"]
    assert llm.stages() == ["plan", "respond", "respond", "respond"]
    assert len(backend.calls) == 2
    assert run.usage["respond"].calls >= 2


async def test_a_further_round_can_be_edited_and_refers_to_earlier_results() -> None:
    agent, _, backend = small_agent(respond=[SPEAK, "Done."], checkpointer=InMemorySaver(), approve=True)
    edited = {"task": "translation", "id": 1, "dep": [0], "args": {"text": "<resource>-0"}}
    async with agent:
        await agent.ainvoke(REQUEST, THREAD)
        await agent.ainvoke(Command(resume=True), THREAD)
        waiting = (await agent.aget_state(THREAD)).waiting
        assert waiting is not None
        Plan.load(json.dumps(waiting["plan"]))  # as the terminal does
        run = await agent.ainvoke(Command(resume=[edited]), THREAD)
    assert outcome(run) == {0: ("image-to-text", "ok"), 1: ("translation", "ok")}
    assert backend.calls[-1].inputs["text"] == CAPTION


async def test_tools_may_be_called_like_steps_of_a_run() -> None:
    @tool
    def answer(text: str) -> str:
        """Answer."""
        return f"{text}!"

    @tool
    def decision(text: str) -> str:
        """Decide."""
        return f"{text}?"

    written = plan(("answer", [], {"text": "a"}), ("decision", [0], {"text": "<resource>-0"}))
    llm = ScriptedLLM({"plan": written, "respond": "Done."})
    agent = JarvisAgent(llm, tools=[answer, decision], checkpointer=InMemorySaver(), approve=True)
    async with agent:
        await agent.ainvoke(REQUEST, THREAD)
        run = await agent.ainvoke(Command(resume=True), THREAD)
    assert [result.output for result in run.results] == ["a!", "a!?"]
    assert run.answer == "Done."


@pytest.mark.parametrize("second", [True, False])
async def test_approval_is_asked_for_again_for_a_further_round(second: bool) -> None:
    replies = [SPEAK, "It is a cat."]
    agent, llm, backend = small_agent(respond=replies, checkpointer=InMemorySaver(), approve=True)
    async with agent:
        first = await agent.ainvoke(REQUEST, THREAD)
        assert [call.spec.name for call in backend.calls] == []
        assert not first.answer
        await agent.ainvoke(Command(resume=True), THREAD)
        waiting = (await agent.aget_state(THREAD)).waiting
        assert waiting is not None
        assert [action["name"] for action in waiting["action_requests"]] == ["text-to-speech"]
        assert [call.spec.name for call in backend.calls] == ["image-to-text"]
        run = await agent.ainvoke(Command(resume=second), THREAD)
        assert (await agent.aget_state(THREAD)).waiting is None
    assert len(run.plan.tasks) == 1 + second
    assert len(backend.calls) == 1 + second
    assert run.answer.startswith("It is a cat.")
    assert llm.stages() == ["plan", "respond", "respond"]
