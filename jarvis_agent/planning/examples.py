"""Examples: worked requests with their plans, as shown to the planner.

    load_examples("bank")[0]      # Example(input="How does the writer of …", plan=[{"task": …}], …)

The package has three sets in `prompts/examples/`: the paper's, the default ones, and a bank from which the
most similar ones are selected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files as package_files
from importlib.resources.abc import Traversable
from typing import Any

from langchain_core.messages import BaseMessage
from pydantic import ValidationError

from jarvis_agent.core.context import ChatTurn, turns_of
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.file_mentions import mentions
from jarvis_agent.core.tasks.registry import find_task
from jarvis_agent.core.tasks.spec import ARG_ALIASES, TaskSpec
from jarvis_agent.core.types import Resource, Task
from jarvis_agent.media.detect import kind_by_name

CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")
"""A character of a Chinese, Japanese or Korean text."""

_VALUES = {"text": "Good morning", "image": "e1.jpg", "audio": "e1.wav", "video": "e1.mp4", "table": "e1.csv"}
"""Values of arguments in the examples of tools, by kind."""


@dataclass(frozen=True, slots=True)
class Example:
    """A request, the chat before it if there was one, and the plan.

    Attributes:
        files: the files that the request names.
    """

    input: str
    plan: list[dict[str, Any]]
    chat: tuple[ChatTurn, ...] = ()
    files: tuple[Resource, ...] = ()

    @classmethod
    def of(cls, value: Any) -> Example:
        """Read an example.

        Args:
            value: an Example, or a dict with "input", "plan" and optionally "chat_history": messages, or
                dicts with "request", "answer" and "resources". A plan is a list of
                `{"task": …, "id": 0, "dep": [-1], "args": {…}}`, or JSON text of it.

        Raises:
            ConfigError: the value has another form.
        """
        if isinstance(value, Example):
            return value
        try:
            plan = json.loads(value["plan"]) if isinstance(value["plan"], str) else value["plan"]
            tasks = [Task.model_validate(task).model_dump() for task in plan]
            text = _text(value["input"])
            chat = turns_of(map(_turn, value.get("chat_history", ())))
        except ValidationError as error:
            wrong = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
            raise ConfigError(_explained(wrong)) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(_explained(repr(error))) from error
        files = tuple(Resource(kind=kind_by_name(name), name=name) for name in mentions(text))
        return cls(text, tasks, chat, files)

    def to_dict(self) -> dict[str, Any]:
        """The example as example selectors return it; see `of`."""
        return {"input": self.input, "plan": self.plan, "chat_history": list(self.chat)}

    @property
    def tasks(self) -> tuple[str, ...]:
        """The task names, in the order of the plan."""
        return tuple(task["task"] for task in self.plan)

    def to_json(self, *, as_object: bool = False) -> str:
        """The plan as the planner would write it: a list, or `{"tasks": […]}` as a JSON schema requires."""
        return json.dumps({"tasks": self.plan} if as_object else self.plan, ensure_ascii=False)

    def adapted_to(self, specs: Mapping[str, TaskSpec]) -> Example | None:
        """The example with the names of available tasks; None if one is missing or has other arguments."""
        plan = []
        for task in self.plan:
            names = available_names([task["task"]], specs)
            args = adapted_args(specs[names[0]], task) if names else None
            if args is None:
                return None
            plan.append({**task, "task": names[0], "args": args})
        return replace(self, plan=plan)


def available_names(tasks: Iterable[str], specs: Mapping[str, TaskSpec]) -> list[str]:
    """The names that tasks have in `specs`; without those that are not available."""
    found = (_available_name(name, specs) for name in tasks)
    return [name for name in found if name is not None]


def _available_name(task: str, specs: Mapping[str, TaskSpec]) -> str | None:
    """The task's own name or the tool that performs it; the one with the closest alias if several do."""
    spec = find_task(task, specs)
    if spec is not None and spec.name in specs:
        return spec.name
    tools = [spec for spec in specs.values() if spec.category == "tool" and task in spec.aliases]
    return min(tools, key=lambda tool: tool.aliases.index(task)).name if tools else None


def adapted_args(spec: TaskSpec, task: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments of a task for another task type: those of the same name, then of the same kind.

    None: a required one has no value.
    """
    known = find_task(task["task"])
    kinds = {arg.name: arg.kind for arg in known.inputs} if known else {}
    left = dict(task["args"])
    args = {arg.name: left.pop(arg.name) for arg in spec.inputs if arg.name in left}
    for arg in spec.inputs:
        if arg.required and arg.name not in args:
            name = next((name for name in left if kinds.get(name) == arg.kind), None)
            if name is None:
                return None
            args[arg.name] = left.pop(name)
    return args


def example_of_tool(spec: TaskSpec) -> Example:
    """An example for a tool that no other example suits: its description, and a value for each argument."""
    needed = [arg for arg in spec.inputs if arg.required]
    values = [_VALUES.get(arg.kind) or _value_by_name(arg.name) for arg in needed]
    about = (spec.description or spec.name).split(". ")[0].rstrip(".")
    args = {arg.name: [value] if arg.many else value for arg, value in zip(needed, values, strict=True)}
    plan = [{"task": spec.name, "id": 0, "dep": [-1], "args": args}]
    return Example.of({"input": f"{about}: {', '.join(values)}" if values else about, "plan": plan})


def _value_by_name(name: str) -> str:
    """A value for an argument of any kind: a file for "image_path", "A1" for "order_id"."""
    words = (ARG_ALIASES.get(word, word) for word in (name.lower(), *name.lower().split("_")))
    return next((_VALUES[word] for word in words if word in _VALUES), "A1")


@lru_cache
def load_examples(name: str) -> tuple[Example, ...]:
    """A set that comes with the package: "paper", "default" or "bank"."""
    return read_examples(package_files("jarvis_agent.prompts") / "examples" / f"{name}.json")


def read_examples(file: Traversable) -> tuple[Example, ...]:
    """The examples in a JSON file: a list of objects as in `Example.of`.

    Raises:
        ConfigError: the file cannot be read, or has another form.
    """
    try:
        return tuple(map(Example.of, json.loads(file.read_text(encoding="utf-8"))))
    except (OSError, ValueError, TypeError, ConfigError) as error:
        raise ConfigError(f"the examples {file} cannot be read: {error}") from error


def _explained(wrong: str) -> str:
    form = '{"input": "…", "plan": [{"task": "…", "id": 0, "dep": [-1], "args": {…}}]}'
    return f"an example is {form}: {wrong}"


def _turn(turn: Any) -> ChatTurn | BaseMessage:
    if isinstance(turn, ChatTurn | BaseMessage):
        return turn
    resources = tuple(Resource.model_validate(each) for each in turn.get("resources", ()))
    return ChatTurn(_text(turn["request"]), _text(turn["answer"]), resources)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value
