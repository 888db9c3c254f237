"""temp"""
from __future__ import annotations
import asyncio
from collections.abc import Callable
from dataclasses import replace as _replace
from jarvis_agent.embeddings import load_embedder
from jarvis_agent.offline import chinese
from jarvis_agent.offline.choose import Chooser
from jarvis_agent.offline.classifier import load_classifier
from jarvis_agent.offline.clause_cuts import split_finer
from jarvis_agent.offline.linking import Linker
from jarvis_agent.offline.masking import mark
from jarvis_agent.offline.ranking import Ranker
from jarvis_agent.offline.clauses import split
from jarvis_agent.plan import Plan
from jarvis_agent.request import Brief
from jarvis_agent.settings import Settings
from jarvis_agent.threads import go_on, in_turn
from jarvis_agent.types import Task
def split_request(text): ...
class OfflinePlanner:
    def __init__(self, settings=None):
        self._settings = settings or Settings()
    async def plan(self, brief: Brief, on_task) -> Plan:
        await asyncio.to_thread(load_embedder, self._settings)
        plan = await in_turn(self._plan, brief)
        for task in plan.tasks:
            on_task(task)
        return plan
    def _plan(self, brief: Brief) -> Plan:
        classifier = load_classifier(self._settings)
        brief = _replace(brief, specs=classifier.recognise(brief.specs))
        marked = mark(brief.request, brief.files)
        linker = Linker(marked, brief)
        if chinese.is_chinese(marked.text):
            steps = chinese.steps(marked, linker.discourse.at_hand)
        else:
            go_on()
            steps = split_finer(split(marked.text), marked, classifier)
        ranker = Ranker(classifier, marked, linker.discourse, brief.specs.values())
        notes = Chooser(ranker, linker, marked).add_all(steps)
        return Plan(tasks=linker.tasks, notes=[*marked.notes, *notes])
