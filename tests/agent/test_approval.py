"""Decisions on a plan, and what is known of its tasks before they run."""

from typing import Any

import pytest

from jarvis_agent import Plan, Task
from jarvis_agent.agent.approval import REJECTED, Approved, PlannedTask, approve, planned_task
from jarvis_agent.core.context import RunContext
from jarvis_agent.core.types import Selection
from jarvis_agent.llm.usage import UsageMeter
from jarvis_agent.selection.store import SelectionStore
from jarvis_agent.testing import FakeBackend, fake_candidate

DESCRIBE = Task(task="image-to-text", id=0, args={"image": "a.jpg"})
YES, NO = {"type": "approve"}, {"type": "reject"}


def decide(plan: Plan, *decisions: Any) -> Approved:
    asked = iter([*decisions, True])
    steps = [PlannedTask(task=task, needs_approval=True) for task in plan.tasks]
    return approve(plan, steps, RunContext("Look"), lambda shown: next(asked))


@pytest.mark.parametrize(
    "needs",
    [{"dep": [0], "args": {"text": "hello"}}, {"args": {"text": "<resource>-0"}}],
    ids=["dep", "args"],
)
def test_a_task_that_needs_a_rejected_one_is_left_out(needs: dict[str, Any]) -> None:
    """A planner may name a dependency in `dep` alone, or in the arguments alone."""
    speak = Task.model_validate({"task": "text-to-speech", "id": 1, **needs})
    alone = Task(task="image-to-text", id=2, args={"image": "b.jpg"})
    approved = decide(Plan(tasks=[DESCRIBE, speak, alone]), {"decisions": [NO, YES, YES]})
    assert approved.plan.tasks == [alone]
    assert [note.split(": ", 1)[1] for note in approved.plan.notes] == ["it was rejected", "it needs task 0"]


def test_an_edited_plan_keeps_its_preference() -> None:
    edit = {"type": "edit", "edited_action": {"name": "image-to-text", "args": {"image": "b.jpg"}}}
    for decision in ({"decisions": [edit]}, [DESCRIBE.model_dump()], True):
        assert decide(Plan(tasks=[DESCRIBE], preference="local"), decision).plan.preference == "local"


def test_a_plan_of_which_every_task_is_rejected_is_rejected() -> None:
    assert decide(Plan(tasks=[DESCRIBE]), {"decisions": [NO]}).plan == Plan(notes=[REJECTED])


EDITS: list[Any] = [None, [], "count", {"name": "count", "args": [1]}, {"name": "count", "args": "a"}]
WRONG = [None, 5, "a", {"0": YES}, [], [YES] * 2, [[YES]], [None], ["edit"], [["approve"]], [{"type": "x"}]]


@pytest.mark.parametrize(
    "decisions", [*WRONG, [{"type": "edit"}], *([{"type": "edit", "edited_action": edit}] for edit in EDITS)]
)
def test_decisions_of_another_form_are_asked_for_again(decisions: Any) -> None:
    approved = decide(Plan(tasks=[DESCRIBE]), {"decisions": decisions})
    assert (approved.plan.tasks, approved.asked) == ([DESCRIBE], 2)


@pytest.mark.parametrize(
    ("backend_is_local", "is_here", "place", "download", "cost"),
    [(True, True, "here", 0, 0.0), (True, False, "here", 900, 0.0), (False, False, "hosted", 0, 0.5)],
)
def test_what_a_task_costs_depends_on_where_its_model_runs(
    backend_is_local: bool, is_here: bool, place: str, download: int, cost: float
) -> None:
    candidate = fake_candidate("image-to-text", local=is_here, size=900)
    step = planned_task(
        DESCRIBE,
        Selection(task="image-to-text", model=candidate.id, reason="", candidates=[candidate]),
        {"fake": FakeBackend({}, local=backend_is_local)},
        UsageMeter(price=lambda *_: 0.5),
        SelectionStore(None),
    )
    assert (step.place, step.download, step.cost) == (place, download, cost)
