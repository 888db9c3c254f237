"""What a chat remembers: the earlier turns of each thread, with the resources that they made.

memory = ChatMemory()
memory.add("thread-1", ChatTurn("make a canny image of a.jpg", "Here it is: …", (canny,)))
memory.turns("thread-1")
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque

from jarvis_agent.core.request import ChatTurn

_THREADS = 1_000
TURNS = 50
"""How many turns of a chat are remembered."""

_LETTERS = 50_000_000
"""Letters of all turns together: a thousand for each of as many turns as there may be."""


class ChatMemory:
    """Turns by thread id. The threads longest unused are forgotten first; thread-safe."""

    def __init__(self, threads: int = _THREADS, turns: int = TURNS, letters: int = _LETTERS) -> None:
        """Keep at most so many threads, of each at most so many turns, and so many letters of all of them.

        The newest turn is kept however long it is.
        """
        self._threads: OrderedDict[str, deque[ChatTurn]] = OrderedDict()
        self._limit, self._depth, self._most = threads, turns, letters
        self._letters = 0
        self._lock = threading.Lock()

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
            self._letters += _letters_of(turn)
            if len(turns) > self._depth:
                self._forget_one(thread)
            most = max(self._most, _letters_of(turn))
            while len(self._threads) > self._limit or self._letters > most:
                self._forget_one(next(iter(self._threads)))

    def _forget_one(self, thread: str) -> None:
        turns = self._threads[thread]
        self._letters -= _letters_of(turns.popleft())
        if not turns:
            del self._threads[thread]


def _letters_of(turn: ChatTurn) -> int:
    return len(turn.request) + len(turn.answer)
