"""Chat memory: the turns of threads without a checkpointer, and external chat histories."""

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import BaseMessage

from jarvis_agent.core.context import ChatTurn
from jarvis_agent.core.forks import fork_safe
from jarvis_agent.core.request import Request

MAX_TURNS = 50
"""Remembered turns of one chat."""

MAX_THREADS = 1_000
MAX_CHARS = 50_000_000
"""Characters of all turns together."""


@dataclass(frozen=True, slots=True)
class ThreadState:
    """A chat, and its last run if that has not ended.

    Attributes:
        turns: the turns, oldest first, with the files that they made.
        waiting: the plan that waits for approval, as a HITLRequest with "request", "plan" and "notes". After
            an invalid decision it also has the "problem", and the decision as "given".
        unfinished: the request of a run that can be resumed.
    """

    turns: tuple[ChatTurn, ...] = ()
    waiting: dict[str, Any] | None = None
    unfinished: Request | None = None


class ChatMemory:
    """Turns by thread id. The least recently used threads are dropped first, the newest turn never.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._threads: OrderedDict[str, deque[ChatTurn]] = OrderedDict()
        self._chars = 0
        self._lock = fork_safe(threading.Lock())

    def turns(self, thread: str) -> tuple[ChatTurn, ...]:
        """The turns of a thread, oldest first."""
        with self._lock:
            return tuple(self._threads.get(thread, ()))

    def add(self, thread: str, turn: ChatTurn) -> None:
        """Remember a turn."""
        with self._lock:
            turns = self._threads.setdefault(thread, deque())
            self._threads.move_to_end(thread)
            turns.append(turn)
            self._chars += _length(turn)
            if len(turns) > MAX_TURNS:
                self._drop_turn(thread)
            limit = max(MAX_CHARS, _length(turn))
            while len(self._threads) > MAX_THREADS or self._chars > limit:
                self._drop_turn(next(iter(self._threads)))

    def _drop_turn(self, thread: str) -> None:
        turns = self._threads[thread]
        self._chars -= _length(turns.popleft())
        if not turns:
            del self._threads[thread]


def _length(turn: ChatTurn) -> int:
    return len(turn.request) + len(turn.answer) + len(turn.made or "")


async def read_history(value: Any) -> tuple[Any, BaseChatMessageHistory | None]:
    """An agent's input with the messages of an external chat history in place of it, and the history."""
    history = value.get("chat_history") if isinstance(value, Mapping) else None
    if not isinstance(history, BaseChatMessageHistory):
        return value, None
    if getattr(history, "async_mode", False):
        messages = await history.aget_messages()
    else:  # the async methods of SQLChatMessageHistory raise without its async mode
        messages = await asyncio.to_thread(lambda: history.messages)
    return {**value, "chat_history": list(messages)}, history


async def update_history(history: BaseChatMessageHistory, messages: Sequence[BaseMessage]) -> None:
    """Append the messages of a run to an external chat history."""
    if getattr(history, "async_mode", False):
        await history.aadd_messages(messages)
    else:
        await asyncio.to_thread(history.add_messages, messages)
