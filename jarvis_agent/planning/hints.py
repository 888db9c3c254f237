"""RequestHints: what another planner makes of a request, which helps a language model to plan it.

    planning_chain(llm, hints=OfflinePlanner())

The hints choose the examples and task types that the model is shown, and find what its plan leaves out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Task
from jarvis_agent.planning.inputs import PlanRequest


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step of a request, and what became of it.

    Attributes:
        text: the step as the user wrote it.
        scores: by name, the score of each task that could do it; 0.6 is a clear one.
        tasks: those planned for it, with what they need; none if an earlier step has made them.
        note: what of it is not planned and why, or None.
    """

    text: str
    scores: Mapping[str, float] = field(default_factory=dict)
    tasks: tuple[Task, ...] = ()
    note: str | None = None


class RequestHints(Protocol):
    """A planner without a language model, as far as a planning chain uses it. `OfflinePlanner` is one.

    Attributes:
        unlearned: the task types that it does not know. What they may be meant for is judged by files alone.
    """

    unlearned: Collection[str]

    def steps(self, request: PlanRequest) -> Sequence[PlannedStep] | None:
        """The steps of a request that ask for something, with the tasks planned for each.

        "Describe a.jpg and translate that" has two: image-to-text for "Describe a.jpg", and translation of
        `<resource>-0` for "translate that". None: no model for it is installed, so nothing is known.
        """

    def recognise(self, specs: Mapping[str, TaskSpec]) -> Mapping[str, TaskSpec]:
        """The task types, where tools have the Hub's task that they perform as an alias."""
