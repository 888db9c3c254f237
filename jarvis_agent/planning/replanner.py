"""Replanning: after failures, the LLM may add other tasks, knowing what failed and why.

    chain = replanning_chain(llm)
    more = chain.invoke({"input": "…", "files": […], "plan": plan, "results": results})
    more.tasks      # new ids; they may refer to finished tasks. An empty plan is a valid answer

The LLM is asked only if another plan could help, and the run's budget has refused nothing. The prompt has the
errors but not the results, so that words in an image or a recording cannot become tasks. The reply is parsed
like any plan.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda

from jarvis_agent.core import errors
from jarvis_agent.core.errors import BadInputError, BudgetError, JarvisError, LLMError, policy_for
from jarvis_agent.core.references import refs_in
from jarvis_agent.core.settings import Settings, read_settings
from jarvis_agent.core.sync import run_sync
from jarvis_agent.core.types import Task, TaskResult
from jarvis_agent.llm.budget import context_window
from jarvis_agent.llm.client import LanguageModel, open_client
from jarvis_agent.llm.prompts import PromptSource, load_prompts
from jarvis_agent.planning.inputs import FileNames, PlanRequest, Tools, task_specs
from jarvis_agent.planning.messages import replan_variables
from jarvis_agent.planning.parser import StreamingPlanParser
from jarvis_agent.planning.plan import Plan
from jarvis_agent.planning.schema import plan_schema


def replanning_chain(
    llm: LanguageModel,
    *,
    tools: Tools = None,
    prompts: PromptSource | None = None,
    settings: Settings | None = None,
) -> Runnable[Mapping[str, Any], Plan]:
    """A Runnable that plans again after failures.

    Its input is that of `planning_chain` with "plan" (the Plan so far) and "results" (TaskResults).
    It returns the tasks to add with a note, or an empty Plan if nothing can change. If the model fails, it
    returns a note.
    """
    settings = read_settings(settings)
    client = open_client(llm, settings)
    prompt = load_prompts(settings.prompts if prompts is None else prompts, "replan").replan
    specs, window = task_specs(tools), context_window(client.model, settings)

    async def replan(value: Mapping[str, Any], config: RunnableConfig) -> Plan:
        request, results = PlanRequest.of(value, specs), list(value["results"])
        failed = [result for result in results if _another_plan_may_help(result)]
        if not failed or any(result.failure == BudgetError.__name__ for result in results):
            return Plan()
        chain = prompt | client.for_stage("replan", schema=plan_schema(request.specs))
        try:
            reply = await chain.ainvoke(replan_variables(prompt, request, results, window), config)
        except LLMError as error:
            return Plan(notes=[f"the language model could not plan again: {error}"])
        parser = StreamingPlanParser(
            request.specs,
            [result.task for result in results if result.status == "ok"],
            [task.id for task in value["plan"].tasks],
            FileNames.of(request, settings),
        )
        return _added(str(reply.text), parser, results, failed)

    def replan_sync(value: Mapping[str, Any], config: RunnableConfig) -> Plan:
        return run_sync(lambda: replan(value, config))

    return RunnableLambda(replan_sync, replan, name="replan")


def _added(
    reply: str, parser: StreamingPlanParser, results: Sequence[TaskResult], failed: Sequence[TaskResult]
) -> Plan:
    """The tasks of a reply that are new, and a note on them."""
    written = [*parser.feed(reply), *parser.finish()]
    new = list(_new(written, [result.task for result in results if result.status == "failed"]))
    notes, removed = (parser.notes, parser.removed) if written else ([], [])
    return Plan(tasks=new, notes=[_note(failed, new), *notes], removed=removed)


def _another_plan_may_help(result: TaskResult) -> bool:
    """Whether a task failed for another reason than a missing model or an unusable file of the user."""
    if result.status != "failed":
        return False
    kind = getattr(errors, result.failure or "", JarvisError)
    if issubclass(kind, BadInputError) and not refs_in(result.task.args):
        return False
    return policy_for(kind).replan


def _new(written: Sequence[Task], failed: Sequence[Task]) -> Iterator[Task]:
    """The tasks that do not repeat a failed one, and do not depend on one that does."""
    known = {_call(task) for task in failed}
    left_out: set[int] = set()
    for task in written:
        if _call(task) in known or not left_out.isdisjoint(task.deps):
            left_out.add(task.id)
        else:
            yield task


def _call(task: Task) -> str:
    return json.dumps([task.task, task.args], sort_keys=True)


def _note(failed: Sequence[TaskResult], new: Sequence[Task]) -> str:
    names = ", ".join(f"task {result.task.id} ({result.task.task})" for result in failed)
    instead = ", ".join(f"{task.id} ({task.task})" for task in new)
    if not new:
        return f"{names} failed, and the language model found no other way"
    return f"{names} failed, so the language model planned again and added {instead}"
