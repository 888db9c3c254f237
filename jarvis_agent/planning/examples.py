"""Examples: worked requests with their plans, as shown to the planner.

    load_examples("paper")[0]      # Example(input="Can you tell me how many objects in e1.jpg?", plan=[…], …)

The package has two sets in `prompts/examples/`: the paper's, and those of the default prompt.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files as package_files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from langchain_core.example_selectors import BaseExampleSelector
from langchain_core.messages import BaseMessage
from pydantic import TypeAdapter, ValidationError

from jarvis_agent.core.context import ChatTurn, turns_of
from jarvis_agent.core.errors import ConfigError, words_of
from jarvis_agent.core.file_mentions import mentions
from jarvis_agent.core.types import Resource, Task
from jarvis_agent.media.detect import kind_by_name

_TEXT = TypeAdapter(str)
_TURN: TypeAdapter[ChatTurn | BaseMessage] = TypeAdapter(
    ChatTurn | BaseMessage, config={"arbitrary_types_allowed": True}
)


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
            text = _TEXT.validate_python(value["input"])
            chat = turns_of(map(_TURN.validate_python, value.get("chat_history", ())))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            form = '{"input": "…", "plan": [{"task": "…", "id": 0, "dep": [-1], "args": {…}}]}'
            wrong = words_of(error) if isinstance(error, ValidationError) else repr(error)
            raise ConfigError(f"an example is {form}: {wrong}") from error
        files = tuple(Resource(kind=kind_by_name(name), name=name) for name in mentions(text))
        return cls(text, tasks, chat, files)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The task names, in the order of the plan."""
        return tuple(task["task"] for task in self.plan)

    def to_json(self, *, as_object: bool = False) -> str:
        """The plan as the planner would write it: a list, or `{"tasks": […]}` as a JSON schema requires."""
        return json.dumps({"tasks": self.plan} if as_object else self.plan, ensure_ascii=False)


Examples = tuple[Example, ...] | BaseExampleSelector


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


def open_examples(examples: Any) -> Examples:
    """The `examples` of a planning chain, or what selects them.

    Args:
        examples: "paper", "default", a JSON file, a list of examples, or a selector such as LangChain's
            SemanticSimilarityExampleSelector, which is asked with {"input": the request}.

    Raises:
        ConfigError: `examples` is something else, or cannot be read.
    """
    if isinstance(examples, BaseExampleSelector):
        return examples
    if examples in ("paper", "default"):
        return load_examples(str(examples))
    if isinstance(examples, Path):
        return read_examples(examples)
    if isinstance(examples, Sequence) and not isinstance(examples, str):
        return tuple(map(Example.of, examples))
    raise ConfigError(
        f'examples are "paper", "default", a list of examples, or a BaseExampleSelector, not {examples!r}'
    )
