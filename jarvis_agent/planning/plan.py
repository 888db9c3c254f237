"""Plan: the tasks of a request.

plan = Plan.parse('[{"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": "a.jpg"}}]')
plan.tasks, plan.notes
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from pydantic import Field

from jarvis_agent.core.errors import InputError
from jarvis_agent.core.file_mentions import is_name
from jarvis_agent.core.notes import AnyNote
from jarvis_agent.core.references import refs_in
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import MEDIA
from jarvis_agent.core.types import Frozen, Preference, Task
from jarvis_agent.planning.inputs import Tools, task_specs
from jarvis_agent.planning.parser import StreamingPlanParser

PlanFiles = str | PurePath | Sequence[str | PurePath] | Mapping[str, str | PurePath]
"""Files in place of the inputs of a plan: in their order, or by name; a single one needs no list."""

NOTHING_ASKED = "{step} asks for nothing that a task does"
NOT_UNDERSTOOD = "{step} is not understood"
NO_TASK_TYPE = "no task type does this: {step}"
NO_FILE = "{step} needs a file, and none was given"
NO_TOOL = "{step} needs {task}, which is not one of the tools"
NO_MODEL = "{step} needs {task}, but no model for it is available here"
"""Templates of the notes of a plan without tasks; the report decides by them what would help."""

_ENTITIES = str.maketrans(
    {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "\n": " ", "`": "#96;"}
)
"""Special characters of Mermaid."""


class Plan(Frozen):
    """The tasks of a request, each after its dependencies, and notes.

    Attributes:
        tasks: the tasks; an empty list is a valid plan.
        notes: what was repaired and what was left out.
        removed: the notes on what the request asks for and the plan lacks, such as tasks that were left out.
            JSON has it only if there are any.
        preference: what the request says of the choice of models; JSON has it only then.
    """

    tasks: list[Task] = Field(default_factory=list)
    notes: list[AnyNote] = Field(default_factory=list)
    removed: list[AnyNote] = Field(default_factory=list, exclude_if=lambda value: not value)
    preference: Preference | None = Field(None, exclude_if=lambda value: not value)

    @classmethod
    def parse(cls, text: str, tools: Tools = None) -> Plan:
        """Read a plan from any text of a language model. Never raises.

        Args:
            text: possibly invalid JSON, with or without prose around it.
            tools: what the plan may use in addition to the Hub's tasks: names, TaskSpecs or LangChain tools,
                or a mapping of them by name.
        """
        parser = StreamingPlanParser({**TASKS, **task_specs(tools or (), any_name=True)})
        parser.feed(text)
        parser.finish()
        return cls(
            tasks=parser.tasks, notes=parser.notes, removed=parser.removed, preference=parser.preference
        )

    @classmethod
    def load(cls, text: str) -> Plan:
        """Read a saved plan: the JSON of a plan, of its tasks, or of a Run.

        Raises:
            InputError: the text is no such JSON, or its tasks are no plan.
        """
        try:
            rows: Any = json.loads(text)
            saved = rows.get("plan", rows) if isinstance(rows, dict) else {"tasks": rows}
            fields = {name: saved[name] for name in ("tasks", "preference") if name in saved}
            plan = cls.model_validate(fields or {"tasks": saved})
            ids = [task.id for task in plan.tasks]
            if len(set(ids)) < len(ids):
                raise ValueError(f"several tasks have one id, in {ids}")
            return plan
        except (ValueError, TypeError, RecursionError) as error:
            forms = "it is the JSON of a plan, as `jarvis --plan-only --json` prints it, or of a run"
            raise InputError(f"this plan cannot be read; {forms}", detail=error) from error

    @property
    def inputs(self) -> list[str]:
        """The files and URLs that the tasks read and no task makes, each once."""
        names: dict[str, None] = {}
        for task in self.tasks:
            _replace_inputs(task, lambda name: names.setdefault(name) or name)
        return list(names)

    def with_inputs(self, files: PlanFiles) -> Plan:
        """This plan for other files: one for each of `inputs`, in their order, or a mapping of some of them.

        Raises:
            InputError: there are more or fewer files, or a name is not an input.
        """
        names = self.inputs
        if not isinstance(files, Mapping):
            files = [files] if isinstance(files, str | PurePath) else files
            if len(files) != len(names):
                inputs = f"the inputs {', '.join(names)}: give one file for each" if names else "no inputs"
                raise InputError(f"the plan has {inputs}, not {len(files)}")
            files = dict(zip(names, files, strict=True))
        if unknown := [name for name in files if name not in names]:
            raise InputError(f"{unknown[0]!r} is no input of the plan; these are: {', '.join(names)}")
        tasks = [_replace_inputs(task, lambda name: str(files.get(name, name))) for task in self.tasks]
        return self.model_copy(update={"tasks": tasks})

    def __len__(self) -> int:
        return len(self.tasks)

    def __add__(self, other: Plan) -> Plan:
        """This plan with the tasks and notes that the other one adds; in its order, if it has all tasks."""
        if not isinstance(other, Plan):
            return NotImplemented
        tasks = {task.id: task for task in other.tasks}
        if any(task.id not in tasks for task in self.tasks):
            tasks = {task.id: task for task in [*self.tasks, *other.tasks]}
        update = {
            "tasks": list(tasks.values()),
            "notes": list(dict.fromkeys([*self.notes, *other.notes])),
            "removed": list(dict.fromkeys([*self.removed, *other.removed])),
            "preference": self.preference or other.preference,
        }
        return self.model_copy(update=update)  # unchecked: a plan that streams is added up task by task

    def task(self, task_id: int) -> Task:
        """The task with this id. Raises KeyError if there is none."""
        return {task.id: task for task in self.tasks}[task_id]

    def to_json(self) -> str:
        """The plan in the paper's format: `[{"task": …, "id": 0, "dep": [-1], "args": {…}}]`."""
        return json.dumps(
            [{**task.model_dump(), "dep": task.dep or [-1]} for task in self.tasks], ensure_ascii=False
        )

    def to_mermaid(self) -> str:
        """The plan as a Mermaid flowchart."""
        boxes = [f'    t{task.id}["{task.id}: {task.task.translate(_ENTITIES)}"]' for task in self.tasks]
        arrows = [f"    t{dep} --> t{task.id}" for task in self.tasks for dep in task.deps]
        return "\n".join(["flowchart TD", *boxes, *arrows])

    def _repr_markdown_(self) -> str:
        """The tasks as a Mermaid flowchart, which notebooks draw, and the notes as they are written."""
        chart = f"```mermaid\n{self.to_mermaid()}\n```\n\n" if self.tasks else "no tasks\n\n"
        notes = [" ".join(note.replace("`", "'").split()) for note in self.notes]
        return chart + "\n".join(f"- `{note}`" for note in notes)


def _replace_inputs(task: Task, replace: Callable[[str], str]) -> Task:
    """The task with the files in its arguments replaced. A text is one if it is nothing but a file's name."""
    spec = TASKS.get(task.task)

    def replaced(value: Any, is_file: bool) -> Any:
        if isinstance(value, list):
            return [replaced(item, is_file) for item in value]
        if not isinstance(value, str) or refs_in(value):
            return value
        return replace(value) if is_file or is_name(value) else value

    args = {
        name: replaced(value, (arg := spec.arg(name) if spec else None) is not None and arg.kind in MEDIA)
        for name, value in task.args.items()
    }
    return task.model_copy(update={"args": args})
