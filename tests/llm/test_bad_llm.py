"""A language model that fails: what it had planned is kept and run, and the run says what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from doubles.openai_server import DROP, GARBAGE, HANG, REFUSE, Failure, OpenAIDouble
from small_agents import CAPTION, DESCRIBE, DESCRIBE_ALOUD, small_agent

from jarvis_agent import JarvisAgent, Run, Settings
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.testing import FakeSource, ScriptedLLM, fake_candidate

pytestmark = pytest.mark.usefixtures("home")


def served(double: OpenAIDouble, **settings: Any) -> JarvisAgent:
    source = FakeSource([fake_candidate("image-to-text"), fake_candidate("text-to-speech")])
    _, _, backend = small_agent()
    chosen = Settings(base_url=double.base_url, **settings)
    return JarvisAgent(sources=[source], backends=[backend], settings=chosen)


def test_a_wrong_key_is_told_and_what_needs_no_language_model_is_done_all_the_same() -> None:
    with OpenAIDouble({}, key="right") as double, served(double, api_key="wrong-key-1234") as agent:
        run = agent.invoke("Describe a.jpg")
    assert "refused the key" in run.answer
    assert "Set JARVIS_API_KEY to a key that it accepts." in run.answer
    assert "wrong-key-1234" not in run.model_dump_json()
    assert CAPTION in run.answer


def patience(reply: Any) -> float:
    """The longest silence, in seconds: short only where the server falls silent for good."""
    return 0.3 if isinstance(reply, tuple) and HANG in reply else 60.0


PART = DESCRIBE_ALOUD.partition(', {"task": "text-to-speech"')[0] + ', {"task": "text-to-sp'
TROUBLES: dict[str, tuple[Any, str]] = {
    "garbage": ((PART, GARBAGE), "sent a reply that cannot be read"),
    "refuses": ((PART, REFUSE), "refused"),
    "hangs": ((PART, HANG), "was silent for too long (0.3 s)"),
    "drops": ((PART, DROP), "dropped the connection"),
}


@pytest.mark.parametrize(("reply", "told"), TROUBLES.values(), ids=TROUBLES)
def test_when_the_plan_breaks_off_the_tasks_so_far_are_kept_and_run(reply: Any, told: str) -> None:
    replies = {"plan": reply, "respond": "Done."}
    with OpenAIDouble(replies) as double, served(double, llm_timeout=patience(reply)) as agent:
        run = agent.invoke("Describe a.jpg and say it")
    assert [(result.task.task, result.status) for result in run.results] == [("image-to-text", "ok")]
    assert any(told in note for note in run.plan.notes)
    assert any("left out" in note for note in run.plan.notes)
    assert "plan-notes" in double.requests[-1].prompt
    assert told in double.requests[-1].prompt


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        ((GARBAGE,), "sent a reply that cannot be read"),
        ((REFUSE,), "refused"),
        ((HANG,), "was silent for too long (0.3 s). Try again, or raise JARVIS_LLM_TIMEOUT"),
        ((DROP,), "dropped the connection"),
        (Failure(404, "no such model"), "Set JARVIS_MODEL to a model that the server lists"),
        (Failure(402, "no credit"), "your plan with the provider"),
        ("", "answered nothing"),
    ],
    ids=["garbage", "refuses", "hangs", "drops", "404", "402", "silent"],
)
def test_when_it_can_not_plan_at_all_the_plan_is_made_without_it(reply: Any, told: str) -> None:
    replies = {"plan": reply, "respond": reply}
    with OpenAIDouble(replies) as double, served(double, llm_timeout=patience(reply)) as agent:
        run = agent.invoke("Describe a.jpg")
    assert told in run.plan.notes[0]
    assert told in run.answer
    assert [(result.task.task, result.status) for result in run.results] == [("image-to-text", "ok")]
    assert CAPTION in run.answer


@pytest.mark.parametrize(
    "garbage",
    [
        "I am sorry, Dave. I am afraid I can not do that.",
        "<html><body>502 Bad Gateway</body></html>",
        '{"error": {"message": "overloaded"}}',
        '[{"task": 7, "id": {}, "dep": "x", "args": [[[]]]}]',
        "[[[[[[[[[[[[[[[[[[[[",
        "\x00\udcff\u202e}{][",
        "[" + '{"task": "image-to-text", ' * 50,
    ],
)
def test_garbage_for_a_plan_is_written_again_once_and_then_answered_in_words(garbage: str) -> None:
    llm = ScriptedLLM({"plan": garbage, "repair": garbage, "chat": "I could not plan that."})
    with JarvisAgent(llm, sources=[], backends=[]) as agent:
        run = agent.invoke("Describe a.jpg")
    assert run.plan.tasks == []
    assert run.plan.notes
    assert run.answer.startswith("I could not plan that.")
    assert llm.stages() == ["plan", "repair", "chat"]
    assert Run.model_validate_json(run.model_dump_json()) == run


def test_when_it_writes_nothing_that_can_be_used_the_plan_is_made_without_it() -> None:
    replies = {"plan": "I would look at it.", "repair": "Look at it!", "respond": "Done."}
    with OpenAIDouble(replies) as double, served(double) as agent:
        run = agent.invoke("Describe a.jpg")
    assert [(result.task.task, result.status) for result in run.results] == [("image-to-text", "ok")]
    assert "could not plan: it wrote nothing that can be used" in run.plan.notes[0]
    assert "I would look at it." in run.plan.notes[0]


def test_when_the_answer_breaks_off_the_report_goes_on_after_it() -> None:
    replies = {"plan": DESCRIBE, "respond": ("It is a c", DROP)}
    with OpenAIDouble(replies) as double, served(double) as agent:
        run = agent.invoke("Describe a.jpg")
    assert run.answer.startswith("It is a c")
    assert "The answer broke off here:" in run.answer
    assert CAPTION in run.answer


def test_nobody_listening_at_the_address_is_told() -> None:
    with OpenAIDouble({}) as double:
        agent = served(double)
    with agent:
        run = agent.invoke("Describe a.jpg")
    assert "could not be reached" in run.answer
    assert "check that address and that the server runs" in run.answer
    assert CAPTION in run.answer


def test_an_address_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match=r'JARVIS_BASE_URL is "localhost:8000"; it must begin with http'):
        JarvisAgent(settings=Settings(base_url="localhost:8000"))


def test_a_model_of_an_unknown_provider_is_refused_with_an_example() -> None:
    with pytest.raises(ConfigError, match='named as "provider:model", such as "openai:'):
        JarvisAgent("no-such-provider:model")
