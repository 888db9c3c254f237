"""Prompt templates: files under `prompts/`, loaded as LangChain ChatPromptTemplates.

    prompts = load_prompts("default")       # "paper", or a directory
    prompts.plan.input_variables            # ["available_tasks", "chat_log_block", "files_block", "input"]
    format_chat_history(turns, budget=500)  # recent turns in words, older ones as files, in about 500 tokens

A prompt is a Markdown file, `<stage>.md`. Above its first line of three dashes is the system message, which
changes little, so that providers can cache it. Below is the human message. A directory may hold any of the
files and an `examples.json`; the default set is used for the others.

A file has slots in double braces, with the paper's names. Each becomes a template variable: `input` for
`{{ User Input }}`, `candidate_models` for `{{ Candidate Models }}`. Values are inserted unchanged: braces in
them have no meaning. A block such as `<chat-log>` is left out when it is empty (`_BLOCKS`). In the planning
prompt, worked examples are inserted between the two messages (the placeholder `examples`). `STAGES` lists the
slots of each stage. `further.md` is no prompt: it is what `{{ Further Tasks }}` of `respond.md` stands for.

Messages carry their stage in `additional_kwargs["jarvis_stage"]`, which is not sent to providers. Test models
use it to tell the stages apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files as package_files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.prompts import (
    BasePromptTemplate,
    ChatPromptTemplate,
    HumanMessagePromptTemplate,
    MessagesPlaceholder,
    PromptTemplate,
    SystemMessagePromptTemplate,
)

from jarvis_agent.core.context import ChatTurn
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.text import brief_text
from jarvis_agent.core.types import Resource
from jarvis_agent.llm.budget import Truncator, allocate_budget, count_tokens, prompt_budget, to_json_line
from jarvis_agent.llm.usage import STAGE_KEY

_SLOTS = {
    "plan": "Available Tasks, Available Task List, Demonstrations, Chat Logs, Files, User Input",
    "select": "User Input, Task, Task Description, Candidate Models",
    "respond": "User Input, Chat Logs, Files, Texts, Tasks, Model Assignment, Predictions, Totals, Notes, "
    "Further Tasks",
    "further": "Available Tasks, Available Task List",
    "repair": "Available Tasks, Available Task List, Files, User Input, Valid Tasks, Broken Tasks",
    "chat": "User Input, Chat Logs, Files, Notes",
}
STAGES = {stage: frozenset(slots.split(", ")) for stage, slots in _SLOTS.items()}
"""The slots that the prompt of each stage may use."""

VARIABLES = {"User Input": "input", "Chat Logs": "chat_log", "Chat Logs Block": "chat_log_block"}
"""Template variables whose names are not the slot's in snake case."""

_SLOT = re.compile(r"\{\{ *([A-Za-z][A-Za-z ]*?) *\}\}")
_BLOCKS = {
    "Chat Logs": "chat-log",
    "Files": "files",
    "Texts": "texts",
    "Totals": "totals",
    "Notes": "plan-notes",
    "Valid Tasks": "valid-tasks",
}
"""The slots whose block, between tags on lines of their own, is left out if nothing is in it."""
_EMPTY = ("", "(none)", "{}", "[]")
_DIVIDER = re.compile(r"^---[ \t]*\n", re.MULTILINE)
_MIN_SHARE = 4
"""The shortened variables get at least a quarter of the context window."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompt templates of every stage, and the examples of the planning prompt.

    Attributes:
        examples: name or file of the set's own examples; None: those that the model needs.
    """

    plan: BasePromptTemplate[Any]
    select: BasePromptTemplate[Any]
    respond: BasePromptTemplate[Any]
    further: BasePromptTemplate[Any]
    repair: BasePromptTemplate[Any]
    chat: BasePromptTemplate[Any]
    examples: str | Path | None = None


PromptSource = str | Path | Prompts | BasePromptTemplate[Any]
"""What stages take as `prompts`: a set, its name or directory, or the template of the stage alone."""


def load_prompts(source: PromptSource | None = None, stage: str = "plan") -> Prompts:
    """The prompt set "default" or "paper", or the one in a directory.

    Args:
        source: name or directory; None: "default". A Prompts is returned unchanged; a template replaces that
            of `stage`.
        stage: the stage of a single template.

    Raises:
        ConfigError: no such directory, or one of its files has an unknown slot or cannot be read.
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
    for slot, tag in _BLOCKS.items():
        text = text.replace(f"<{tag}>\n{{{{ {slot} }}}}\n</{tag}>\n", f"{{{{ {slot} Block }}}}")
    system, *human = _DIVIDER.split(text, maxsplit=1)
    kwargs = {STAGE_KEY: stage}
    messages: list[Any] = [
        SystemMessagePromptTemplate(prompt=_f_string(system), additional_kwargs=kwargs),
        HumanMessagePromptTemplate(
            prompt=_f_string(human[0] if human else "{{ User Input }}"), additional_kwargs=kwargs
        ),
    ]
    if stage == "plan":
        messages.insert(1, MessagesPlaceholder("examples", optional=True))
    return ChatPromptTemplate(messages)


def _f_string(text: str) -> PromptTemplate:
    pieces = _SLOT.split(text.strip())
    escaped = [piece.replace("{", "{{").replace("}", "}}") for piece in pieces[::2]]
    slots = [f"{{{variable_of(slot)}}}" for slot in pieces[1::2]]
    return PromptTemplate.from_template("".join(a + b for a, b in zip(escaped, [*slots, ""], strict=True)))


def variable_of(slot: str) -> str:
    """The template variable of a slot: "Candidate Models" → "candidate_models"."""
    return VARIABLES.get(slot, slot.lower().replace(" ", "_"))


def uses(template: BasePromptTemplate[Any], *variables: str) -> bool:
    """Whether a template uses one of these variables."""
    used = {*template.input_variables, *template.optional_variables}
    return not used.isdisjoint(variables)


def fill(
    template: BasePromptTemplate[Any],
    values: Mapping[str, str | Sequence[BaseMessage] | Truncator],
    window: int,
) -> dict[str, Any]:
    """The values of a template's variables, shortened until the prompt fits the context window.

    Args:
        template: only the variables it uses are filled.
        values: texts and messages, which are kept whole, and truncators, the most important first.
        window: context window of the model in tokens.
    """
    tags = {variable_of(slot): tag for slot, tag in _BLOCKS.items()}
    known: dict[str, Any] = {f"{name}_block": "" for name in tags}
    for name, value in values.items():
        known[name] = value
        if name in tags and callable(value):
            known.pop(f"{name}_block")  # it takes the place of its value in the order
            known[f"{name}_block"] = _block(value, tags[name])
    used = {name: value for name, value in known.items() if uses(template, name)}
    slots = {name: value for name, value in used.items() if callable(value)}
    fixed: dict[str, Any] = {name: value for name, value in used.items() if name not in slots}
    marks = {name: f"\0{name}\0" for name in slots}
    try:
        # `invoke` would be a run of its own in traces.
        text = template.format_prompt(**fixed, **marks).to_string()
    except KeyError as error:
        raise ConfigError(
            f"the prompt template has unknown variables ({error.args[0].splitlines()[0]}); "
            f"this stage provides {', '.join(sorted(values))}"
        ) from error
    repeats = {name: text.count(mark) for name, mark in marks.items()}
    taken = count_tokens(text) - sum(repeats[name] * count_tokens(mark) for name, mark in marks.items())
    left = max(prompt_budget(window) - taken, window // _MIN_SHARE)
    return fixed | allocate_budget(slots, left, repeats)


def _block(value: Truncator, tag: str) -> Truncator:
    """A slot between tags; "" if nothing is in it."""

    def block(limit: int) -> str:
        text = value(limit)
        return "" if text in _EMPTY else f"<{tag}>\n{text}\n</{tag}>\n"

    return block


def _load(stage: str, folders: Sequence[Traversable]) -> BasePromptTemplate[Any]:
    file = next(folder / f"{stage}.md" for folder in folders if (folder / f"{stage}.md").is_file())
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the prompt file {file} cannot be read: {error}") from error
    unknown = sorted(set(_SLOT.findall(text)) - STAGES[stage])
    if unknown:
        raise ConfigError(
            f"the prompt {file} has the unknown slot {{{{ {unknown[0]} }}}}; "
            f"the stage {stage} has {', '.join(sorted(STAGES[stage]))}"
        )
    return _f_string(text) if stage == "further" else make_template(stage, text)


HISTORY_TURNS = 10
"""Turns that a prompt shows in words."""

_MAX_TURN_CHARS = 600


def shorten_history(turns: Sequence[ChatTurn]) -> Truncator:
    """A truncator for the chat history (see `jarvis_agent.llm.budget`)."""
    return lambda limit: format_chat_history(turns, limit) or "(none)"


def format_chat_history(turns: Sequence[ChatTurn], budget: int = 1_000_000) -> str:
    """Earlier turns, oldest first; each resource is one line with its kind, path or text, and name.

    Args:
        turns: oldest first.
        budget: maximum number of tokens. The words of old turns are dropped first, then their resources.
    """
    in_words = HISTORY_TURNS
    kept: list[str] = []
    for age, turn in enumerate(reversed(turns)):
        title = f"Turn {len(turns) - age}"
        made = [f"- {_resource(resource)}" for resource in turn.resources]
        said = [f"User: {_cut(turn.request)}", f"Assistant: {_cut(turn.answer)}"]
        lines = [title, *(said if age < in_words else []), *made]
        if count_tokens("\n".join(lines)) > budget:
            in_words = min(in_words, age)
            lines = [title, *made]
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
    return to_json_line(brief_text(text, _MAX_TURN_CHARS))
