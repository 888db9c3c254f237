"""What a language model is sent for planning: worked examples, variables of prompts, and a JSON schema.

Your own template may also use the placeholders `examples` and `chat_history` for messages. The package has
two sets of examples in `prompts/examples/`: the paper's, and those of the default prompt.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files as package_files
from importlib.resources.abc import Traversable
from typing import Any

from langchain_core.example_selectors import BaseExampleSelector
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.prompts import BasePromptTemplate
from pydantic import BaseModel, ConfigDict, Field, Json, ValidationError

from jarvis_agent.core.context import ChatTurn, messages_of, turns_of
from jarvis_agent.core.errors import ConfigError, words_of
from jarvis_agent.core.file_mentions import mentions, split_names
from jarvis_agent.core.notes import Note
from jarvis_agent.core.tasks.spec import MEDIA, Arg, TaskSpec
from jarvis_agent.core.types import Resource, Task
from jarvis_agent.llm.prompts import fill, format_chat_history, uses
from jarvis_agent.llm.tokens import clip, clip_rows, count_tokens, prompt_budget, to_json_line
from jarvis_agent.llm.usage import STAGE_KEY
from jarvis_agent.media.detect import kind_by_name
from jarvis_agent.planning.inputs import PlanRequest, name_of
from jarvis_agent.planning.normalise import TaskNames
from jarvis_agent.planning.parser import PlanParseError


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


def open_examples(examples: Any) -> Examples:
    """The `examples` of a planning chain, also from a JSON file, or what selects them. Raises ConfigError."""
    if isinstance(examples, BaseExampleSelector):
        return examples
    if examples in ("paper", "default"):
        examples = package_files("jarvis_agent.prompts") / "examples" / f"{examples}.json"
    if isinstance(examples, Traversable):
        try:
            return tuple(map(Example.of, json.loads(examples.read_text(encoding="utf-8"))))
        except (OSError, ValueError, TypeError, ConfigError) as error:
            raise ConfigError(f"the examples {examples} cannot be read: {error}") from error
    if isinstance(examples, Sequence) and not isinstance(examples, str):
        return tuple(map(Example.of, examples))
    raise ConfigError(
        f'examples are "paper", "default", a list of examples, or a BaseExampleSelector, not {examples!r}'
    )


_EXAMPLES_SHARE = 4
"""Examples take at most a quarter of the prompt's budget."""

_UNLIMITED = 1_000_000

_LIST_SHARE = 3
"""The list of task types with descriptions takes at most a third of the prompt's budget."""

_PART_SHARE = 8
"""The chat history, the valid tasks, … take at most an eighth of the context window each."""


def plan_variables(
    template: BasePromptTemplate[Any],
    request: PlanRequest,
    examples: Sequence[Example],
    *,
    window: int,
) -> dict[str, Any]:
    """The variables of a planning prompt for a context window in tokens.

    Examples of tasks that are not available are left out, then the first ones that do not fit.
    """
    names, left = TaskNames(request.specs), prompt_budget(window) // _EXAMPLES_SHARE
    fitting: list[Example] = []
    for example in reversed(examples):
        if all(names.find(task.task) for task in example.plan):
            left -= count_tokens(_as_text(example))
            if left < 0:
                break
            fitting.insert(0, example)
    values: dict[str, Any] = task_variables(request.specs, window) | {
        "demonstrations": "\n\n".join(map(_as_text, fitting)),
        "examples": [],
        "chat_history": messages_of(request.turns),
    }
    if uses(template, "examples") and not uses(template, "demonstrations"):
        values["examples"] = [message for each in fitting for message in _as_messages(template, each, values)]
    return fill(template, _request_variables(template, request, window), window, **values)


def repair_variables(
    template: BasePromptTemplate[Any],
    request: PlanRequest,
    tasks: Sequence[Task],
    errors: Sequence[PlanParseError],
    window: int,
) -> dict[str, Any]:
    """The variables of the repair prompt: the request, its valid tasks, and the broken ones with errors."""
    part = window // _PART_SHARE
    texts = {
        "broken_tasks": clip_rows([{"written": e.raw, "error": e.error} for e in errors], part),
        "input": request.text,
        "files": list_files(request.files),
        "valid_tasks": clip_rows([task.model_dump() for task in tasks], part),
    }
    return fill(template, texts, window, **task_variables(request.specs, window))


def task_variables(specs: Mapping[str, TaskSpec], window: int, *, brief: bool = False) -> dict[str, str]:
    """The list of task types, and their names, for a context window in tokens.

    A list that is longer than a third of the prompt is brief, without descriptions, as with `brief`.
    """
    lines = task_lines(specs.values(), brief=brief)
    if count_tokens(lines) > prompt_budget(window) // _LIST_SHARE:
        lines = task_lines(specs.values(), brief=True)
    return {"available_tasks": lines, "available_task_list": ", ".join(specs)}


def _request_variables(
    template: BasePromptTemplate[Any], request: PlanRequest, window: int
) -> dict[str, str]:
    part, text = window // _PART_SHARE, request.text
    named = split_names(text, map(name_of, request.files))[1::2]
    unnamed = list_files(file for file in request.files if name_of(file) not in named)
    if unnamed and not uses(template, "files"):
        text = f"{clip(text, part)}\nFiles:\n{clip(unnamed, part)}"
    log = format_chat_history(request.turns, part)
    return {"chat_log": log, "input": text, "files": list_files(request.files)}


def list_files(files: Iterable[Resource]) -> str:
    """One line for each file: its kind and name, and why it cannot be read."""

    def line(file: Resource) -> str:
        why = "" if file.path or "://" in name_of(file) else f" ({Note.of(file.error).public or 'missing'})"
        return f"- {file.kind}: {to_json_line(name_of(file))}{why}"

    return "\n".join(map(line, files))


def task_lines(specs: Iterable[TaskSpec], *, brief: bool = False) -> str:
    """The task types with their arguments, one a line; unless `brief`, with their results and descriptions.

    Results are texts and data unless others are named. Control tasks of the same form share a line. A name
    such as "text-to-video" needs neither a result nor a description.
    """
    lines: dict[tuple[Any, ...], list[TaskSpec]] = {}
    for spec in specs:
        form: tuple[Any, ...] = (spec.name,)
        if spec.category == "control":
            form = (*((arg.name, arg.required) for arg in spec.inputs), *spec.outputs)
        lines.setdefault(form, []).append(spec)
    return "\n".join(_line(same, brief) for same in lines.values())


_ABOUT_CONTROL = (
    "Make such a map (edges, lines, depth, pose, …) of an image.",
    "Make a new image from a text and such a map of another image.",
)


def _line(same: Sequence[TaskSpec], brief: bool) -> str:
    spec, names = same[0], ", ".join(spec.name for spec in same)

    def describe(arg: Arg) -> str:
        name = arg.name + ("[]" if arg.many else "") + ("" if arg.required else "?")
        is_plain = brief or arg.many or (arg.kind in MEDIA and arg.name == arg.kind)
        kind = arg.kind if arg.kind in MEDIA and arg.name != arg.kind else ""
        about = ", ".join(part for part in (kind, arg.description) if part)
        return name if is_plain or not about else f"{name}: {about}"

    line = f"{names}({', '.join(map(describe, spec.inputs))})"
    if brief:
        return line
    source, says_all, result = spec.name.partition("-to-")
    if outputs := ", ".join(kind for kind in spec.outputs if kind not in ("text", "data", result)):
        line += f" -> {outputs}"
    if len(same) > 1:
        line += f": {_ABOUT_CONTROL[len(spec.inputs) > 1]}"
    elif not says_all or source == result or spec.category == "tool":
        line += f": {' '.join(spec.description.split())}"
    return line


def _as_text(example: Example) -> str:
    log = f"<chat-log>\n{format_chat_history(example.chat)}\n</chat-log>\n" if example.chat else ""
    return f"{log}{example.input}\n{example.to_json()}"


def _as_messages(
    template: BasePromptTemplate[Any], example: Example, values: Mapping[str, Any]
) -> list[BaseMessage]:
    """An example as the human message of the same template, and the plan as a JSON schema requires it."""
    request = PlanRequest(example.input, example.files, example.chat)
    variables = fill(template, _request_variables(template, request, _UNLIMITED), _UNLIMITED, **values)
    messages = template.format_prompt(**variables).to_messages()
    human = next((m for m in reversed(messages) if isinstance(m, HumanMessage)), HumanMessage(example.input))
    plan = f'{{"tasks": {example.to_json()}}}'
    return [human, AIMessage(plan, additional_kwargs={STAGE_KEY: "plan"})]


_TEXT, _INTEGER = {"type": "string"}, {"type": "integer"}
_LIST = {"type": "array", "items": {"type": "string"}}
_DATA = {"type": ["string", "number", "array"], "items": {"type": "number"}}
"""A number, a list of them, or text: a reference, "left half"."""
_MAX_DEPS = 8
"""In an unlimited list, small models write -1 until their tokens are used up."""


def plan_schema(specs: Mapping[str, TaskSpec]) -> dict[str, Any]:
    """The JSON schema of a plan of these tasks; without tasks, of the empty plan.

    A task may have a purpose, and a preference for models may precede the tasks.
    """
    if not specs:
        return _object({"tasks": {"type": "array", "items": {"type": "null"}, "maxItems": 0}})
    args = {arg.name: _value(arg, specs) for spec in specs.values() for arg in spec.inputs}
    is_open = any(spec.is_open for spec in specs.values())
    task = {
        "task": {"type": "string", "enum": list(specs)},
        "id": _INTEGER,
        "dep": {"type": "array", "items": _INTEGER, "maxItems": _MAX_DEPS},
        "args": {"type": "object", "properties": args, "additionalProperties": is_open},
    }
    item = {**_object(task), "properties": {**task, "purpose": _TEXT}}
    plan = _object({"tasks": {"type": "array", "items": item}})
    return {**plan, "properties": {"preference": _TEXT, **plan["properties"]}, "$defs": {"data": _DATA}}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _value(arg: Arg, specs: Mapping[str, TaskSpec]) -> dict[str, Any]:
    """The type of an argument's values in all tasks that have one of this name."""
    same = [other for spec in specs.values() if (other := spec.arg(arg.name))]
    if any(other.kind == "any" for other in same):
        return {}
    if all(other.many for other in same):
        return _LIST
    if any(other.kind == "data" for other in same):
        return {"$ref": "#/$defs/data"}
    return {**_LIST, "type": ["string", "array"]} if any(other.many for other in same) else _TEXT
