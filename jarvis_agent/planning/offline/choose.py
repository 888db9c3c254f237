"""Each step gets the likeliest task that it can feed; what comes to nothing gets a note.

    Chooser(ranker, linker, marked).add_all(steps)     # fills the linker, returns the notes

Steps are taken in their order, since each may speak of what the ones before it make.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from jarvis_agent.core.concurrency import check_cancelled
from jarvis_agent.core.errors import PlanError
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.planning.normalise import MAX_TASKS, shorten
from jarvis_agent.planning.offline.asking import ACTIONS, OPENERS
from jarvis_agent.planning.offline.companions import COMPANIONS, Companion
from jarvis_agent.planning.offline.link import Linker
from jarvis_agent.planning.offline.marks import MARK, Marked
from jarvis_agent.planning.offline.rank import Ranker, Scores
from jarvis_agent.planning.offline.steps import Step, first_of
from jarvis_agent.planning.offline.supply import DETECTOR, FINDER
from jarvis_agent.planning.offline.wordings import OUT_OF_SCOPE, bank_name

LEAST = 0.4
"""A step that no task is nearer to than this is not understood."""
CLEAR = 0.6
"""A wish about what was just made must be as near as this to a task to ask for more."""
_LONGEST_TOLD = 200
"""Letters of a step that a note repeats."""
MARGIN = 0.15
"""How far behind the best a task may be and still stand in for it, where the best lacks an input."""

_AGAIN = re.compile(
    r"\W*(?:i|we)(?: would|'d|’d)?(?: only| just| really)? (?:need|want|like)(?: to have)? "
    r"(?:it|this|that|them|the)\b",
    re.IGNORECASE,
)
_IN_ALL = re.compile(
    rf"\W*{OPENERS}(?:do (?:both|all(?: of)?|it|so|this|that|these|them)(?: all)?"
    rf"|(?:{ACTIONS})(?:\s+it)?\s+(?:first|afterwards|after that|next|last|second))\W*$",
    re.IGNORECASE,
)
"""A step that only sums up, or puts in order, what the others ask for."""
_BOXES = re.compile(
    rf"\W*{OPENERS}(?:draw|put) (?:\w+ )?box(?:es)? a?round (?:it|them|each|all)\b", re.IGNORECASE
)
_CHART = re.compile(r"\b(?:charts?|graphs?|plots?|histograms?|diagrams?)\b", re.IGNORECASE)
"""What tables are drawn as, which no task does."""


class Chooser:
    """Chooses tasks for steps, one step after the other."""

    def __init__(self, ranker: Ranker, linker: Linker, marked: Marked) -> None:
        self._ranker = ranker
        self._linker = linker
        self._marked = marked

    def add_all(self, steps: Sequence[Step]) -> list[str]:
        """Add the tasks of every step to the linker. Returns a note for each step that came to nothing."""
        notes, talk = [], []
        planned = first_of(steps)
        if len(planned) < len(steps):
            notes.append(f"only the first {len(planned)} of {len(steps)} steps are planned")
        steps = planned
        for place, (step, scores) in enumerate(zip(steps, self._ranker.scores(steps), strict=True)):
            check_cancelled()
            self._linker.discourse.give(step.context)
            text_after = " ".join(f"{later.text} {later.context}" for later in steps[place + 1 :])
            if place and self._adds_nothing(step, scores, text_after):
                continue
            if self._ranker.is_small_talk(step, scores):
                talk.append(f"{self._told(step)} asks for nothing that an expert model does")
            elif note := self._add(step, scores, text_after):
                notes.append(note)
        if self._linker.left_out:
            notes.append(f"tasks left out: {self._linker.left_out}, since a plan has at most {MAX_TASKS}")
        if not self._linker.tasks and not notes:
            return talk or ["the request names nothing to do"]
        return notes

    def _adds_nothing(self, step: Step, scores: Scores, text_after: str) -> bool:
        """Whether a step only says again what the one before asks for ("I need it in writing")."""
        if not self._linker.tasks or self._marked.within(step.text):
            return False
        last = self._linker.discourse.things[-1].maker
        is_boxed = last is not None and bank_name(last) in (DETECTOR, FINDER)
        if _IN_ALL.match(step.text) or (is_boxed and _BOXES.match(step.text)):
            return True
        if not _AGAIN.match(step.text):
            return False
        return self._ranker.ranked(step, scores, text_after)[0][1] < CLEAR

    def _add(self, step: Step, scores: Scores, text_after: str) -> str | None:
        """Add a step's task. Returns why there is none, or None."""
        ranked = self._ranker.ranked(step, scores, text_after)
        likely = [(spec, score) for spec, score in ranked if score >= max(LEAST, ranked[0][1] - MARGIN)]
        if refusal := self._refusal(step, scores, likely):
            return refusal
        reasons = []
        for spec, _ in likely:
            try:
                made = self._linker.add(step, spec, text_after)
            except PlanError as error:
                reasons.append(f"{self._told(step)}: {error}")
                continue
            return self._accompany(step, spec, made)
        return reasons[0]

    def _refusal(self, step: Step, scores: Scores, likely: list[tuple[TaskSpec, float]]) -> str | None:
        """Why none of the offered tasks is meant; None if one of them is."""
        wanted, nearness = self._ranker.not_on_offer(step, scores)
        # A wish that is out of scope for the Hub's tasks may be just what a tool of the user's own is for.
        is_own = bool(likely) and bank_name(likely[0][0]) is None
        is_of_table = any(mark.kind == "table" for mark in self._marked.within(step.text))
        if is_of_table and not is_own and _CHART.search(step.text):
            return f"{self._told(step)} is nothing that an expert model does"
        lead = 0.0 if wanted == OUT_OF_SCOPE and not is_own else MARGIN
        if nearness >= LEAST and (not likely or likely[0][1] < nearness - lead):
            if wanted == OUT_OF_SCOPE:
                return f"{self._told(step)} is nothing that an expert model does"
            return f"{self._told(step)} needs {wanted}, which is not among the tasks offered"
        return None if likely else f"{self._told(step)} is not understood"

    def _accompany(self, step: Step, spec: TaskSpec, made: list[str]) -> str | None:
        """Add the tasks that the step's words ask for beside its own. Returns what is missing, or None."""
        for row in COMPANIONS:
            words = row.cue(step.text)
            if words is None or (row.several and len(made) < 2) or not _goes_with(row, spec):
                continue
            files = "".join(re.findall(MARK, step.text))
            text = f"the result {words}" if row.on_result else f"what is in the picture {files}"
            for name in row.tasks:
                note = self._add_companion(step, text, name)
                if note is not None and row.on_result:
                    return note
        return None

    def _add_companion(self, step: Step, text: str, name: str) -> str | None:
        companion = self._linker.offered.get(name)
        if companion is None:
            return f"{self._told(step)} needs {name}, which is not among the tasks offered"
        try:
            self._linker.add(Step(text), companion)
        except PlanError as error:
            return f"{self._told(step)}: {error}"
        return None

    def _told(self, step: Step) -> str:
        told = step.told or self._marked.restored(step.text)
        return f"“{shorten(told.strip(' .,;!?'), _LONGEST_TOLD)}”"


def _goes_with(row: Companion, spec: TaskSpec) -> bool:
    return (bank_name(spec) in row.after) if row.after else spec.makes("text")
