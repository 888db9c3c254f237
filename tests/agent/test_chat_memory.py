"""What a chat remembers."""

from __future__ import annotations

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from jarvis_agent.agent.memory import ChatMemory
from jarvis_agent.core.context import ChatTurn, turns_of


def test_turns_are_kept_by_thread_in_their_order():
    memory = ChatMemory()
    memory.add("a", ChatTurn("1", "one"))
    memory.add("b", ChatTurn("2", "two"))
    memory.add("a", ChatTurn("3", "three"))
    assert [turn.request for turn in memory.turns("a")] == ["1", "3"]
    assert [turn.request for turn in memory.turns("b")] == ["2"]
    assert memory.turns("nobody") == ()


def test_a_memory_keeps_the_newest_turns_of_the_newest_threads():
    memory = ChatMemory(threads=2, turns=3)
    for thread in ("a", "b", "a", "c"):
        memory.add(thread, ChatTurn(thread, ""))
    assert (memory.turns("b"), len(memory.turns("a"))) == ((), 2)
    for number in range(10):
        memory.add("a", ChatTurn(str(number), ""))
    assert [turn.request for turn in memory.turns("a")] == ["7", "8", "9"]


def test_messages_become_turns_of_question_and_answer():
    messages = [SystemMessage("s"), HumanMessage("q1"), AIMessage("a1"), HumanMessage("q2"), AIMessage("a2")]
    assert [(turn.request, turn.answer) for turn in turns_of(messages)] == [("q1", "a1"), ("q2", "a2")]


def test_a_question_without_an_answer_and_an_answer_without_a_question_are_turns():
    turns = turns_of([AIMessage("hello"), HumanMessage("q1"), HumanMessage("q2")])
    assert [(turn.request, turn.answer) for turn in turns] == [("", "hello"), ("q1", ""), ("q2", "")]


def test_a_memory_is_bounded_by_characters_but_keeps_the_newest_turn():
    memory = ChatMemory(characters=10)
    memory.add("a", ChatTurn("1234", "1"))
    memory.add("b", ChatTurn("2345", "2"))
    memory.add("b", ChatTurn("3", "3"))
    assert memory.turns("a") == ()
    assert [turn.request for turn in memory.turns("b")] == ["2345", "3"]
    memory.add("c", ChatTurn("4" * 100, ""))
    assert (memory.turns("b"), len(memory.turns("c"))) == ((), 1)
    memory.add("c", ChatTurn("5", ""))
    assert [turn.request for turn in memory.turns("c")] == ["5"]
