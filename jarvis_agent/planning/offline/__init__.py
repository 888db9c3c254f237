"""Planning without a language model: by sentence embeddings, what a request names, and what tasks make.

    planner = OfflinePlanner()
    plan = await planner.plan(brief, on_task)
    plan.notes       # why a step is missing, if one is

The stages, a module each:
    again        what is asked for again ("the same for b.jpg", "and in Italian?") is spelt out
    marks        files, quoted texts and `pasted` ones become single characters, so that nothing cuts through
                 them; overlong lines are broken (`lengths`)
    spelling     slips and short forms are mended
    recast       what is told in another order than that of doing is put in that order, and verbs that are
                 left out are put in (`gaps`)
    steps        the request is split into steps, where a clause asks for something (`asking`); `chinese`
                 does that for plain Chinese
    plain        each step is put in the words that the bank of phrases (`wordings`) uses
    rank         how likely each task is for it, by its nearest phrase, its `odds`, and what it names
    choose       the likeliest task that it can feed, and its `companions`
    fill, link   its arguments, from what it says (`arguments`), names and refers to (`supply`, `discourse`),
                 and the tasks that must go before

Where the tools on offer are a kit of known tools that say nothing but which kinds they take and make,
`workflow` reads the request instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property

from jarvis_agent.backends.starter.embeddings import load_embedder
from jarvis_agent.core.concurrency import check_cancelled, run_cpu_bound
from jarvis_agent.core.request import RunContext
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Task
from jarvis_agent.planning.offline import chinese
from jarvis_agent.planning.offline.again import repeated, spelt_out
from jarvis_agent.planning.offline.choose import Chooser
from jarvis_agent.planning.offline.link import Linker
from jarvis_agent.planning.offline.marks import mark
from jarvis_agent.planning.offline.rank import Ranker
from jarvis_agent.planning.offline.recast import recast
from jarvis_agent.planning.offline.spelling import tidy
from jarvis_agent.planning.offline.steps import split
from jarvis_agent.planning.offline.wordings import Matcher
from jarvis_agent.planning.offline.workflow.classify import load_model
from jarvis_agent.planning.offline.workflow.reader import read
from jarvis_agent.planning.offline.workflow.tools import is_workflow_kit
from jarvis_agent.planning.plan import Plan


class OfflinePlanner:
    """A planner for plain requests. What it does not understand is left out, and the plan's notes say so."""

    def __init__(self, settings: Settings | None = None) -> None:
        """Nothing is loaded before the first plan."""
        self._settings = settings or Settings()

    async def plan(self, brief: RunContext, on_task: Callable[[Task], None]) -> Plan:
        """Plan a request; `on_task` is called for each task in order.

        Raises:
            MissingExtraError: the sentence embeddings are not installed.
        """
        # A download, which may take its time, must not hold up other plans.
        await asyncio.to_thread(load_embedder, self._settings)
        plan = await run_cpu_bound(self._plan, brief)
        for task in plan.tasks:
            on_task(task)
        return plan

    @cached_property
    def _matcher(self) -> Matcher:
        return Matcher(load_embedder(self._settings))

    def _plan(self, brief: RunContext) -> Plan:
        brief = spelt_out(brief)
        marked = mark(brief.request, brief.files)
        if is_workflow_kit(brief.specs, frozenset(load_model().names)):
            return Plan(tasks=read(marked, brief, load_embedder(self._settings)), notes=marked.notes)
        linker = Linker(marked, brief)
        if chinese.is_chinese(marked.text):
            steps = chinese.steps(marked, linker.discourse.at_hand)
        else:
            text = tidy(marked.text, self._matcher.knows)
            check_cancelled()
            marked.text = recast(repeated(text, marked))
            check_cancelled()
            steps = split(marked.text)
        ranker = Ranker(self._matcher, marked, linker.discourse, brief.specs.values())
        notes = Chooser(ranker, linker, marked).add_all(steps)
        return Plan(tasks=linker.tasks, notes=[*marked.notes, *notes])
