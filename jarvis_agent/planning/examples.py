"""Examples: worked requests with their plans, as shown to the planner.

    load_examples("paper")[0]      # Example(input="Can you tell me how many objects in e1.jpg?", plan=[…], …)

The package has two sets in `prompts/examples/`: the paper's, and those of the default prompt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files as package_files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from langchain_core.example_selectors import BaseExampleSelector
from langchain_core.messages import BaseMessage
from pydantic import ValidationError

from jarvis_agent.core.context import ChatTurn, turns_of
from jarvis_agent.core.errors import ConfigError, words_of
from jarvis_agent.core.file_mentions import mentions
from jarvis_agent.core.tasks.registry import find_task
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Resource, Task
from jarvis_agent.media.detect import kind_by_name

CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")
"""A character of a Chinese, Japanese or Korean text."""


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
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            form = '{"input": "…", "plan": [{"task": "…", "id": 0, "dep": [-1], "args": {…}}]}'
            wrong = words_of(error) if isinstance(error, ValidationError) else repr(error)
            raise ConfigError(f"an example is {form}: {wrong}") from error
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


@lru_cache
def load_examples(name: str) -> tuple[Example, ...]:
    """A set that comes with the package: "paper" or "default"."""
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


class FixedExamples(BaseExampleSelector):
    """Selects the same examples for every request."""

    def __init__(self, examples: Iterable[Any]) -> None:
        self.examples = list(map(Example.of, examples))

    def add_example(self, example: dict[str, Any]) -> None:
        """Add an example (see `Example.of`)."""
        self.examples.append(Example.of(example))

    def select_examples(self, input_variables: dict[str, Any]) -> list[dict[str, Any]]:
        """All examples."""
        return [example.to_dict() for example in self.examples]


def open_selector(examples: Any) -> BaseExampleSelector:
    """The selector for the `examples` of a planning chain.

    Args:
        examples: "paper", "default", a JSON file, a list of examples, or a selector such as LangChain's
            SemanticSimilarityExampleSelector, which is asked with {"input": the request}.

    Raises:
        ConfigError: `examples` is something else, or cannot be read.
    """
    if isinstance(examples, BaseExampleSelector):
        return examples
    if examples in ("paper", "default"):
        return FixedExamples(load_examples(str(examples)))
    if isinstance(examples, Path):
        return FixedExamples(read_examples(examples))
    if isinstance(examples, Sequence) and not isinstance(examples, str):
        return FixedExamples(examples)
    raise ConfigError(
        f'examples are "paper", "default", a list of examples, or a BaseExampleSelector, not {examples!r}'
    )


def _turn(turn: Any) -> ChatTurn | BaseMessage:
    if isinstance(turn, ChatTurn | BaseMessage):
        return turn
    resources = tuple(Resource.model_validate(each) for each in turn.get("resources", ()))
    return ChatTurn(_text(turn["request"]), _text(turn["answer"]), resources)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value
