"""RequestHints: what another planner makes of a request, which helps a language model to plan it.

    planning_chain(llm, hints=OfflinePlanner())

The hints choose the examples and task types that the model is shown. A small model is asked only for what
they do not understand, and with own tools for what they are not sure of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.planning.inputs import PlanRequest
from jarvis_agent.planning.plan import Plan


@dataclass(frozen=True, slots=True)
class PlanDraft:
    """What another planner makes of a request.

    Attributes:
        plan: its plan; without tasks if the request asks for nothing that a task does.
        is_sure: whether the plan is likely to be right.
    """

    plan: Plan
    is_sure: bool


class RequestHints(Protocol):
    """A planner without a language model, as far as a planning chain uses it. `OfflinePlanner` is one."""

    def draft(self, request: PlanRequest) -> PlanDraft | None:
        """What it makes of a request; None: what it needs is not installed."""

    def recognise(self, specs: Mapping[str, TaskSpec]) -> Mapping[str, TaskSpec]:
        """The task types, where tools have the Hub's task that they perform as an alias."""
