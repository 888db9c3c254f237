"""PlanRequest: the input of a planning chain.

PlanRequest.of("Describe a.jpg")
PlanRequest.of({"input": "Describe it", "files": ["a.jpg"], "chat_history": [HumanMessage("hi")]}, specs)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.messages.utils import convert_to_messages

from jarvis_agent.core.context import ChatTurn, turns_of
from jarvis_agent.core.errors import InputError
from jarvis_agent.core.file_mentions import mentions
from jarvis_agent.core.request import Request
from jarvis_agent.core.tasks.from_tool import spec_of
from jarvis_agent.core.tasks.registry import TASKS, find_task
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Resource
from jarvis_agent.media.detect import kind_by_name

Tools = Iterable[Any] | Mapping[str, Any] | None
"""Task types: names, TaskSpecs or LangChain tools, or a mapping of them by name. None: all of the Hub's."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A request to be planned.

    Attributes:
        text: the request as written.
        files: its files; `name` is their spelling in the plan.
        turns: earlier turns of the chat, oldest first.
        specs: the task types that the plan may use, by name.
    """

    text: str
    files: tuple[Resource, ...] = ()
    turns: tuple[ChatTurn, ...] = ()
    specs: Mapping[str, TaskSpec] = field(default_factory=lambda: TASKS)

    @classmethod
    def of(cls, value: Any, specs: Mapping[str, TaskSpec] | None = None) -> PlanRequest:
        """Read the input of a planning chain.

        Args:
            value: the request as a string; a dict with "input" and optionally "files" (Resources, paths or
                URLs), "chat_history" (messages or ChatTurns) and "tools"; or a Request. Other keys are
                ignored. Without "files", the files that the request names are used.
            specs: the task types if the value has no "tools"; None: all task types of the Hub.

        Raises:
            InputError: the value has another form.
        """
        if isinstance(value, PlanRequest):
            return value
        if isinstance(value, Request):
            value = {"input": value.text, "files": value.files, "chat_history": value.history}
        if isinstance(value, str):
            value = {"input": value}
        if not isinstance(value, Mapping) or not isinstance(value.get("input"), str):
            raise InputError(
                'a planner takes a text, or a dict such as {"input": "…", "files": ["a.jpg"], '
                f'"chat_history": […], "tools": […]}}, not {str(value)[:100]!r}'
            )
        text = value["input"].strip()
        files = value.get("files")
        given = [files] if isinstance(files, str | PurePath) else mentions(text) if files is None else files
        if value.get("tools") is not None:
            specs = task_specs(value["tools"])
        return cls(
            text,
            tuple(map(_resource, given)),
            turns_of(map(_message, value.get("chat_history") or ())),
            TASKS if specs is None else specs,
        )


def task_specs(tools: Tools) -> Mapping[str, TaskSpec]:
    """The task types of tools, by name; all task types of the Hub for None."""
    if tools is None:
        return TASKS
    if isinstance(tools, Mapping):
        tools = [name if tool is None else tool for name, tool in tools.items()]
    given: Sequence[Any] = [tools] if isinstance(tools, str) else list(tools)
    return {spec.name: spec for spec in map(_spec, given)}


def _spec(tool: Any) -> TaskSpec:
    if isinstance(tool, TaskSpec):
        return tool
    own = getattr(tool, "spec", None)
    if isinstance(own, TaskSpec):
        return own
    name = tool if isinstance(tool, str) else tool.name
    known = find_task(name)
    if known:
        return known
    return TaskSpec(name, "tool", "", (), ()) if isinstance(tool, str) else spec_of(tool)


def _resource(file: Any) -> Resource:
    if isinstance(file, Resource):
        return file
    if not isinstance(file, str | PurePath):
        raise InputError(f"a file is given as a path, a URL or a Resource, not as {type(file).__name__}")
    return Resource(kind=kind_by_name(str(file)), name=str(file))


def _message(message: Any) -> BaseMessage | ChatTurn:
    return message if isinstance(message, ChatTurn) else convert_to_messages([message])[0]
