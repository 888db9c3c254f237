"""If the language model fails, its tasks so far are run and the run says what is wrong."""

import re
from typing import Any

import pytest
from doubles.openai_server import DROP, HANG, REFUSE, Failure, OpenAIDouble
from small_agents import CAPTION, DESCRIBE_ALOUD, small_agent, small_run

from jarvis_agent import JarvisAgent, Run, Settings
from jarvis_agent.testing import FakeSource, ScriptedLLM, fake_candidate

pytestmark = pytest.mark.usefixtures("home")


def served(double: OpenAIDouble, **settings: Any) -> JarvisAgent:
    source = FakeSource([fake_candidate("image-to-text"), fake_candidate("text-to-speech")])
    _, _, backend = small_agent()
    chosen = Settings(**{"base_url": double.base_url, **settings})
    return JarvisAgent(sources=[source], backends=[backend], settings=chosen)


@pytest.mark.slow
def test_without_a_reply_the_answer_says_why_and_the_tasks_run() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        (
            {"api_key": "wrong-key-1234"},
            r"refused the key: .*\. What helps: set JARVIS_API_KEY to a key that it accepts",
        ),
        ({"base_url": "http://localhost:9/v1"}, "could not be reached.*that the server runs"),
    ]
    for settings, advice in cases:
        with OpenAIDouble({}, key="right") as double, served(double, **settings) as agent:
            run = agent.invoke("Describe a.jpg")
        assert re.search(advice, run.answer)
        assert "wrong-key-1234" not in run.model_dump_json()
        assert CAPTION in run.answer


PART = DESCRIBE_ALOUD.partition(', {"task": "text-to-speech"')[0] + ', {"task": "text-to-sp'


def test_if_the_plan_is_cut_off_the_tasks_so_far_are_run() -> None:
    with OpenAIDouble({"plan": (PART, DROP), "respond": "Done."}) as double, served(double) as agent:
        run = agent.invoke("Describe a.jpg and say it")
    assert [(result.task.task, result.status) for result in run.results] == [("image-to-text", "ok")]
    for part in ("dropped the connection", "left out"):
        assert any(part in note for note in run.plan.notes)
    assert "plan-notes" in double.requests[-1].prompt
    assert "dropped the connection" in double.requests[-1].prompt


def test_if_planning_fails_the_offline_planner_plans() -> None:
    cases: list[tuple[Any, str, float]] = [
        ((HANG,), "was silent for too long (0.9 s)", 0.9),  # all of planning has five times that
        (Failure(402, "no credit"), "your plan with the provider", 60),
        ("", "returned an empty reply", 60),
        ("I would look at it.", "planning failed: the reply contains no plan: ", 60),
    ]
    for reply, message, timeout in cases:
        replies = {"plan": reply, "repair": reply, "respond": (REFUSE,)}
        with OpenAIDouble(replies) as double, served(double, llm_timeout=timeout) as agent:
            run = agent.invoke("Describe a.jpg")
        assert message in run.plan.notes[0]
        assert message in run.answer
        assert [(result.task.task, result.status) for result in run.results] == [("image-to-text", "ok")]
        assert CAPTION in run.answer


def test_an_invalid_plan_is_repaired_once_and_then_answered_by_chat() -> None:
    for text in (
        "I am sorry, but I cannot do that.",
        '{"error": {"message": "overloaded"}}',
        '[{"task": 7, "id": {}, "dep": "x", "args": [[[]]]}]',
        "\x00\udcff\u202e}{][",
    ):
        llm = ScriptedLLM({"plan": text, "repair": text, "chat": "I could not plan that."})
        with JarvisAgent(llm, sources=[], backends=[]) as agent:
            run = agent.invoke("Good morning!")
        assert run.plan.tasks == []
        assert run.plan.notes
        assert run.answer.startswith("I could not plan that.")
        assert llm.stages() == ["plan", "repair", "chat"]
        assert Run.model_validate_json(run.model_dump_json()) == run


def test_an_error_of_each_stage_is_said_once() -> None:
    error = ConnectionRefusedError("gone")
    run, llm, _ = small_run("Describe a.jpg", error, select=error, respond=error, models=["a", "b"])
    assert llm.stages() == ["plan", "select", "respond"]
    assert CAPTION in run.answer
    assert run.answer.count("gone") == 1
    assert "Note:" not in run.answer, "the choice of a model is made by rank"
