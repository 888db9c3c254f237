"""Chat memory, and chat messages as turns."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool

from jarvis_agent import JarvisAgent, Plan, Settings, Task
from jarvis_agent.agent.memory import ChatMemory
from jarvis_agent.core.context import ChatTurn, turns_of


def requests(memory: ChatMemory, thread: str) -> list[str]:
    return [turn.request for turn in memory.turns(thread)]


def test_a_memory_keeps_the_newest_turns_of_the_newest_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jarvis_agent.agent.memory.MAX_THREADS", 2)
    monkeypatch.setattr("jarvis_agent.agent.memory.MAX_TURNS", 3)
    memory = ChatMemory()
    for number, thread in enumerate("abac"):
        memory.add(thread, ChatTurn(str(number), ""))
    assert [requests(memory, thread) for thread in "abc"] == [["0", "2"], [], ["3"]]
    for number in range(10):
        memory.add("a", ChatTurn(str(number), ""))
    assert requests(memory, "a") == ["7", "8", "9"]


def test_a_memory_is_bounded_by_characters_but_keeps_the_newest_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jarvis_agent.agent.memory.MAX_CHARS", 10)
    memory = ChatMemory()
    memory.add("a", ChatTurn("1234", "1"))
    memory.add("b", ChatTurn("2345", "2"))
    memory.add("b", ChatTurn("3", "3"))
    assert (requests(memory, "a"), requests(memory, "b")) == ([], ["2345", "3"])
    memory.add("c", ChatTurn("4" * 100, ""))
    assert (requests(memory, "b"), len(requests(memory, "c"))) == ([], 1)
    memory.add("c", ChatTurn("5", ""))
    assert requests(memory, "c") == ["5"]


def test_messages_become_turns_of_a_request_and_an_answer_which_may_be_empty() -> None:
    messages = [SystemMessage("s"), HumanMessage("q1"), AIMessage("a1"), HumanMessage("q2"), AIMessage("a2")]
    assert [(turn.request, turn.answer) for turn in turns_of(messages)] == [("q1", "a1"), ("q2", "a2")]
    turns = turns_of([AIMessage("hello"), HumanMessage("q1"), HumanMessage("q2")])
    assert [(turn.request, turn.answer) for turn in turns] == [("", "hello"), ("q1", ""), ("q2", "")]


@tool
def letters(text: str) -> str:
    """Spell a text."""
    return " ".join(text)


def test_later_turns_refer_to_results_and_never_to_reports(tmp_path: Path) -> None:
    """A result that another task has turned into words is no result of the turn."""
    asked: list[list[str]] = []
    chain = [
        Task(task="letters", id=0, args={"text": "ab"}),
        Task(task="letters", id=1, dep=[0], args={"text": "<resource>-0"}),
    ]

    def planner(given: Any) -> Plan:
        asked.append([turn.text for turn in turns_of(given["chat_history"])])
        return Plan(tasks=chain if given["input"] == "spell" else [], notes=["“hi” is not understood"])

    settings = Settings(offline=True, model="none", output_dir=tmp_path)
    with JarvisAgent(planner=planner, tools=[letters], settings=settings) as agent:
        thread: Any = {"configurable": {"thread_id": "1"}}
        runs = [agent.invoke(request, thread) for request in ("spell", "hi", "again")]
        asked_again = [HumanMessage("hi"), *runs[0].messages, HumanMessage("hi"), *runs[1].messages]
        agent.invoke({"messages": [*asked_again, HumanMessage("?")]})
    spelt = "a   b"
    assert spelt in runs[0].answer != spelt
    assert asked == [[], [spelt], [spelt, ""], [spelt, ""]]
