"""Examples: worked requests with their plans, as shown to the planner.

The package has two sets in `prompts/examples/`: the paper's, and those of the default prompt.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files as package_files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from langchain_core.example_selectors import BaseExampleSelector
from langchain_core.messages import BaseMessage
from pydantic import BaseModel, ConfigDict, Field, Json, ValidationError

from jarvis_agent.core.context import ChatTurn, turns_of
from jarvis_agent.core.errors import ConfigError, words_of
from jarvis_agent.core.file_mentions import mentions
from jarvis_agent.core.types import Resource, Task
from jarvis_agent.media.detect import kind_by_name


class Example(BaseModel):
    """A request with its plan, and the chat before it if there was one."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    input: str
    plan: list[Task] | Json[list[Task]]
    chat_history: list[ChatTurn | BaseMessage] = Field(default_factory=list)

    @classmethod
    def of(cls, value: Any) -> Example:
        """Read an example, or a dict with "input", "plan" and optionally "chat_history".

        A plan is a list of `{"task": …, "id": 0, "dep": [-1], "args": {…}}`, or JSON text of it. The history
        has messages, or dicts with "request", "answer" and "resources". Raises ConfigError for another form.
        """
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            form = '{"input": "…", "plan": [{"task": "…", "id": 0, "dep": [-1], "args": {…}}]}'
            raise ConfigError(f"an example is {form}: {words_of(error)}") from error

    @property
    def chat(self) -> tuple[ChatTurn, ...]:
        """The turns before the request."""
        return turns_of(self.chat_history)

    @property
    def files(self) -> tuple[Resource, ...]:
        """The files that the request names."""
        return tuple(Resource(kind=kind_by_name(name), name=name) for name in mentions(self.input))

    def to_json(self) -> str:
        """The plan as a list of its tasks."""
        return json.dumps([task.model_dump() for task in self.plan], ensure_ascii=False)


Examples = tuple[Example, ...] | BaseExampleSelector


@lru_cache
def load_examples(name: str) -> tuple[Example, ...]:
    """A set that comes with the package: "paper" or "default"."""
    return read_examples(package_files("jarvis_agent.prompts") / "examples" / f"{name}.json")


def read_examples(file: Traversable) -> tuple[Example, ...]:
    """The examples in a JSON file: a list of objects as in `Example.of`. Raises ConfigError."""
    try:
        return tuple(map(Example.of, json.loads(file.read_text(encoding="utf-8"))))
    except (OSError, ValueError, TypeError, ConfigError) as error:
        raise ConfigError(f"the examples {file} cannot be read: {error}") from error


def open_examples(examples: Any) -> Examples:
    """The `examples` of a planning chain, also from a JSON file, or what selects them. Raises ConfigError."""
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
