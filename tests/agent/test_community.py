"""LangChain's LLM caches, and the chat histories of langchain-community."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain_community")

from langchain_community import chat_message_histories as histories
from langchain_community.cache import SQLiteCache
from langchain_core.caches import InMemoryCache
from small_agents import DESCRIBE, plan, small_agent

pytestmark = [pytest.mark.usefixtures("home"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.mark.parametrize("name", ["memory", "sqlite"])
def test_with_an_llm_cache_an_identical_run_makes_no_llm_call(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        second = agent.invoke("Say hello")
    assert (calls, len(llm.calls)) == (3, 3)
    for run in (first, second):
        assert run.answer == f"It is in {run.results[0].resources[0].path}."
    assert first.answer != second.answer
    counted = {stage: (usage.calls, usage.cached) for stage, usage in second.usage.items()}
    assert counted == {"plan": (0, 1), "select": (0, 1), "respond": (0, 1)}


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
