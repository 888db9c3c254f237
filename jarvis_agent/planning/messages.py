"""The variables of the planning, repair and replanning prompts.

    values = plan_variables(prompt, request, examples, window=8192)
    prompt.invoke(values)       # messages that fit the context window

See `jarvis_agent.llm.prompts` for the slots of the prompt files. Your own template may use the variables
input, files, chat_log, available_tasks, available_task_list, demonstrations, files_block, chat_log_block, and
the placeholders `examples` and `chat_history` for messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.prompts import BasePromptTemplate

from jarvis_agent.core.context import messages_of
from jarvis_agent.core.file_mentions import mentions
from jarvis_agent.core.tasks.spec import MEDIA, Arg, TaskSpec
from jarvis_agent.core.types import Resource, TaskResult
from jarvis_agent.llm.budget import (
    Truncator,
    count_tokens,
    prompt_budget,
    shorten_lines,
    shorten_rows,
    shorten_text,
    to_json_line,
    truncate_json,
)
from jarvis_agent.llm.prompts import fill, format_chat_history, shorten_history, uses
from jarvis_agent.llm.usage import STAGE_KEY
from jarvis_agent.planning.examples import Example, available_names
from jarvis_agent.planning.inputs import PlanRequest, name_of
from jarvis_agent.planning.parser import PlanParseError

_EXAMPLES_SHARE = 4
"""Examples take at most a quarter of the prompt's budget."""

_MAX_ERROR_CHARS = 600


def lists_tasks(template: BasePromptTemplate[Any]) -> bool:
    """Whether a prompt lists the task types. Otherwise the model knows only those of the examples."""
    return uses(template, "available_tasks", "available_task_list")


def plan_variables(
    template: BasePromptTemplate[Any],
    request: PlanRequest,
    examples: Sequence[Example],
    *,
    window: int,
    as_object: bool = False,
) -> dict[str, Any]:
    """The variables of a planning prompt.

    Args:
        template: the prompt.
        request: the request; its specs are the task types that are listed.
        examples: worked examples, the most similar one last. Those that do not fit are dropped.
        window: context window in tokens.
        as_object: show the examples' plans as `{"tasks": […]}`, the form that a JSON schema requires.
    """
    available = [one for one in examples if len(available_names(one.tasks, request.specs)) == len(one.plan)]
    fitting = _last_that_fit(available, window)
    in_text = "\n\n".join(map(_as_text, fitting)) or "(none)"
    values: dict[str, Any] = _task_variables(request.specs) | {
        "demonstrations": in_text,
        "examples": [],
        "chat_history": messages_of(request.turns),
    }
    if uses(template, "examples") and not uses(template, "demonstrations"):
        values["examples"] = [
            message for each in fitting for message in _as_messages(template, each, values, as_object)
        ]
    return fill(template, values | _request_variables(template, request), window)


def repair_variables(
    template: BasePromptTemplate[Any],
    errors: Sequence[PlanParseError],
    specs: Mapping[str, TaskSpec],
    window: int,
) -> dict[str, Any]:
    """The variables of the repair prompt: each broken task as written, and what is wrong with it."""

    def rows(budget: int) -> list[dict[str, Any]]:
        return [{"written": truncate_json(e.raw, budget), "error": e.error} for e in errors]

    return fill(template, _task_variables(specs) | {"input": "", "broken_tasks": shorten_rows(rows)}, window)


def replan_variables(
    template: BasePromptTemplate[Any], request: PlanRequest, results: Sequence[TaskResult], window: int
) -> dict[str, Any]:
    """The variables of the replanning prompt.

    Results of finished tasks are named but not shown, so that text in an image or recording cannot ask for
    tasks.
    """
    done = [_outcome(result) for result in results if result.status == "ok"]
    failed = [_outcome(result) for result in results if result.status != "ok"]
    values: dict[str, Any] = {
        "input": shorten_text(request.text),
        "failed_tasks": shorten_rows(lambda budget: failed),
        "done_tasks": shorten_rows(lambda budget: done),
        "files": _files(request.files),
        "available_task_list": ", ".join(request.specs),
        "available_tasks": shorten_lines(task_lines(request.specs.values()).splitlines()),
    }
    return fill(template, values, window)


def _task_variables(specs: Mapping[str, TaskSpec]) -> dict[str, Any]:
    return {"available_tasks": task_lines(specs.values()), "available_task_list": ", ".join(specs)}


def _request_variables(template: BasePromptTemplate[Any], request: PlanRequest) -> dict[str, Truncator]:
    files, history = _files(request.files), shorten_history(request.turns)
    shows_files = uses(template, "files", "files_block")
    return {
        "input": shorten_text(request.text) if shows_files else _text_with_files(request),
        "files": files,
        "files_block": _block("files", files, bool(request.files)),
        "chat_log": history,
        "chat_log_block": _block("chat-log", history, bool(request.turns)),
    }


def _text_with_files(request: PlanRequest) -> Truncator:
    """The request, followed by the files that its text does not name."""
    named = mentions(request.text, {name_of(file) for file in request.files}.__contains__)
    files = [file for file in request.files if name_of(file) not in named]
    shorten, listed = shorten_text(request.text), _files(files)

    def text(limit: int) -> str:
        attached = f"\nFiles:\n{listed(limit // 2)}"
        return shorten(limit - count_tokens(attached)) + attached

    return text if files else shorten


def _block(tag: str, shorten: Truncator, is_shown: bool) -> Truncator:
    return lambda limit: f"<{tag}>\n{shorten(limit)}\n</{tag}>\n" if is_shown else ""


def _files(files: Iterable[Resource]) -> Truncator:
    return shorten_lines(f"- {file.kind}: {to_json_line(name_of(file))}" for file in files)


def task_lines(specs: Iterable[TaskSpec]) -> str:
    """The task types with their arguments, outputs and descriptions, one per line."""
    return "\n".join(
        f"- {spec.name}({', '.join(_arg(arg) for arg in spec.inputs)}) -> {', '.join(spec.outputs)}: "
        f"{' '.join(spec.description.split())}"
        for spec in specs
    )


def _arg(arg: Arg) -> str:
    kind = arg.kind if arg.kind in MEDIA and arg.name != arg.kind else ""
    about = ", ".join(part for part in (kind, arg.description) if part)
    return arg.name + ("" if arg.required else "?") + (f": {about}" if about else "")


def _last_that_fit(examples: Sequence[Example], window: int) -> Sequence[Example]:
    left = prompt_budget(window) // _EXAMPLES_SHARE
    for place in range(len(examples), 0, -1):
        left -= count_tokens(_as_text(examples[place - 1]))
        if left < 0:
            return examples[place:]
    return examples


def _as_text(example: Example) -> str:
    log = f"<chat-log>\n{format_chat_history(example.chat)}\n</chat-log>\n" if example.chat else ""
    return f"{log}{example.input}\n{example.to_json()}"


def _as_messages(
    template: BasePromptTemplate[Any], example: Example, values: Mapping[str, Any], as_object: bool
) -> list[BaseMessage]:
    """An example as the human message of the same template, and the plan as the reply."""
    request = PlanRequest(example.input, example.files, example.chat)
    shown = fill(template, {**values, **_request_variables(template, request)}, window=1_000_000)
    messages = template.format_prompt(**shown).to_messages()
    human = next((m for m in reversed(messages) if isinstance(m, HumanMessage)), HumanMessage(example.input))
    plan = example.to_json(as_object=as_object)
    return [human, AIMessage(plan, additional_kwargs={STAGE_KEY: "plan"})]


def _outcome(result: TaskResult) -> dict[str, Any]:
    """The call of a task, and the kinds that it made or why it failed."""
    task = result.task
    call = {"task": task.task, "id": task.id, "args": truncate_json(task.args, 100)}
    if result.status == "ok":
        return call | {"made": list(dict.fromkeys(resource.kind for resource in result.resources))}
    return call | {"status": result.status, "error": (result.error or "")[:_MAX_ERROR_CHARS]}
