"""Prompts: texts under `prompts/` with slots in double braces, filled and turned into messages.

    prompts = load_prompts("default")                    # or "paper", or a directory of one's own
    messages = prompts.plan_messages(brief)              # [SystemMessage, HumanMessage]

A prompt is a Markdown file, `<stage>.md`. What stands above its first line of three dashes is the system
message; it comes first and changes little, so that providers can cache it. What stands below is the human
message. A directory of one's own may hold any of the files, and `demos.json`; what it lacks comes from the
default set.

Slots by stage (a value is put in as it is: braces and backslashes in it mean nothing):

    plan      Available Tasks · Available Task List · Demonstrations · Chat Logs · Files · User Input
    select    User Input · Task · Task Description · Candidate Models
    respond   User Input · Chat Logs · Tasks · Model Assignment · Predictions · Totals · Notes
    repair    Available Tasks · Available Task List · Broken Tasks
    chat      User Input · Chat Logs · Notes

Messages carry their stage in `additional_kwargs["jarvis_stage"]`, which no provider is sent; scripted models
tell the stages apart by it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files as package_files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from jarvis_agent.answer.digest import digest, model_assignment, predictions, totals
from jarvis_agent.errors import ConfigError
from jarvis_agent.request import Turn
from jarvis_agent.sources.cards import first_tokens
from jarvis_agent.tools.spec import MEDIA
from jarvis_agent.tools.table import find_task
from jarvis_agent.types import Resource

if TYPE_CHECKING:
    from jarvis_agent.plan import Plan
    from jarvis_agent.request import Brief
    from jarvis_agent.tools.spec import Arg, TaskSpec
    from jarvis_agent.types import Candidate, Task, TaskResult

STAGES: dict[str, frozenset[str]] = {
    "plan": frozenset(
        {"Available Tasks", "Available Task List", "Demonstrations", "Chat Logs", "Files", "User Input"}
    ),
    "select": frozenset({"User Input", "Task", "Task Description", "Candidate Models"}),
    "respond": frozenset(
        {"User Input", "Chat Logs", "Tasks", "Model Assignment", "Predictions", "Totals", "Notes"}
    ),
    "repair": frozenset({"Available Tasks", "Available Task List", "Broken Tasks"}),
    "chat": frozenset({"User Input", "Chat Logs", "Notes"}),
}
"""The stages, and the slots that each one's prompt may use."""

STAGE_MARK = "jarvis_stage"

_SLOT = re.compile(r"\{\{ *([A-Za-z][A-Za-z ]*?) *\}\}")
_DIVIDER = re.compile(r"^---[ \t]*\n", re.MULTILINE)
_LONGEST_TURN = 600
_LONGEST_CARD = 100
"""Tokens of a model's description."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A worked example for the planner: a request, the chat before it if there was one, and the plan."""

    request: str
    plan: list[dict[str, Any]]
    chat: tuple[Turn, ...] = ()

    def uses_only(self, specs: Mapping[str, TaskSpec]) -> bool:
        """Whether every task of the plan is offered."""
        found = (find_task(task["task"], specs) for task in self.plan)
        return all(spec is not None and spec.name in specs for spec in found)

    def __str__(self) -> str:
        log = f"<chat-log>\n{chat_log(self.chat)}\n</chat-log>\n" if self.chat else ""
        return f"{log}{self.request}\n{json.dumps(self.plan, ensure_ascii=False)}"


@dataclass(frozen=True, slots=True)
class PromptSet:
    """The prompts of every stage, the demonstrations, and how much of the chat they show."""

    texts: Mapping[str, str]
    demonstrations: tuple[Demonstration, ...]
    history_turns: int = 10

    def render(self, stage: str, **slots: str) -> list[BaseMessage]:
        """The messages of a stage with its slots filled. Slots are given with underscores: `User_Input="…"`.

        Raises:
            ConfigError: the prompt has a slot that is not given.
        """
        values = {name.replace("_", " "): value for name, value in slots.items()}
        system, *human = _DIVIDER.split(self.texts[stage], maxsplit=1)
        mark = {STAGE_MARK: stage}
        return [
            SystemMessage(_fill(stage, system, values).strip(), additional_kwargs=mark),
            HumanMessage(
                _fill(stage, human[0] if human else "{{ User Input }}", values).strip(),
                additional_kwargs=mark,
            ),
        ]

    def plan_messages(self, brief: Brief) -> list[BaseMessage]:
        """Ask for a plan of the request. Demonstrations of tasks that are not offered are left out."""
        shown = [str(demo) for demo in self.demonstrations if demo.uses_only(brief.specs)]
        return self.render(
            "plan",
            Available_Tasks=task_lines(brief.specs.values()),
            Available_Task_List=", ".join(brief.specs),
            Demonstrations="\n\n".join(shown) or "(none)",
            Chat_Logs=self._log(brief),
            Files="\n".join(_file_line(file) for file in brief.files) or "(none)",
            User_Input=brief.request,
        )

    def select_messages(
        self, brief: Brief, task: Task, candidates: Sequence[Candidate], spec: TaskSpec | None = None
    ) -> list[BaseMessage]:
        """Ask for the best of the candidates for a task."""
        spec = spec or find_task(task.task, brief.specs)
        return self.render(
            "select",
            User_Input=brief.request,
            Task=as_data({"task": task.task, "id": task.id, "dep": task.dep, "args": digest(task.args, 600)}),
            Task_Description=spec.description if spec else "",
            Candidate_Models="\n".join(as_data(candidate_card(candidate)) for candidate in candidates),
        )

    def respond_messages(self, brief: Brief, plan: Plan, results: Sequence[TaskResult]) -> list[BaseMessage]:
        """Ask for the answer to the request, given what was done. Big results are shortened."""
        return self.render(
            "respond",
            User_Input=brief.request,
            Chat_Logs=self._log(brief),
            Tasks=as_data([task.model_dump() | {"args": digest(task.args, 600)} for task in plan.tasks]),
            Model_Assignment=as_data(model_assignment(results)),
            Predictions="\n".join(as_data(entry) for entry in predictions(results)) or "(none)",
            Totals=as_data(totals(results)),
            Notes=_bullets(plan.notes),
        )

    def repair_messages(
        self, broken: Iterable[tuple[Any, str]], specs: Mapping[str, TaskSpec]
    ) -> list[BaseMessage]:
        """Ask for tasks to be written again: each as it was written, with what is wrong with it."""
        return self.render(
            "repair",
            Available_Tasks=task_lines(specs.values()),
            Available_Task_List=", ".join(specs),
            Broken_Tasks="\n".join(
                as_data({"written": written, "error": error}) for written, error in broken
            ),
            User_Input="",
        )

    def chat_messages(self, brief: Brief, notes: Sequence[str] = ()) -> list[BaseMessage]:
        """Ask for a plain answer, without experts; `notes` say why the plan is empty."""
        return self.render(
            "chat", User_Input=brief.request, Chat_Logs=self._log(brief), Notes=_bullets(notes)
        )

    def _log(self, brief: Brief) -> str:
        shown = brief.turns[-self.history_turns :] if self.history_turns else ()
        return chat_log(shown) or "(none)"


def load_prompts(name_or_dir: str | Path, history_turns: int = 10) -> PromptSet:
    """The prompt set "default" or "paper", or the one in a directory.

    Args:
        name_or_dir: as in `Settings.prompts`.
        history_turns: how many earlier turns of a chat the prompts show (`Settings.history_turns`).

    Raises:
        ConfigError: there is no such directory, or a file in it has an unknown slot or can not be read.
    """
    package = package_files("jarvis_agent.prompts")
    places: list[Traversable] = [package]
    demos: Traversable = package / "demos" / "default.json"
    if name_or_dir == "paper":
        places.insert(0, package / "paper")
        demos = package / "demos" / "paper.json"
    elif name_or_dir != "default":
        own = Path(name_or_dir).expanduser()
        if not own.is_dir():
            raise ConfigError(
                f'the prompt set "{name_or_dir}" is neither "default" nor "paper" nor a directory'
            )
        places.insert(0, own)
        demos = own / "demos.json" if (own / "demos.json").is_file() else demos
    texts = {stage: _read_prompt(stage, places) for stage in STAGES}
    return PromptSet(texts, _read_demos(demos), history_turns)


def _read_prompt(stage: str, places: Sequence[Traversable]) -> str:
    file = next(place / f"{stage}.md" for place in places if (place / f"{stage}.md").is_file())
    text = _read(file)
    unknown = sorted(set(_SLOT.findall(text)) - STAGES[stage])
    if unknown:
        raise ConfigError(
            f"the prompt {file} has the unknown slot {{{{ {unknown[0]} }}}}; "
            f"the stage {stage} knows {', '.join(sorted(STAGES[stage]))}"
        )
    return text


def _read_demos(file: Traversable) -> tuple[Demonstration, ...]:
    try:
        return tuple(
            Demonstration(
                row["request"],
                row["plan"],
                tuple(
                    Turn(
                        turn["request"], turn["answer"], tuple(Resource(**made) for made in turn["resources"])
                    )
                    for turn in row.get("chat", ())
                ),
            )
            for row in json.loads(_read(file))
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"the demonstrations {file} can not be read: {error!r}. "
            'They are a list of {"request": …, "plan": […]}.'
        ) from error


def _read(file: Traversable) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the prompt file {file} can not be read: {error}") from error


def _fill(stage: str, template: str, values: Mapping[str, str]) -> str:
    missing = sorted(set(_SLOT.findall(template)) - set(values))
    if missing:
        raise ConfigError(
            f"the prompt of the stage {stage} needs the slot {missing[0]!r}, which is not given"
        )
    return _SLOT.sub(lambda match: values[match[1]], template)


def as_data(value: Any) -> str:
    """Plain data as one line of JSON that can not close the tag it stands in."""
    return json.dumps(value, ensure_ascii=False, default=str).replace("</", "<\\/")


def task_lines(specs: Iterable[TaskSpec]) -> str:
    """The tasks with their arguments, what they make and what they do, one a line."""
    return "\n".join(
        f"- {spec.name}({', '.join(_arg(arg) for arg in spec.inputs)}) -> {', '.join(spec.outputs)}: "
        f"{' '.join(spec.description.split())}"
        for spec in specs
    )


def _arg(arg: Arg) -> str:
    kind = arg.kind if arg.kind in MEDIA and arg.name != arg.kind else ""
    about = ", ".join(part for part in (kind, arg.description) if part)
    return arg.name + ("" if arg.required else "?") + (f": {about}" if about else "")


def _bullets(notes: Iterable[str]) -> str:
    return "\n".join(f"- {as_data(note)}" for note in notes) or "(none)"


def chat_log(turns: Iterable[Turn]) -> str:
    """Earlier turns in words; each resource is one line with its kind, its path or text, and what made it."""
    lines = []
    for number, turn in enumerate(turns, 1):
        lines += [f"Turn {number}", f"User: {_cut(turn.request)}", f"Assistant: {_cut(turn.answer)}"]
        lines += [f"- {_resource(resource)}" for resource in turn.resources]
    return "\n".join(lines)


def candidate_card(candidate: Candidate) -> dict[str, Any]:
    """A candidate as the paper shows it to the language model: id, metadata, description."""
    known = {
        "downloads": candidate.downloads,
        "likes": candidate.likes,
        "license": candidate.license,
        "languages": list(candidate.languages),
        "megabytes": round(candidate.size / 1e6) if candidate.size else None,
        "on_this_machine": candidate.local,
        "good_for": list(candidate.traits),
        "tags": list(candidate.tags[:8]),
    }
    return {
        "model_id": candidate.id,
        "metadata": {name: value for name, value in known.items() if value not in (None, [], 0)},
        "description": first_tokens(candidate.description, _LONGEST_CARD),
    }


def _file_line(file: Resource) -> str:
    return f"- {file.kind}: {as_data(file.name or str(file.path or ''))}"


def _resource(resource: Resource) -> str:
    what = as_data(str(resource.path)) if resource.path else _cut(resource.as_text())
    return f"{resource.kind} {what}" + (f" ({resource.name})" if resource.name else "")


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return as_data(flat if len(flat) <= _LONGEST_TURN else flat[:_LONGEST_TURN] + " …")
