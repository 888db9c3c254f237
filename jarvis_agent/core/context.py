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
    """An earlier turn of the chat; `blocks` are content blocks that are not stored as files yet."""

    request: str
    answer: str
    resources: tuple[Resource, ...] = ()
    blocks: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class RunContext:
    """The data of a run.

    Attributes:
        request: the text of the request.
        files: its files, including those that its text mentions; `name` is their spelling there.
        turns: earlier turns of the chat, oldest first.
        specs: the task types that the plan may use, by name.
        config: LangChain's config of the run, for callbacks and tracing.
        restricted: whether the request is untrusted, and must not learn which files exist here.
    """

    request: str
    files: tuple[Resource, ...] = ()
    turns: tuple[ChatTurn, ...] = ()
    specs: Mapping[str, TaskSpec] = field(default_factory=dict)
    config: RunnableConfig | None = None
    restricted: bool = False
