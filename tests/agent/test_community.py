"""LangChain's LLM caches, and the chat histories of langchain-community."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain_community")

from langchain_community import chat_message_histories as histories
from langchain_community.cache import SQLiteCache
from langchain_core.caches import InMemoryCache
from small_agents import DESCRIBE, plan, small_agent

from jarvis_agent import Run
from jarvis_agent.core.types import Usage
from jarvis_agent.testing import ScriptedLLM

pytestmark = [pytest.mark.usefixtures("home"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def without_usage(pieces: Any) -> Any:
    """The pieces of a scripted reply without the last one, which has the token counts."""
    return list(pieces)[:-1]


@pytest.mark.parametrize("reports_usage", [True, False], ids=["usage", "no usage"])
@pytest.mark.parametrize("name", ["memory", "sqlite"])
def test_with_an_llm_cache_an_identical_run_makes_no_llm_call(
    name: str, reports_usage: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not reports_usage:
        write = ScriptedLLM._pieces
        monkeypatch.setattr(ScriptedLLM, "_pieces", lambda *given: without_usage(write(*given)))
    cache = InMemoryCache() if name == "memory" else SQLiteCache("cache.db")
    monkeypatch.setattr("langchain_core.globals._llm_cache", cache)
    made = "0-text-to-speech.wav"
    speak = plan(("text-to-speech", [], {"text": "hello"}))
    agent, llm, _ = small_agent(
        speak, models=["a", "b"], select='{"id": "text-to-speech/b"}', respond=f"It is in {made}."
    )
    with agent:
        first = agent.invoke("Say hello")
        calls = len(llm.calls)
        second, third = agent.invoke("Say hello"), sum(agent.stream("Say hello"), Run())
    assert (calls, len(llm.calls)) == (3, 3)
    assert bool(first.usage["plan"].input_tokens) == reports_usage
    for run in (first, second, third):
        assert run.plan.notes == []
        assert run.answer == f"It is in {run.results[0].resources[0].path}."
    assert first.answer != second.answer
    for run in (second, third):
        assert run.usage == dict.fromkeys(("plan", "select", "respond"), Usage(cached=1))


@pytest.fixture(params=["file", "sqlite", "postgres"])
def history(request: pytest.FixtureRequest) -> Any:
    if request.param == "file":
        return histories.FileChatMessageHistory(str(Path("chat.json")))
    address = "sqlite:///chat.db"
    if request.param == "postgres":
        url: str = request.getfixturevalue("postgres")
        address = url.replace("postgresql://", "postgresql+psycopg://", 1)
    return histories.SQLChatMessageHistory("chat-1", connection=address)


def test_a_chat_history_object_is_read_and_updated(history: Any) -> None:
    agent, llm, _ = small_agent(DESCRIBE)
    with agent:
        agent.invoke({"input": "Describe a.jpg", "chat_history": history})
        assert [message.text for message in history.messages] == ["Describe a.jpg", "A cat on a mat."]
        agent.invoke({"input": "And once more a.jpg", "chat_history": history})
    assert "A cat on a mat." in next(call.prompt for call in llm.calls[2:])
    assert len(history.messages) == 4
