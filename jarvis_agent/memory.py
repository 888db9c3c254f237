"""What a chat remembers: the earlier turns of each thread, with the resources that they made.

memory = ChatMemory()
memory.add("thread-1", Turn("make a canny image of a.jpg", "Here it is: …", (canny,)))
memory.turns("thread-1")
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import replace

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from jarvis_agent.request import Turn, media_blocks

_THREADS = 1_000
TURNS = 50
"""How many turns of a chat are remembered."""


class ChatMemory:
    """Turns by thread id. The threads longest unused are forgotten first; thread-safe."""

    def __init__(self, threads: int = _THREADS, turns: int = TURNS) -> None:
        """Keep at most so many threads, and of each at most so many turns."""
        self._threads: OrderedDict[str, deque[Turn]] = OrderedDict()
        self._limit, self._depth = threads, turns
        self._lock = threading.Lock()

    def turns(self, thread: str) -> tuple[Turn, ...]:
        """The turns of a thread, oldest first."""
        with self._lock:
            return tuple(self._threads.get(thread, ()))

    def add(self, thread: str, turn: Turn) -> None:
        """Remember a turn."""
        with self._lock:
            self._threads.setdefault(thread, deque(maxlen=self._depth)).append(turn)
            self._threads.move_to_end(thread)
            while len(self._threads) > self._limit:
                self._threads.popitem(last=False)


def turns_of(messages: Iterable[BaseMessage]) -> tuple[Turn, ...]:
    """The turns of a chat history given as messages: each human message with the answer after it."""
    turns: list[Turn] = []
    for message in messages:
        if isinstance(message, HumanMessage):
            turns.append(Turn(str(message.text), "", blocks=tuple(media_blocks(message))))
        elif isinstance(message, AIMessage):
            asked = turns.pop() if turns and not turns[-1].answer else Turn("", "")
            turns.append(replace(asked, answer=str(message.text)))
    return tuple(turns)
