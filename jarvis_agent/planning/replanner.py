"""Replan: where tasks have failed, the language model may write others in their place, knowing why.

    replanner = LLMReplanner(controller, prompts)
    more = await replanner.replan(brief, plan, results)
    more.tasks      # tasks with ids of their own, which may refer to those that are done; none is an answer

It is asked only where another plan could help, and it is told what happened but not what the tasks made:
words in an image or a recording must not become tasks. What it writes is read as any plan is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from jarvis_agent.core import errors
from jarvis_agent.core.errors import BadInputError, JarvisError, LLMError, policy_for
from jarvis_agent.planning.plan import Plan, StreamingPlanParser
from jarvis_agent.planning.schema import plan_schema
from jarvis_agent.core.references import refs_in
from jarvis_agent.core.types import Task, TaskResult

if TYPE_CHECKING:
    from jarvis_agent.llm.client import LLMClient
    from jarvis_agent.llm.prompts import PromptSet
    from jarvis_agent.core.request import RunContext


class Replanner(Protocol):
    """Plans again after failures."""

    async def replan(self, brief: RunContext, plan: Plan, results: Sequence[TaskResult]) -> Plan:
        """The tasks to add to a plan after its results, and notes on it; neither where nothing can change."""
        ...


class LLMReplanner:
    """Has the language model of the planner plan again."""

    def __init__(self, controller: LLMClient, prompts: PromptSet) -> None:
        self._controller = controller
        self._prompts = prompts

    async def replan(self, brief: RunContext, plan: Plan, results: Sequence[TaskResult]) -> Plan:
        """As `Replanner.replan`. A language model that fails is told of in the notes."""
        hopeful = [result for result in results if _another_plan_may_help(result)]
        if not hopeful:
            return Plan()
        done = [result.task for result in results if result.status == "ok"]
        builder = StreamingPlanParser(brief.specs, done, taken=[task.id for task in plan.tasks])
        messages = self._prompts.replan_messages(brief, results)
        try:
            reply = await self._controller.complete(
                "replan", messages, brief, schema=plan_schema(brief.specs)
            )
        except LLMError as error:
            return Plan(notes=[f"the language model could not plan again: {error}"])
        written = [*builder.feed(reply), *builder.finish()]
        failed = [result.task for result in results if result.status == "failed"]
        new = list(_new(written, failed))
        return Plan(tasks=new, notes=[_told(hopeful, new), *(builder.plan.notes if written else ())])


def _another_plan_may_help(result: TaskResult) -> bool:
    """Whether a task failed, and not for want of any model or by the fault of a file that the user gave."""
    if result.status != "failed":
        return False
    kind = getattr(errors, result.failure or "", JarvisError)
    if issubclass(kind, BadInputError) and not refs_in(result.task.args):
        return False
    return policy_for(kind).replan


def _new(written: Sequence[Task], failed: Sequence[Task]) -> Iterator[Task]:
    """The tasks that are not what has failed already, and do not need such a one."""
    known = {_call(task) for task in failed}
    left_out: set[int] = set()
    for task in written:
        if _call(task) in known or not left_out.isdisjoint(task.deps):
            left_out.add(task.id)
        else:
            yield task


def _call(task: Task) -> str:
    return json.dumps([task.task, task.args], sort_keys=True)


def _told(failed: Sequence[TaskResult], new: Sequence[Task]) -> str:
    names = ", ".join(f"task {result.task.id} ({result.task.task})" for result in failed)
    instead = ", ".join(f"{task.id} ({task.task})" for task in new)
    if not new:
        return f"{names} failed, and the language model found no other way"
    return f"{names} failed, so the language model planned again and added {instead}"
