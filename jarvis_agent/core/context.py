"""The data of one run that its stages share: the request, its files, the chat so far, and a usage meter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from langchain_core.runnables import RunnableConfig

from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Resource, Usage


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """An earlier turn of the chat: what was asked, what was answered, what was made or given.

    `blocks` are content blocks of its message that are no files of this machine yet.
    """

    request: str
    answer: str
    resources: tuple[Resource, ...] = ()
    blocks: tuple[Mapping[str, Any], ...] = ()


class UsageMeter:
    """Counts the language model's calls and tokens by stage, for one run."""

    def __init__(self) -> None:
        self.usage: dict[str, Usage] = {}

    def add(self, stage: str, usage: Usage) -> None:
        """Count `usage` for a stage."""
        self.usage[stage] = self.usage.get(stage, Usage()) + usage
        whole, part = _PART.get()
        if part is not None and whole is self:
            part.add(stage, usage)

    @contextmanager
    def part(self) -> Iterator[UsageMeter]:
        """A meter of what is counted in the block, by coroutines that are started there too."""
        part = UsageMeter()
        token = _PART.set((self, part))
        try:
            yield part
        finally:
            _PART.reset(token)


_PART: ContextVar[tuple[UsageMeter | None, UsageMeter | None]] = ContextVar("part", default=(None, None))


@dataclass(frozen=True, slots=True)
class RunContext:
    """All that the stages know of a request.

    Attributes:
        request: its words.
        files: its files, those that its words name too. `name` is the spelling by which the request (and
            so the plan) names each of them.
        turns: earlier turns of the chat, oldest first.
        specs: the task types that the plan may use, by name.
        meter: counts the language model's tokens.
        config: LangChain's config of the run, for callbacks and tracing.
        confined: whether the request is untrusted, and must not learn which files exist here.
    """

    request: str
    files: tuple[Resource, ...] = ()
    turns: tuple[ChatTurn, ...] = ()
    specs: Mapping[str, TaskSpec] = field(default_factory=dict)
    meter: UsageMeter = field(default_factory=UsageMeter)
    config: RunnableConfig | None = None
    confined: bool = False
