"""Plan: the tasks of a request.

plan = Plan.parse('[{"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": "a.jpg"}}]')
plan.tasks, plan.notes
"""

from __future__ import annotations

import html
import json

from pydantic import Field

from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Frozen, Task
from jarvis_agent.planning.diagram import diagram_of
from jarvis_agent.planning.inputs import Tools, task_specs
from jarvis_agent.planning.parser import StreamingPlanParser


class Plan(Frozen):
    """The tasks of a request, each after its dependencies, and notes.

    Attributes:
        tasks: the tasks; an empty list is a valid plan.
        notes: what was repaired and what was left out.
        removed: the notes on what the request asks for and the plan lacks, such as tasks that were left out.
            JSON has it only if there are any.
    """

    tasks: list[Task] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    removed: list[str] = Field(default_factory=list, exclude_if=lambda value: not value)

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
        return cls(tasks=parser.tasks, notes=parser.notes, removed=parser.removed)

    def __len__(self) -> int:
        return len(self.tasks)

    def __add__(self, other: Plan) -> Plan:
        """This plan with the tasks and notes that the other one adds."""
        if not isinstance(other, Plan):
            return NotImplemented
        tasks = {task.id: task for task in [*self.tasks, *other.tasks]}
        lists = {
            "tasks": list(tasks.values()),
            "notes": list(dict.fromkeys([*self.notes, *other.notes])),
            "removed": list(dict.fromkeys([*self.removed, *other.removed])),
        }
        return self.model_copy(update=lists)  # a plan that streams is added up task by task

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
        boxes = [f'    t{task.id}["{task.id}: {_mermaid_text(task.task)}"]' for task in self.tasks]
        arrows = [f"    t{dep} --> t{task.id}" for task in self.tasks for dep in task.deps]
        return "\n".join(["flowchart TD", *boxes, *arrows])

    def _repr_html_(self) -> str:
        """The tasks as a diagram, and the notes."""
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        diagram = diagram_of(self.tasks) if self.tasks else "<p>no tasks</p>"
        return diagram + (f"<ul>{notes}</ul>" if notes else "")


def _mermaid_text(text: str) -> str:
    """The text with Mermaid's special characters as entities."""
    entities = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "\n": " ", "`": "#96;"}
    return "".join(entities.get(char, char) for char in text)
