"""Prompt templates: files under `prompts/`, loaded as LangChain ChatPromptTemplates.

A prompt is a Markdown file, `<stage>.md`, in mustache format. Above its first line of three dashes is the
system message, which changes little, so that providers can cache it. Below is the human message. A directory
may hold any of the files and an `examples.json`; the default set is used for the others.

`{{{input}}}` is replaced by the value of a variable, and `{{#files}}…{{/files}}` is left out if it is empty.
Braces in values have no meaning. `STAGES` lists the variables of each stage. In the planning prompt, worked
examples are inserted between the two messages (the placeholder `examples`).

Messages carry their stage in `additional_kwargs["jarvis_stage"]`, which is not sent to providers. Test models
use it to tell the stages apart.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files as package_files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from langchain_core.prompts import (
    BasePromptTemplate,
    ChatPromptTemplate,
    HumanMessagePromptTemplate,
    MessagesPlaceholder,
    PromptTemplate,
    SystemMessagePromptTemplate,
)
from langchain_core.utils.mustache import ChevronError

from jarvis_agent.core.context import ChatTurn
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.text import brief_text
from jarvis_agent.core.types import Resource
from jarvis_agent.llm.tokens import clip, count_tokens, prompt_budget, to_json_line
from jarvis_agent.llm.usage import STAGE_KEY

_VARIABLES = {
    "plan": "available_tasks available_task_list demonstrations chat_log files input",
    "select": "input task task_description candidate_models",
    "respond": "input chat_log files texts tasks model_assignment predictions totals notes "
    "available_tasks available_task_list",
    "repair": "available_tasks available_task_list files input valid_tasks broken_tasks",
    "chat": "input chat_log files notes",
    "structure": "input predictions totals answer schema",
}
STAGES = {stage: frozenset(names.split()) for stage, names in _VARIABLES.items()}
"""The variables that the prompt of each stage may use."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompt templates of every stage, and the examples of planning; None: those that the model needs."""

    plan: BasePromptTemplate[Any]
    select: BasePromptTemplate[Any]
    respond: BasePromptTemplate[Any]
    repair: BasePromptTemplate[Any]
    chat: BasePromptTemplate[Any]
    structure: BasePromptTemplate[Any]
    examples: str | Path | None = None


PromptSource = str | Path | Prompts | BasePromptTemplate[Any]
"""What stages take as `prompts`: a set, its name or directory, or the template of the stage alone."""


def load_prompts(source: PromptSource | None = None, stage: str = "plan") -> Prompts:
    """The prompt set "default" or "paper", or the one in a directory. A template replaces that of `stage`.

    Raises ConfigError: no such directory, or one of its files has an unknown variable or cannot be read.
    """
    if isinstance(source, Prompts):
        return source
    if isinstance(source, BasePromptTemplate):
        changed: dict[str, Any] = {stage: source}
        return replace(load_prompts(), **changed)
    folders: list[Traversable] = [package_files("jarvis_agent.prompts")]
    examples: str | Path | None = "paper" if source == "paper" else None
    if source == "paper":
        folders.insert(0, folders[0] / "paper")
    elif source not in (None, "default"):
        own = Path(source).expanduser()
        if not own.is_dir():
            raise ConfigError(f'the prompt set "{source}" is not "default", "paper" or an existing directory')
        folders.insert(0, own)
        examples = own / "examples.json" if (own / "examples.json").is_file() else None
    return Prompts(**{stage: _load(stage, folders) for stage in STAGES}, examples=examples)


def make_template(stage: str, text: str) -> ChatPromptTemplate:
    """The template of a prompt file's text (see the module)."""
    system, *human = re.split(r"^---[ \t]*\n", text, maxsplit=1, flags=re.MULTILINE)
    parts = {SystemMessagePromptTemplate: system, HumanMessagePromptTemplate: "".join(human) or "{{{input}}}"}
    messages: list[Any] = []
    for role, part in parts.items():
        prompt = PromptTemplate.from_template(part.strip(), template_format="mustache")
        messages.append(role(prompt=prompt, additional_kwargs={STAGE_KEY: stage}))
    if stage == "plan":
        messages.insert(1, MessagesPlaceholder("examples", optional=True))
    return ChatPromptTemplate(messages)


def uses(template: BasePromptTemplate[Any], *variables: str) -> bool:
    """Whether a template uses one of these variables."""
    used = {*template.input_variables, *template.optional_variables}
    return not used.isdisjoint(variables)


def fill(
    template: BasePromptTemplate[Any], texts: Mapping[str, str], window: int, **whole: Any
) -> dict[str, Any]:
    """The values of the variables that a template uses, clipped until the prompt fits the context window.

    `texts` may be clipped, the most important first; the `whole` texts and messages never are. `window` is in
    tokens. Raises ConfigError: the template has a variable that its stage does not provide.
    """
    provided = {**whole, **texts}
    if unknown := set(template.input_variables) - provided.keys():
        raise ConfigError(
            f"the prompt template has unknown variables ({', '.join(sorted(unknown))}); "
            f"this stage provides {', '.join(sorted(provided))}"
        )
    values = {name: "" if name in texts else whole[name] for name in provided if uses(template, name)}

    def taken() -> int:
        # `invoke` would be a run of its own in traces.
        return count_tokens(template.format_prompt(**values).to_string())

    # The texts get at least a quarter of the context window, and each half of what is left.
    limit = max(prompt_budget(window), taken() + window // 4)
    for name, text in texts.items():
        if text and name in values:
            values[name] = clip(text, max(0, limit - taken()) // 2)
    return values


def _load(stage: str, folders: Sequence[Traversable]) -> BasePromptTemplate[Any]:
    file = next(folder / f"{stage}.md" for folder in folders if (folder / f"{stage}.md").is_file())
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the prompt file {file} cannot be read: {error}") from error
    try:
        template = make_template(stage, text)
    except ChevronError as error:
        raise ConfigError(f"the prompt file {file} is no mustache template: {error}") from error
    if unknown := sorted({*template.input_variables} - STAGES[stage]):
        raise ConfigError(
            f"the prompt {file} has the unknown variable {unknown[0]}; "
            f"the stage {stage} has {', '.join(sorted(STAGES[stage]))}"
        )
    return template


def format_chat_history(turns: Sequence[ChatTurn], budget: int = 1_000_000) -> str:
    """Earlier turns, oldest first; each resource is one line with its kind, path or text, and name.

    Of more than `budget` tokens, the words of old turns are dropped first, then their resources.
    """
    in_words = 10
    kept: list[str] = []
    for age, turn in enumerate(reversed(turns)):
        title = f"Turn {len(turns) - age}"
        files = [f"- {_resource(resource)}" for resource in turn.resources]
        words = [f"User: {_cut(turn.request)}", f"Assistant: {_cut(turn.answer)}"]
        lines = [title, *(words if age < in_words else []), *files]
        if count_tokens("\n".join(lines)) > budget:
            in_words = min(in_words, age)
            lines = [title, *files]
            while lines and count_tokens("\n".join(lines)) > budget:
                lines.pop()
        if len(lines) > 1:
            kept.append("\n".join(lines))
            budget -= count_tokens(kept[-1])
    return "\n".join(reversed(kept))


def _resource(resource: Resource) -> str:
    what = to_json_line(str(resource.path)) if resource.path else _cut(resource.as_text())
    return f"{resource.kind} {what}" + (f" ({to_json_line(resource.name)})" if resource.name else "")


def _cut(text: str) -> str:
    return to_json_line(brief_text(text, 600))
