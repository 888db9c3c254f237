"""Planning without a language model, by rules and sentence embeddings.

    planner = OfflinePlanner()
    plan = planner.invoke({"input": "Describe cat.jpg and read the caption aloud", "files": [cat]})
    plan.notes       # why a step is missing, if one is
    planning_chain(llm).with_fallbacks([OfflinePlanner()], exception_key="error")

The stages, in order:
    masking         files and quoted texts become single characters, so that no rule cuts through them
    clauses         the request is split into steps; `clause_cuts` splits further, `chinese` reads Chinese
    classifier      how near a step is to each task; tools are recognised by types and descriptions
    ranking         the task of each step, from these scores and from what the step names
    arguments       the task's arguments, from the step, `sources` and `coreference`
    linking         the task, after those that must run before it
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig

from jarvis_agent.core.concurrency import check_cancelled, run_cpu_bound
from jarvis_agent.core.context import ChatTurn, RunContext
from jarvis_agent.core.file_mentions import mentions
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.from_tool import spec_of
from jarvis_agent.core.tasks.registry import TASKS, find_task
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Resource
from jarvis_agent.media.detect import kind_by_name
from jarvis_agent.planning.offline import chinese
from jarvis_agent.planning.offline.classifier import Classifier, load_classifier
from jarvis_agent.planning.offline.clause_cuts import split_finer
from jarvis_agent.planning.offline.clauses import Step, first_of, split
from jarvis_agent.planning.offline.linking import PlanLinker
from jarvis_agent.planning.offline.masking import MaskedText, mask_entities
from jarvis_agent.planning.offline.phrases import bank_name
from jarvis_agent.planning.offline.ranking import Ranker
from jarvis_agent.planning.offline.steps import StepPlanner
from jarvis_agent.planning.plan import Plan


class OfflinePlanner(Runnable[str | dict[str, Any], Plan]):
    """Plans plain English and Chinese requests. Clauses that it does not understand become notes."""

    def __init__(
        self, tools: Iterable[Any] | Mapping[str, Any] | None = None, *, settings: Settings | None = None
    ) -> None:
        """Nothing is loaded before the first plan.

        Args:
            tools: what a plan may use: names, TaskSpecs or LangChain tools. Default: the catalogue.
            settings: where the weights of the sentence embeddings are.
        """
        self.name = "plan"
        self._tools = tools
        self._settings = settings or Settings()

    def invoke(
        self,
        input: str | dict[str, Any],  # noqa: A002 (LangChain's name)
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Plan:
        """Plan a request.

        Args:
            input: a text, or a dict with `input` and optionally `files` (Resources), `chat_history` (turns or
                messages), `tools`, and `error` (why another planner failed, which becomes the first note).

        Raises:
            MissingExtraError: the sentence embeddings are not installed.
        """
        return self._call_with_config(self._invoke, input, config)

    async def ainvoke(
        self,
        input: str | dict[str, Any],  # noqa: A002 (LangChain's name)
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Plan:
        """As `invoke`, in a worker thread. A cancelled call stops planning at its next step."""

        async def work(value: str | dict[str, Any]) -> Plan:
            await asyncio.to_thread(load_classifier, self._settings)
            return await run_cpu_bound(self._invoke, value)

        return await self._acall_with_config(work, input, config)

    def _invoke(self, value: str | dict[str, Any]) -> Plan:
        given = {"input": value} if isinstance(value, str) else value
        plan = plan_request(_as_brief(given, self._tools), self._settings)
        if given.get("error") is None:
            return plan
        note = f"the language model could not plan: {given['error']}"
        return Plan(tasks=plan.tasks, notes=[note, *plan.notes])


def plan_request(brief: RunContext, settings: Settings) -> Plan:
    """The plan of a request. A pure function of its arguments."""
    classifier = load_classifier(settings)
    brief = replace(brief, specs=classifier.recognise(brief.specs))
    masked = mask_entities(brief.request, brief.files)
    linker = PlanLinker(masked, brief)
    steps = _steps(masked, classifier, brief, linker.discourse.at_hand)
    check_cancelled()
    ranker = Ranker(classifier, masked, linker.discourse, brief.specs.values())
    notes = StepPlanner(ranker, linker, masked).add_all(steps)
    return Plan(tasks=linker.tasks, notes=[*masked.notes, *notes])


def split_request(
    request: str, files: Iterable[Resource] = (), settings: Settings | None = None
) -> list[str]:
    """The steps of a request, as the user wrote them."""
    masked = mask_entities(request, files)
    steps = _steps(masked, load_classifier(settings or Settings()), RunContext(request))
    return [step.original or masked.restored(step.text) for step in first_of(steps)]


def _steps(
    masked: MaskedText, classifier: Classifier, brief: RunContext, at_hand: Iterable[str] = ()
) -> list[Step]:
    if chinese.is_chinese(masked.text):
        return chinese.steps(masked, set(at_hand))
    tools = (spec.name for spec in brief.specs.values() if bank_name(spec) is None)
    verbs = [verb for name in tools if (verb := re.split(r"[\W_]", name)[0])]
    return split_finer(split(masked.text, verbs), masked, classifier)


def _as_brief(given: Mapping[str, Any], tools: Iterable[Any] | Mapping[str, Any] | None) -> RunContext:
    """The input of `OfflinePlanner.invoke` in the form that the stages take."""
    text = str(given["input"])
    files = given.get("files")
    return RunContext(
        request=text,
        files=tuple(map(_named_file, mentions(text))) if files is None else tuple(files),
        turns=tuple(_turns(given.get("chat_history") or ())),
        specs=_specs(tools if given.get("tools") is None else given["tools"]),
    )


def _named_file(name: str) -> Resource:
    return Resource(kind=kind_by_name(name), path=Path(name), name=name)


def _turns(history: Iterable[ChatTurn | BaseMessage]) -> Iterable[ChatTurn]:
    asked: str | None = None
    for one in history:
        if isinstance(one, ChatTurn):
            yield one
        elif isinstance(one, AIMessage):
            yield ChatTurn(asked or "", str(one.text))
            asked = None
        else:
            asked = str(one.text)
    if asked is not None:
        yield ChatTurn(asked, "")


def _specs(tools: Iterable[Any] | Mapping[str, Any] | None) -> Mapping[str, TaskSpec]:
    if tools is None:
        return TASKS
    given = tools.values() if isinstance(tools, Mapping) else tools
    return {spec.name: spec for spec in map(_spec, given)}


def _spec(tool: Any) -> TaskSpec:
    if isinstance(tool, str):
        known = find_task(tool)
        return known if known is not None else TaskSpec(tool, "tool", "", (), ())
    spec = tool if isinstance(tool, TaskSpec) else getattr(tool, "spec", None)
    return spec if isinstance(spec, TaskSpec) else spec_of(tool)
