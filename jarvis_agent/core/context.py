"""The data of one run that its parts share: the request, its files, and the turns of the chat so far."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig

from jarvis_agent.core.content import media_blocks, message_text
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Preference, Resource

MADE = "made"
"""The key of `ChatTurn.made` in the message of an answer."""


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """An earlier turn of the chat.

    `blocks` are content blocks that are not stored as files yet. `made` is what its tasks made in words; None
    if only the answer is known. What a later turn calls "it" is a result, never a report on it. `number` is
    its place in the chat, from 1 on, of which only the newest turns are remembered; 0: unknown.
    """

    request: str
    answer: str
    resources: tuple[Resource, ...] = ()
    blocks: tuple[Mapping[str, Any], ...] = ()
    made: str | None = None
    number: int = 0

    @property
    def text(self) -> str:
        """The text that a later turn may refer to."""
        return self.answer if self.made is None else self.made


@dataclass(slots=True)
class Clock:
    """Tells the seconds since a run began."""

    began: float = field(default_factory=lambda: perf_counter())

    def __call__(self) -> float:
        return perf_counter() - self.began


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class RunContext:
    """The data of a run.

    Attributes:
        request: the text of the request.
        files: its files, including those that its text mentions; `name` is their spelling there.
        turns: earlier turns of the chat, oldest first.
        request_count: how many requests the chat has with this one, if more than the turns tell.
        specs: the task types that the plan may use, by name.
        config: LangChain's config of the run, for callbacks and tracing.
        restricted: whether the request is untrusted, and must not learn which files exist here.
        reserve_hosted: that of the run's UsageMeter: called with a task and a model before each hosted call.
            Raises BudgetError.
        hosted_price: that of the same meter: what a hosted call costs by task and model; 0: unknown.
        preference: what the plan says of the choice of models.
        clock: the seconds since the run began.
    """

    request: str
    files: tuple[Resource, ...] = ()
    turns: tuple[ChatTurn, ...] = ()
    request_count: int = 1
    specs: Mapping[str, TaskSpec] = field(default_factory=dict)
    config: RunnableConfig | None = None
    restricted: bool = False
    reserve_hosted: Callable[[str, str], None] = lambda task, model: None
    hosted_price: Callable[[str, str], float] = lambda task, model: 0.0
    preference: Preference | None = None
    clock: Callable[[], float] = field(default_factory=Clock)

    @property
    def turn_number(self) -> int:
        """The place of this turn in its chat, from 1 on."""
        return max([self.request_count, 1 + len(self.turns), *(1 + turn.number for turn in self.turns)])


def turns_of(messages: Iterable[BaseMessage | ChatTurn]) -> tuple[ChatTurn, ...]:
    """The turns of a chat history: each human message with the answer after it. Turns stay as they are."""
    turns: list[ChatTurn] = []
    for message in messages:
        if isinstance(message, ChatTurn):
            turns.append(message)
        elif isinstance(message, HumanMessage):
            turns.append(ChatTurn(message_text(message), "", blocks=tuple(media_blocks(message))))
        elif isinstance(message, AIMessage):
            turn = turns.pop() if turns and not turns[-1].answer else ChatTurn("", "")
            made = message.additional_kwargs.get(MADE)
            made = made if isinstance(made, str) else None
            turns.append(replace(turn, answer=message_text(message), made=made))
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
