"""Chat turns from and to LangChain messages.

turns_of([HumanMessage("Describe a.jpg"), AIMessage("A cat.")])   # (ChatTurn("Describe a.jpg", "A cat."),)
messages_of(turns)                                                # the same messages
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from jarvis_agent.core.request import ChatTurn, media_blocks


def turns_of(messages: Iterable[BaseMessage | ChatTurn]) -> tuple[ChatTurn, ...]:
    """The turns of a chat history: each human message with the answer after it. Turns stay as they are."""
    turns: list[ChatTurn] = []
    for message in messages:
        if isinstance(message, ChatTurn):
            turns.append(message)
        elif isinstance(message, HumanMessage):
            turns.append(ChatTurn(str(message.text), "", blocks=tuple(media_blocks(message))))
        elif isinstance(message, AIMessage):
            asked = turns.pop() if turns and not turns[-1].answer else ChatTurn("", "")
            turns.append(replace(asked, answer=str(message.text)))
    return tuple(turns)


def messages_of(turns: Iterable[ChatTurn]) -> list[BaseMessage]:
    """The turns as human and AI messages, oldest first; content blocks of the request are kept."""
    messages: list[BaseMessage] = []
    for turn in turns:
        content: Any = turn.request
        if turn.blocks:
            content = [{"type": "text", "text": turn.request}, *map(dict, turn.blocks)]
        messages += [HumanMessage(content), *([AIMessage(turn.answer)] if turn.answer else [])]
    return messages
