"""Plan: the tasks of a request.

plan = Plan.parse('[{"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": "a.jpg"}}]')
plan.tasks, plan.notes
"""

from __future__ import annotations

import json

from pydantic import Field

from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Frozen, Task
from jarvis_agent.planning.inputs import Tools, task_specs
from jarvis_agent.planning.parser import StreamingPlanParser


class Plan(Frozen):
    """The tasks of a request, each after those that it needs, and notes on what was mended.

    Attributes:
        tasks: the tasks; none is a valid plan.
        notes: what was mended and what was left out, for people.
    """

    tasks: list[Task] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)

    @classmethod
    def parse(cls, text: str, tools: Tools = None) -> Plan:
        """Read a plan from whatever a language model wrote. No text makes it raise.

        Args:
            text: JSON, more or less, with or without prose around it.
            tools: what the plan may use beside the Hub's tasks: names, TaskSpecs or LangChain tools, or a
                mapping of them by name.
        """
        parser = StreamingPlanParser({**TASKS, **task_specs(tools or ())})
        parser.feed(text)
        parser.finish()
        return cls(tasks=parser.tasks, notes=parser.notes)

    def __len__(self) -> int:
        return len(self.tasks)

    def __add__(self, other: Plan) -> Plan:
        """This plan and what the other one adds to it."""
        if not isinstance(other, Plan):
            return NotImplemented
        tasks = {task.id: task for task in [*self.tasks, *other.tasks]}
        return Plan(tasks=list(tasks.values()), notes=list(dict.fromkeys([*self.notes, *other.notes])))

    def task(self, task_id: int) -> Task:
        """The task of that id.

        Raises:
            KeyError: there is none.
        """
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


def _mermaid_text(text: str) -> str:
    """The text with what means something in a Mermaid label written as entities."""
    entities = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "\n": " ", "`": "#96;"}
    return "".join(entities.get(char, char) for char in text)
