"""Prompts: texts under `prompts/` with slots in double braces, filled and turned into messages.

    prompts = load_prompts("default")                    # "paper", "small", or a directory of one's own
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
    replan    Available Tasks · Available Task List · Files · User Input · Done Tasks · Failed Tasks
    chat      User Input · Chat Logs · Notes

Messages carry their stage in `additional_kwargs["jarvis_stage"]`, which no provider is sent; scripted models
tell the stages apart by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files as package_files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

from jarvis_agent.backends.hub.model_card import first_tokens
from jarvis_agent.core.chat_log import chat_log
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.request import RunContext
from jarvis_agent.core.tasks.registry import find_task
from jarvis_agent.core.tasks.spec import MEDIA
from jarvis_agent.core.types import Resource
from jarvis_agent.llm.budget import cut, lines_within, rows, whole_or_digest
from jarvis_agent.llm.token_budget import DEFAULT_WINDOW, Fit, fitted, room, tokens
from jarvis_agent.planning.example_selector import Demonstration, fixed, read_demonstrations
from jarvis_agent.response.results import as_data, digest, model_assignment, predictions, totals

if TYPE_CHECKING:
    from jarvis_agent.core.tasks.spec import Arg, TaskSpec
    from jarvis_agent.core.types import Candidate, Task, TaskResult
    from jarvis_agent.planning.plan import Plan

STAGES: dict[str, frozenset[str]] = {
    "plan": frozenset(
        {"Available Tasks", "Available Task List", "Demonstrations", "Chat Logs", "Files", "User Input"}
    ),
    "select": frozenset({"User Input", "Task", "Task Description", "Candidate Models"}),
    "respond": frozenset(
        {"User Input", "Chat Logs", "Tasks", "Model Assignment", "Predictions", "Totals", "Notes"}
    ),
    "repair": frozenset({"Available Tasks", "Available Task List", "Broken Tasks"}),
    "replan": frozenset(
        {"Available Tasks", "Available Task List", "Files", "User Input", "Done Tasks", "Failed Tasks"}
    ),
    "chat": frozenset({"User Input", "Chat Logs", "Notes"}),
}
"""The stages, and the slots that each one's prompt may use."""

STAGE_MARK = "jarvis_stage"

_SLOT = re.compile(r"\{\{ *([A-Za-z][A-Za-z ]*?) *\}\}")
_BLOCK = r"<([a-z-]+)>\n\{{\{{ {} \}}\}}\n</\1>\n"
_DIVIDER = re.compile(r"^---[ \t]*\n", re.MULTILINE)
_LONGEST_ERROR = 600
_LEAST = 4
"""The part of the window, one by this, that requests and results have in any case."""

_DEMONSTRATIONS = 4
"""The part of a prompt's room, one by this, that demonstrations may take."""

_LONGEST_CARD = 100
"""Tokens of a model's description."""


@dataclass(frozen=True, slots=True)
class PromptSet:
    """The prompts of every stage, the demonstrations, and how much they show.

    `window` is the number of tokens that the language model reads; what grows with a request, a chat or its
    results is cut until the prompt fits.
    """

    texts: Mapping[str, str]
    demonstrations: tuple[Demonstration, ...]
    history_turns: int = 10
    has_own_demonstrations: bool = False
    window: int = DEFAULT_WINDOW

    @property
    def lists_tasks(self) -> bool:
        """Whether the planner is told the tasks; it knows those of the demonstrations alone if it is not."""
        return any(slot.startswith("Available Task") for slot in _SLOT.findall(self.texts["plan"]))

    def render(self, stage: str, beside: int = 0, **slots: str | Fit) -> list[BaseMessage]:
        """The messages of a stage with its slots filled. Slots are given with underscores: `User_Input="…"`.

        Args:
            stage: one of `STAGES`.
            beside: tokens of what is said beside these messages.
            slots: texts that are put in whole, and functions that make them as long as there is room; of
                these the first ones matter most.

        Raises:
            ConfigError: the prompt has a slot that is not given.
        """
        values = self._filled(stage, {name.replace("_", " "): slot for name, slot in slots.items()}, beside)
        system, human = _halves(self.texts[stage])
        mark = {STAGE_MARK: stage}
        return [
            SystemMessage(_fill(stage, system, values).strip(), additional_kwargs=mark),
            HumanMessage(_fill(stage, human, values).strip(), additional_kwargs=mark),
        ]

    def _filled(self, stage: str, slots: Mapping[str, str | Fit], beside: int) -> dict[str, str]:
        whole = {name: slot for name, slot in slots.items() if isinstance(slot, str)}
        used = _SLOT.findall(self.texts[stage])
        taken = tokens(_SLOT.sub("", self.texts[stage])) + sum(tokens(whole.get(name, "")) for name in used)
        short = {name: slot for name, slot in slots.items() if not isinstance(slot, str)}
        # What is fixed may be too much for the window; a request that is not told at all helps nobody.
        left = max(room(self.window) - taken - beside, self.window // _LEAST)
        return whole | fitted(short, left)

    def plan_messages(
        self,
        brief: RunContext,
        demonstrations: Iterable[Demonstration] | None = None,
        by_schema: bool = False,
    ) -> list[BaseMessage]:
        """Ask for a plan of the request.

        Args:
            brief: the request, and the task types that are shown.
            demonstrations: those to show instead of the set's own. Where tasks of one are not offered, it is
                left out.
            by_schema: whether the reply is held to a schema. The turns of the chat that show demonstrations
                have its form then: what a small model sees it can write.
        """
        given = self.demonstrations if demonstrations is None else demonstrations
        shown = self._last_that_fit([demo for demo in given if demo.uses_only(brief.specs)])
        fixed = {
            "Available_Tasks": task_lines(brief.specs.values()),
            "Available_Task_List": ", ".join(brief.specs),
            "Demonstrations": "",
        }
        if "Demonstrations" in _SLOT.findall(self.texts["plan"]):
            return self._plan_prompt(
                brief, fixed | {"Demonstrations": "\n\n".join(map(_in_words, shown)) or "(none)"}
            )
        mark = {STAGE_MARK: "plan"}
        chat: list[BaseMessage] = []
        turns = self._without_system("plan")
        for demo in shown:
            chat.append(turns._plan_prompt(RunContext(demo.request, demo.files, demo.chat), fixed)[1])
            plan = demo.written_by_schema if by_schema else demo.written
            chat.append(AIMessage(plan, additional_kwargs=mark))
        system, human = self._plan_prompt(brief, fixed, sum(tokens(str(one.text)) for one in chat))
        return [system, *chat, human]

    def _without_system(self, stage: str) -> PromptSet:
        """This set with the human message of a stage alone: of a demonstration nothing else is shown."""
        return replace(self, texts={**self.texts, stage: f"---\n{_halves(self.texts[stage])[1]}"})

    def _last_that_fit(self, demonstrations: Sequence[Demonstration]) -> Sequence[Demonstration]:
        """Those at the end, which are nearest to the request."""
        left = room(self.window) // _DEMONSTRATIONS
        for place in range(len(demonstrations), 0, -1):
            left -= tokens(_in_words(demonstrations[place - 1]))
            if left < 0:
                return demonstrations[place:]
        return demonstrations

    def _plan_prompt(self, brief: RunContext, fixed: Mapping[str, str], beside: int = 0) -> list[BaseMessage]:
        """`fixed` are the slots that are not the request's; otherwise as `render`."""
        text = self.texts["plan"]
        for slot, is_there in (("Chat Logs", brief.turns), ("Files", brief.files)):
            text = text if is_there else re.sub(_BLOCK.format(slot), "", text)
        return replace(self, texts={**self.texts, "plan": text}).render(
            "plan",
            beside,
            **fixed,
            User_Input=cut(brief.request),
            Files=_listed(_file_line(file) for file in brief.files),
            Chat_Logs=self._log(brief),
        )

    def select_messages(
        self, brief: RunContext, task: Task, candidates: Sequence[Candidate], spec: TaskSpec | None = None
    ) -> list[BaseMessage]:
        """Ask for the best of the candidates for a task."""
        spec = spec or find_task(task.task, brief.specs)
        return self.render(
            "select",
            User_Input=cut(brief.request),
            Task=as_data(_task_asked(task)),
            Task_Description=spec.description if spec else "",
            Candidate_Models=rows(lambda share: [candidate_card(one, share) for one in candidates]),
        )

    def respond_messages(
        self, brief: RunContext, plan: Plan, results: Sequence[TaskResult]
    ) -> list[BaseMessage]:
        """Ask for the answer to the request, given what was done. Big results are shortened."""
        return self.render(
            "respond",
            User_Input=cut(brief.request),
            Predictions=rows(lambda share: predictions(results, share)),
            Totals=whole_or_digest(totals(results)),
            Model_Assignment=whole_or_digest(model_assignment(results)),
            Tasks=whole_or_digest([_task_done(task) for task in plan.tasks]),
            Notes=_bullets(plan.notes),
            Chat_Logs=self._log(brief),
        )

    def repair_messages(
        self, broken: Iterable[tuple[Any, str]], specs: Mapping[str, TaskSpec]
    ) -> list[BaseMessage]:
        """Ask for tasks to be written again: each as it was written, with what is wrong with it."""
        written = list(broken)
        return self.render(
            "repair",
            Available_Tasks=task_lines(specs.values()),
            Available_Task_List=", ".join(specs),
            Broken_Tasks=rows(
                lambda share: [{"written": digest(one, share), "error": error} for one, error in written]
            ),
            User_Input="",
        )

    def replan_messages(self, brief: RunContext, results: Sequence[TaskResult]) -> list[BaseMessage]:
        """Ask for tasks in the place of those that failed. What the others made is named, never shown: words
        of an image or a recording can not ask for tasks.
        """
        return self.render(
            "replan",
            Available_Tasks=task_lines(brief.specs.values()),
            Available_Task_List=", ".join(brief.specs),
            User_Input=cut(brief.request),
            Failed_Tasks=rows(lambda share: [_failed_task(r) for r in results if r.status != "ok"]),
            Done_Tasks=rows(lambda share: [_done_task(r) for r in results if r.status == "ok"]),
            Files=_listed(_file_line(file) for file in brief.files),
        )

    def chat_messages(self, brief: RunContext, notes: Sequence[str] = ()) -> list[BaseMessage]:
        """Ask for a plain answer, without experts; `notes` say why the plan is empty."""
        return self.render(
            "chat", User_Input=cut(brief.request), Notes=_bullets(notes), Chat_Logs=self._log(brief)
        )

    def _log(self, brief: RunContext) -> Fit:
        return lambda most: chat_log(brief.turns, self.history_turns, most) or "(none)"


def load_prompts(name_or_dir: str | Path, history_turns: int = 10, window: int = DEFAULT_WINDOW) -> PromptSet:
    """The prompt set "default", "paper" or "small", or the one in a directory.

    Args:
        name_or_dir: as in `Settings.prompts`.
        history_turns: how many earlier turns of a chat the prompts show .
        window: tokens that the language model reads (see `window_of`).

    Raises:
        ConfigError: there is no such directory, or a file in it has an unknown slot or can not be read.
    """
    places: list[Traversable] = [package_files("jarvis_agent.prompts")]
    demonstrations, has_own = fixed("default"), name_or_dir == "paper"
    if name_or_dir in ("paper", "small"):
        places.insert(0, places[0] / str(name_or_dir))
        demonstrations = fixed("paper") if has_own else demonstrations
    elif name_or_dir != "default":
        own = Path(name_or_dir).expanduser()
        if not own.is_dir():
            raise ConfigError(
                f'the prompt set "{name_or_dir}" is neither "default" nor "paper" nor "small" nor a directory'
            )
        places.insert(0, own)
        if (own / "demos.json").is_file():
            demonstrations, has_own = read_demonstrations(own / "demos.json"), True
    texts = {stage: _read_prompt(stage, places) for stage in STAGES}
    return PromptSet(texts, demonstrations, history_turns, has_own, window)


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


def _read(file: Traversable) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the prompt file {file} can not be read: {error}") from error


def _halves(text: str) -> tuple[str, str]:
    """The templates of the system message and of the human message."""
    system, *human = _DIVIDER.split(text, maxsplit=1)
    return system, human[0] if human else "{{ User Input }}"


def _fill(stage: str, template: str, values: Mapping[str, str]) -> str:
    missing = sorted(set(_SLOT.findall(template)) - set(values))
    if missing:
        raise ConfigError(
            f"the prompt of the stage {stage} needs the slot {missing[0]!r}, which is not given"
        )
    return _SLOT.sub(lambda match: values[match[1]], template)


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


def _in_words(demo: Demonstration) -> str:
    log = f"<chat-log>\n{chat_log(demo.chat)}\n</chat-log>\n" if demo.chat else ""
    return f"{log}{demo.request}\n{demo.written}"


def _bullets(notes: Iterable[str]) -> Fit:
    return _listed(f"- {as_data(note)}" for note in notes)


def _listed(lines: Iterable[str]) -> Fit:
    listed = list(lines)
    return lambda most: lines_within(listed, most) or "(none)"


def candidate_card(candidate: Candidate, longest: int = _LONGEST_CARD) -> dict[str, Any]:
    """A candidate as the paper shows it to the language model: id, metadata, description.

    `longest` is the number of tokens of the description, which is never more than 100.
    """
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
        "description": first_tokens(candidate.description, min(longest, _LONGEST_CARD)),
    }


def _task_asked(task: Task) -> dict[str, Any]:
    return {"task": task.task, "id": task.id, "dep": task.dep, "args": digest(task.args, 150)}


def _task_done(task: Task) -> dict[str, Any]:
    return task.model_dump() | {"args": digest(task.args, 150)}


def _done_task(result: TaskResult) -> dict[str, Any]:
    made = list(dict.fromkeys(resource.kind for resource in result.resources))
    return {
        "task": result.task.task,
        "id": result.task.id,
        "args": digest(result.task.args, 100),
        "made": made,
    }


def _failed_task(result: TaskResult) -> dict[str, Any]:
    told = {"task": result.task.task, "id": result.task.id, "args": digest(result.task.args, 100)}
    return told | {"status": result.status, "error": (result.error or "")[:_LONGEST_ERROR]}


def _file_line(file: Resource) -> str:
    return f"- {file.kind}: {as_data(file.name or str(file.path or ''))}"
