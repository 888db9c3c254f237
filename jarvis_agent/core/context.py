"""The data of one run that its parts share: the request, its files, and the chat so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from langchain_core.runnables import RunnableConfig

from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Resource


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """An earlier turn of the chat: what was asked, what was answered, what was made or given.

    `blocks` are content blocks of its message that are no files of this machine yet.
    """

    request: str
    answer: str
    resources: tuple[Resource, ...] = ()
    blocks: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class RunContext:
    """All that the stages know of a request.

    Attributes:
        request: its words.
        files: its files, those that its words name too. `name` is the spelling by which the request (and
            so the plan) names each of them.
        turns: earlier turns of the chat, oldest first.
        specs: the task types that the plan may use, by name.
        config: LangChain's config of the run, for callbacks and tracing.
        confined: whether the request is untrusted, and must not learn which files exist here.
    """

    request: str
    files: tuple[Resource, ...] = ()
    turns: tuple[ChatTurn, ...] = ()
    specs: Mapping[str, TaskSpec] = field(default_factory=dict)
    config: RunnableConfig | None = None
    confined: bool = False
