"""Approval of a plan before it is run, in the format of LangChain's HumanInTheLoopMiddleware.

The interrupt's value is a `HITLRequest` with an action for each task that needs approval, and the whole plan
beside it. `Command(resume={"decisions": [{"type": "approve"}, …]})` decides on each action:

    approve    the task runs
    edit       it runs with the name and arguments of `edited_action`
    reject     it does not run, nor do those that need it; `message` says why
    respond    it does not run; `message` is its result, a text

`True` and `False` decide on all, and a list of tasks replaces the plan.

    JarvisAgent(approve=named("text-to-image", "text-to-video"), …)   # or hosted, writes, a decision model
    JarvisAgent(approve=lambda step: step.cost > 0.1, …)
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import Field, TypeAdapter

from jarvis_agent.backends.base import Backend
from jarvis_agent.core.context import RunContext
from jarvis_agent.core.errors import ConfigError, log_error
from jarvis_agent.core.notes import Note
from jarvis_agent.core.references import refs_in
from jarvis_agent.core.tasks.registry import known_task
from jarvis_agent.core.text import brief_text
from jarvis_agent.core.types import Frozen, Selection, Task, TaskResult
from jarvis_agent.llm.usage import UsageMeter
from jarvis_agent.planning.parser import LEFT_OUT, StreamingPlanParser
from jarvis_agent.planning.plan import Plan
from jarvis_agent.selection.placement import runs_here
from jarvis_agent.selection.store import Experience, SelectionStore

if TYPE_CHECKING:
    from langchain.agents.middleware.human_in_the_loop import ActionRequest, ReviewConfig
    from langchain_core.decisions import BaseDecisionModel

logger = logging.getLogger(__name__)

Ask = Callable[[dict[str, Any]], Any]
"""Shows a plan, stops the run until it is resumed, and returns the decision (LangGraph's `interrupt`)."""

REJECTED = "the plan was rejected, so nothing was run"

_WORDS = dict.fromkeys(("true", "yes", "y", "ok", "okay", "approve", "approved"), True) | dict.fromkeys(
    ("false", "no", "n", "reject", "rejected"), False
)
_JSON: TypeAdapter[Any] = TypeAdapter(Any)


class PlannedTask(Frozen):
    """A task before it runs, with what is known about its run.

    Attributes:
        selection: the model chosen for it; None if it has no choice of models, or none was found.
        place: "here", "hosted", or "" for a tool, or where no model was found.
        download: bytes that would be downloaded, as far as known.
        cost: what one hosted call costs, as far as the agent's `price` says.
        seconds: what earlier calls of the model took on average; 0 if none is known.
        read_only: whether it alters nothing; of an MCP tool, if its server says so.
        needs_approval: whether the policy asks about it.
    """

    task: Task
    selection: Selection | None = None
    place: Literal["here", "hosted", ""] = ""
    download: int = 0
    cost: float = 0.0
    seconds: float = 0.0
    read_only: bool = False
    needs_approval: bool = True

    def describe(self) -> str:
        """In words: "image-to-text with org/model, here, about 2.1 s, after a download of 1.2 GB"."""
        parts = [f"{self.task.task} with {self.selection.model}" if self.selection else self.task.task]
        parts += [self.place] if self.place else []
        parts += [f"about {self.seconds:.1f} s"] if self.seconds else []
        parts += [f"after a download of {self.download / 1e9:.1f} GB"] if self.download else []
        parts += [f"for {self.cost:g}"] if self.cost else []
        return ", ".join(parts)


def planned_task(
    task: Task,
    selection: Selection | None,
    backends: Mapping[str, Backend],
    meter: UsageMeter,
    store: SelectionStore,
) -> PlannedTask:
    """A task with the model chosen for it, where that runs, its cost and time. Blocks: reads the store."""
    chosen = selection.candidates[0] if selection is not None and selection.candidates else None
    backend = backends.get(chosen.backend or "") if chosen is not None else None
    if chosen is None or backend is None:
        return PlannedTask(task=task, selection=selection)
    here = runs_here(backend, chosen)
    download = chosen.size or 0 if here and not chosen.local else 0
    cost = 0.0 if here else meter.hosted_price(task.task, chosen.id)
    place: Literal["here", "hosted"] = "here" if here else "hosted"
    experience = store.experience((selection and selection.task) or task.task).get(chosen.id, Experience())
    estimate = {"place": place, "download": download, "cost": cost, "seconds": experience.seconds}
    return PlannedTask(task=task, selection=selection, **estimate)


ApprovalPolicy: TypeAlias = "bool | Callable[[PlannedTask], bool] | BaseDecisionModel"
"""What needs approval: every plan, none, or the tasks for which a function or a decision model says so.

A function that returns nothing says so too.
"""


async def needs_approval(policy: ApprovalPolicy, step: PlannedTask, context: RunContext) -> bool:
    """Whether a policy asks about a task. A decision model that fails asks."""
    if isinstance(policy, bool) or callable(policy):
        answer = policy(step) if callable(policy) else policy
        return answer is None or bool(answer)  # A function that forgot to return has approved nothing.
    from langchain_core.decisions import Noul

    state = {"request": context.request, "task": step.describe(), "args": to_json(step.task.args)}
    question = Noul(instructions="Should a person approve this task of the plan before it runs?")
    try:
        reply = await policy.ainvoke({"state": state, "questions": {"approve": question}}, context.config)
        return reply.nouls["approve"].noul >= 0.5
    except Exception as error:
        log_error(logger, "the decision on an approval failed, so a person is asked", error)
        return True


def hosted(step: PlannedTask) -> bool:
    """A policy: tasks whose model runs at a provider."""
    return step.place == "hosted"


def writes(step: PlannedTask) -> bool:
    """A policy: tools, unless their MCP server says that they are read-only. It is trusted in this."""
    return not step.read_only


def downloads_over(size: int) -> Callable[[PlannedTask], bool]:
    """A policy: tasks whose model has more than `size` bytes that are not on this machine."""
    return lambda step: step.download > size


def named(*tasks: str) -> Callable[[PlannedTask], bool]:
    """A policy: these task types of the Hub. Raises ConfigError for one that is unknown."""
    names = {known_task(task).name for task in tasks}
    return lambda step: step.task.task in names


class Approved(Frozen):
    """A plan that may run, after `asked` questions; `answers` are the texts of tasks that a person did."""

    plan: Plan
    answers: dict[int, str] = Field(default_factory=dict)
    asked: int = 0


class _InvalidDecisionError(Exception):
    """A decision that cannot be used, and why; `plan` is the valid part of an edited plan."""

    def __init__(self, problem: str, plan: Plan | None = None) -> None:
        super().__init__(problem)
        self.plan = plan or Plan()


def approve(
    plan: Plan,
    steps: Sequence[PlannedTask],
    context: RunContext,
    ask: Ask,
    results: Sequence[TaskResult] = (),
) -> Approved:
    """The approved plan: this one, an edited one, or an empty one with the note REJECTED.

    Asks until the decision is valid, unless none of the plan's `steps` needs approval. An edited plan, which
    may refer to `results` of earlier rounds, is shown again with its `problem` if it needed repairs: no plan
    is run that was not shown.
    """
    pending = [step for step in steps if step.needs_approval]
    if not pending:
        return Approved(plan=plan)
    proposal = _shown(plan, pending, context)
    times = 0
    while True:
        decision, times = decision_of(ask(proposal)), times + 1
        try:
            if decision is True:
                approved = Approved(plan=plan)
            elif decision is False or decision == []:
                approved = Approved(plan=Plan(notes=[REJECTED]))
            elif isinstance(decision, Mapping) and "decisions" in decision:
                approved = _decided(decision["decisions"], plan, pending, context, results)
            else:
                approved = Approved(plan=_edited(decision, context, results))
            kept = {"preference": approved.plan.preference or plan.preference}
            changed = {"asked": times, "plan": approved.plan.model_copy(update=kept)}
            return approved.model_copy(update=changed)
        except _InvalidDecisionError as error:
            if error.plan.tasks:
                plan = error.plan.model_copy(update={"notes": [], "preference": plan.preference})
                pending = [PlannedTask(task=task) for task in plan.tasks]
            proposal = {**_shown(plan, pending, context), "given": decision, "problem": str(error)}


def check_policy(policy: Any) -> None:
    """Raise ConfigError if this is no policy: with another value, no one would be asked."""
    if isinstance(policy, bool) or callable(policy):
        return
    from langchain_core.decisions import BaseDecisionModel

    if not isinstance(policy, BaseDecisionModel):
        raise ConfigError(
            "approve is True, False, or a function of a planned task such as agent.approval.hosted, or a "
            f"decision model, not {policy!r}"
        )


def to_json(decision: Any) -> Any:
    """A decision, such as a Plan or a list of Tasks, as plain JSON, which can be stored."""
    return _storable(_JSON.dump_python(decision, mode="json", fallback=str))


def _storable(value: Any) -> Any:
    """Plain JSON without numbers of over 64 bits and halves of characters, which checkpointers refuse."""
    if isinstance(value, dict):
        return {_storable(key): _storable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_storable(item) for item in value]
    if isinstance(value, int) and value.bit_length() > 63:
        return float(value) if value.bit_length() < sys.float_info.max_exp else None
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def decision_of(value: Any) -> Any:
    """True, False, an edited plan as JSON, or a mapping with "decisions"."""
    decision = to_json(value)
    for name in ("plan", "tasks"):
        if isinstance(decision, Mapping):
            decision = decision.get(name, decision)
    if isinstance(decision, str):
        return _WORDS.get(decision.strip().strip(".!").casefold(), decision)
    return decision


def _shown(plan: Plan, steps: Sequence[PlannedTask], context: RunContext) -> dict[str, Any]:
    """The value of the interrupt: a HITLRequest, and the plan, of which it may have a part."""
    actions: list[ActionRequest] = [
        {"name": step.task.task, "args": step.task.args, "description": step.describe()} for step in steps
    ]
    reviews: list[ReviewConfig] = [
        {"action_name": step.task.task, "allowed_decisions": ["approve", "edit", "reject", "respond"]}
        for step in steps
    ]
    rows = json.loads(plan.to_json())
    fields = {"request": context.request, "plan": rows, "notes": plan.notes}
    return {"action_requests": actions, "review_configs": reviews, **fields}


def _decided(
    decisions: Any,
    plan: Plan,
    steps: Sequence[PlannedTask],
    context: RunContext,
    results: Sequence[TaskResult],
) -> Approved:
    """The plan after a decision on each action. Raises _InvalidDecisionError."""
    if not isinstance(decisions, list) or len(decisions) != len(steps):
        count = len(decisions) if isinstance(decisions, list) else repr(decisions)
        raise _InvalidDecisionError(f"each action needs one decision; {count} came for {len(steps)}")
    rows = {task.id: task for task in plan.tasks}
    dropped, answers = dict[int, str](), dict[int, str]()
    for step, decision in zip(steps, decisions, strict=True):
        task = step.task
        match {"type": decision} if isinstance(decision, str) else decision:
            case {"type": "approve"}:
                pass
            case {"type": "edit", "edited_action": {**action}} if isinstance(action.get("args") or {}, dict):
                new = {"task": str(action.get("name", task.task)), "args": action.get("args") or {}}
                rows[task.id] = task.model_copy(update=new)
            case {"type": "reject", "message": message} if message:
                dropped[task.id] = f"it was rejected: {message}"
            case {"type": "reject"}:
                dropped[task.id] = "it was rejected"
            case {"type": "respond", "message": message} if message:
                answers[task.id] = str(message)
            case _:
                raise _InvalidDecisionError(
                    'a decision has the type "approve", "edit" with an edited_action, "reject", or "respond" '
                    f"with a message; this is none of them: {brief_text(repr(decision), 100)}"
                )
    if any(rows[task.id] != task for task in plan.tasks):
        plan = _edited([task.model_dump() for task in rows.values()], context, results)
    for task in plan.tasks:
        needed = next((i for i in (*task.deps, *refs_in(task.args)) if i in dropped), None)
        if needed is not None and task.id not in answers:
            dropped.setdefault(task.id, f"it needs task {needed}")
    if dropped.keys() >= {task.id for task in plan.tasks}:
        return Approved(plan=Plan(notes=[REJECTED]))
    kept = [task for task in plan.tasks if task.id not in dropped]
    left_out = [task for task in plan.tasks if task.id in dropped]
    notes = [Note(LEFT_OUT, task=task.title, reason=dropped[task.id]) for task in left_out]
    changes = {"tasks": kept, "notes": [*plan.notes, *notes], "removed": [*plan.removed, *notes]}
    return Approved(plan=plan.model_copy(update=changes), answers=answers)


def _edited(decision: Any, context: RunContext, results: Sequence[TaskResult]) -> Plan:
    """The plan that a decision gives in place of the one shown. Raises _InvalidDecisionError."""
    if not isinstance(decision, list | str):
        raise _InvalidDecisionError(
            'a plan is approved with True, rejected with False, decided on with {"decisions": […]}, or '
            f"replaced by a list of tasks; this is none of them: {decision!r}"
        )
    done = [result.task for result in results if result.status == "ok"]
    parser = StreamingPlanParser(context.specs, done, [result.task.id for result in results])
    text = decision if isinstance(decision, str) else json.dumps(decision)
    edited = Plan(tasks=[*parser.feed(text), *parser.finish()], notes=parser.notes)
    if edited.notes or not edited.tasks:
        raise _InvalidDecisionError("; ".join(edited.notes), edited)
    return edited
