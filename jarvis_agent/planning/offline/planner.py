"""The offline planner as a LangChain Runnable.

planner = OfflinePlanner()
plan = planner.invoke({"input": "Describe cat.jpg and read the caption aloud", "files": [cat]})
plan.notes       # why a clause is missing, if one is
planning_chain(llm, hints=planner).with_fallbacks([planner], exception_key="error")
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig

from jarvis_agent.core.concurrency import check_cancelled, run_cpu_bound
from jarvis_agent.core.errors import ConfigError, MissingExtraError
from jarvis_agent.core.file_mentions import mentions
from jarvis_agent.core.settings import Settings, read_settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Resource
from jarvis_agent.media.detect import kind_by_name
from jarvis_agent.planning.hints import PlannedStep
from jarvis_agent.planning.inputs import PlanRequest, Tools, task_specs
from jarvis_agent.planning.offline import chinese
from jarvis_agent.planning.offline.classifier import Classifier, load_classifier
from jarvis_agent.planning.offline.clause_cuts import split_finer
from jarvis_agent.planning.offline.clauses import Step, first_of, split
from jarvis_agent.planning.offline.linking import PlanLinker
from jarvis_agent.planning.offline.masking import MaskedText, mask_entities
from jarvis_agent.planning.offline.patterns import Patterns
from jarvis_agent.planning.offline.phrases import bank_name
from jarvis_agent.planning.offline.ranking import Ranker
from jarvis_agent.planning.offline.steps import StepPlanner
from jarvis_agent.planning.plan import Plan

_CONDITION, _DEMAND = Patterns("clauses").CONDITION, Patterns("clauses").DEMAND
_ITS_TEXT = re.compile(r"\b(?:the )?(?:text|words|writing) (?:in|on|from) it\b|\bits text\b", re.IGNORECASE)
"""The text of an image, as opposed to a text that a task makes of it ("describe it and read the text")."""


UNLEARNED = frozenset({"edit-image", "media-info"})
"""Task types that are newer than the weights, and so are never planned."""


class OfflinePlanner(Runnable[str | dict[str, Any], Plan]):
    """Plans plain English and Chinese requests. Clauses that it does not understand become notes.

    It also has the RequestHints of a planning chain. For them, nothing is downloaded.
    """

    unlearned: Collection[str] = UNLEARNED

    def __init__(self, tools: Tools = None, *, settings: Settings | Mapping[str, Any] | None = None) -> None:
        """Nothing is loaded before the first plan.

        Args:
            tools: what a plan may use: names, TaskSpecs or LangChain tools. None: all task types of the Hub.
            settings: where the weights of the sentence embeddings are; a dict of some, or None: from the
                environment.
        """
        self.name = "plan"
        self._specs = task_specs(tools)
        self._settings = read_settings(settings)
        self._installed = self._settings.model_copy(update={"offline": True})

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

    def steps(self, request: PlanRequest) -> list[PlannedStep] | None:
        """See `RequestHints`. It is no run of its own in traces."""
        try:
            return _plan(request, self._installed)[1]
        except (MissingExtraError, ConfigError):
            return None

    def recognise(self, specs: Mapping[str, TaskSpec]) -> Mapping[str, TaskSpec]:
        """See `RequestHints`. The Hub's task is the last alias."""
        try:
            return load_classifier(self._installed).recognise(specs)
        except (MissingExtraError, ConfigError):
            return specs

    def _invoke(self, value: str | dict[str, Any]) -> Plan:
        given = {"input": value} if isinstance(value, str) else value
        request = PlanRequest.of(given, self._specs)
        if given.get("files") is None:
            named = (Resource(kind=kind_by_name(n), path=Path(n), name=n) for n in mentions(request.text))
            request = replace(request, files=tuple(named))
        plan = _plan(request, self._settings)[0]
        if given.get("error") is None:
            return plan
        note = f"the language model could not plan: {given['error']}"
        return Plan(tasks=plan.tasks, notes=[note, *plan.notes], removed=plan.removed)


def _plan(request: PlanRequest, settings: Settings) -> tuple[Plan, list[PlannedStep]]:
    offered = {name: spec for name, spec in request.specs.items() if name not in UNLEARNED}
    if not offered:
        return Plan(notes=["no task is offered"]), []
    classifier = load_classifier(settings)
    specs = classifier.recognise(offered)
    masked = mask_entities(request.text, request.files)
    linker = PlanLinker(masked, request, specs)
    steps = _steps(masked, classifier, specs, linker.discourse.at_hand)
    check_cancelled()
    ranker = Ranker(classifier, masked, linker.discourse, specs.values())
    planner = StepPlanner(ranker, linker, masked)
    conditions = (masked.restored(found[0]).strip(" .,:;!?") for found in _CONDITION.finditer(masked.text))
    refused = (f"“{words}”: a plan has no conditions" for words in conditions)
    notes = [*masked.notes, *planner.add_all(steps), *refused]
    notes += _unmet(masked, linker, planner.steps, notes)
    written = json.dumps([[task.args for task in linker.tasks], notes], ensure_ascii=False)
    named = {mark.value for mark in masked.marks.values() if mark.is_file}
    files = named | linker.discourse.attached if linker.tasks else set[str]()
    unused = (name for name in sorted(files) if json.dumps(name, ensure_ascii=False)[1:-1] not in written)
    notes += [f"no task uses “{name}”" for name in unused]
    return Plan(tasks=linker.tasks, notes=notes, removed=notes), planner.steps


def _unmet(masked: MaskedText, linker: PlanLinker, steps: list[PlannedStep], notes: list[str]) -> list[str]:
    """Notes on what is demanded of a result ("the sound should be slow") and is in no step or note."""
    said = " ".join([*(step.text for step in steps), *(str(task.args) for task in linker.tasks), *notes])
    demands = (masked.restored(found[0]).strip(" .,:;!?") for found in _DEMAND.finditer(masked.text))
    return [f"“{words}” is not planned: no task takes it" for words in demands if words not in said]


def split_request(
    request: str, files: Iterable[Resource] = (), settings: Settings | None = None
) -> list[str]:
    """The steps of a request, as the user wrote them."""
    masked = mask_entities(request, files)
    steps = _steps(masked, load_classifier(settings or Settings()), TASKS)
    return [step.original or masked.restored(step.text) for step in first_of(steps)]


def _steps(
    masked: MaskedText, classifier: Classifier, specs: Mapping[str, TaskSpec], at_hand: Iterable[str] = ()
) -> list[Step]:
    if chinese.is_chinese(masked.text):
        return chinese.steps(masked, set(at_hand))
    tools = (spec.name for spec in specs.values() if bank_name(spec) is None)
    verbs = [verb for name in tools if (verb := re.split(r"[\W_]", name)[0])]
    text = masked.text
    if masked.marks and all(mark.kind == "image" for mark in masked.marks.values()):
        text = _ITS_TEXT.sub("the text in the picture", text)
    return split_finer(split(text, verbs), masked, classifier)
