"""Steps in turn: each gets the likeliest task whose arguments can be filled, or a note.

StepPlanner(ranker, linker, masked).add_all(steps)     # adds tasks to the linker, returns the notes
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from jarvis_agent.core.concurrency import check_cancelled
from jarvis_agent.core.errors import PlanError
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import MEDIA, TaskSpec
from jarvis_agent.planning.hints import PlannedStep
from jarvis_agent.planning.normalise import MAX_TASKS, shorten
from jarvis_agent.planning.offline.arguments import RESIZER, add_task, noun
from jarvis_agent.planning.offline.clause_cuts import REFERS_BACK
from jarvis_agent.planning.offline.clauses import Step, first_of, is_errand, is_other_order
from jarvis_agent.planning.offline.extraction import language_phrase
from jarvis_agent.planning.offline.linking import PlanLinker
from jarvis_agent.planning.offline.masking import MARK, MaskedText
from jarvis_agent.planning.offline.patterns import START, Patterns
from jarvis_agent.planning.offline.phrases import bank_name, clause_class, load_bank, wording
from jarvis_agent.planning.offline.ranking import Ranked, Ranker, Scores
from jarvis_agent.planning.offline.sources import DETECTOR, FINDER, kind_taken
from jarvis_agent.planning.offline.weights import WEIGHTS

_RE = Patterns("steps")
_IMPLIED = Patterns("implied")

_MOST_QUOTED = 200
"""Characters of a step that a note quotes."""


class Implied(NamedTuple):
    """Further tasks that words of a step ask for ("describe a.jpg in French": translation).

    Attributes:
        after: the main tasks to which it applies; empty: every task that makes a text.
        cue: finds the words that ask for it.
        tasks: the tasks that are added.
        on_result: whether they work on the main task's result, or on its input.
        several: only where the main task runs for several files.
    """

    after: tuple[str, ...]
    cue: Callable[[str], re.Match[str] | str | None]
    tasks: tuple[str, ...]
    on_result: bool = True
    several: bool = False


_DETAILS = ("image-classification", "object-detection", "image-segmentation", "visual-question-answering")
IMPLIED = (
    Implied(("image-to-text",), _IMPLIED.IN_DETAIL.search, _DETAILS, on_result=False),
    Implied(
        ("object-detection",), _IMPLIED.COUNTING.search, ("image-to-text",), on_result=False, several=True
    ),
    Implied(
        ("image-to-text", "automatic-speech-recognition", "summarization"), language_phrase, ("translation",)
    ),
    Implied((), _IMPLIED.ALOUD.search, ("text-to-speech",)),
    Implied(("text-to-speech",), _IMPLIED.DUBBED.search, ("combine-video-audio",)),
)


class StepPlanner:
    """Chooses a task for each step.

    Attributes:
        steps: the steps that ask for something, in order, as they were planned.
    """

    def __init__(self, ranker: Ranker, linker: PlanLinker, masked: MaskedText) -> None:
        self.steps: list[PlannedStep] = []
        self._ranker = ranker
        self._linker = linker
        self._masked = masked

    def add_all(self, steps: Sequence[Step]) -> list[str]:
        """Add the tasks of every step to the linker. Returns a note for each step without a task."""
        notes: list[str] = []
        talk: list[str] = []
        count, steps = len(steps), first_of(steps)
        if len(steps) < count:
            notes.append(f"only the first {len(steps)} of {count} steps are planned")
        for place, (step, scores) in enumerate(zip(steps, self._ranker.scores(steps), strict=True)):
            check_cancelled()
            self._linker.discourse.mention(step.context)
            text_after = " ".join(f"{later.text} {later.context}" for later in steps[place + 1 :])
            if place and self._adds_nothing(step, scores, text_after):
                continue
            if self._ranker.is_small_talk(step, scores):
                (notes if START.match(step.text) else talk).append(f"{self._quoted(step)} asks for no task")
                continue
            known = len(self._linker.tasks)
            ranked = self._ranker.ranked(step, scores, text_after)
            note = self._add(step, scores, ranked, text_after)
            notes += [note] if note else []
            self.steps.append(
                PlannedStep(
                    step.original or self._masked.restored(step.text),
                    {spec.name: score for spec, score in ranked},
                    tuple(self._linker.tasks[known:]),
                    note,
                )
            )
        if self._linker.left_out:
            notes.append(f"tasks left out: {self._linker.left_out}, since a plan has at most {MAX_TASKS}")
        if not self._linker.tasks and not notes:
            return talk or ["the request names nothing to do"]
        return notes

    def _adds_nothing(self, step: Step, scores: Scores, text_after: str) -> bool:
        """Whether a step only repeats what the one before asks for ("I need it in writing")."""
        if not self._linker.tasks or self._masked.within(step.text):
            return False
        last = self._linker.discourse.things[-1].maker
        is_boxed = last is not None and bank_name(last) in (DETECTOR, FINDER)
        if _RE.IN_ALL.match(step.text) or (is_boxed and _RE.BOXES.match(step.text)):
            return True
        if not _RE.AGAIN.match(step.text):
            return False
        best, score = self._ranker.ranked(step, scores, text_after)[0]
        return score < WEIGHTS.clear or (last is not None and _are_alike(best, last))

    def _add(self, step: Step, scores: Scores, ranked: Ranked, text_after: str) -> str | None:
        """Add a step's task. Returns why there is none, or None."""
        if ranked and self._ranker.asks_for_nothing(step, *ranked[0]):
            self._linker.discourse.mention(step.text)
            return f"no tool does this: {self._quoted(step)}" if START.match(step.text) else None
        if ranked and self._repeats_tool(step, ranked[0][0]):
            self._linker.discourse.mention(step.text)
            asks = START.match(step.text)
            return f"{self._quoted(step)} repeats the task {ranked[0][0].name}" if asks else None
        best = ranked[0][1] if ranked else 0.0
        is_own = bool(ranked) and ranked[0][0].category == "tool"
        is_guess = best < WEIGHTS.clear and is_other_order(step.text) and not is_own
        least = math.inf if is_guess else max(WEIGHTS.understood, best - WEIGHTS.margin)
        likely = [(spec, score) for spec, score in ranked if score >= least]
        refusal, missing = self._refusal(step, scores, ranked, likely)
        if refusal is not None:
            return self._left_out(step, refusal, missing)
        reasons = []
        for spec, _ in likely:
            planned = len(self._linker.tasks)
            try:
                made = add_task(self._linker, self._masked, step, spec, text_after)
            except PlanError as error:
                reasons.append(f"{self._quoted(step)}: {error}")
                if bank_name(spec) == RESIZER:  # a picture that lacks its new size is not to be repainted
                    break
                continue
            note = (
                self._add_implied(step, spec, made)
                or self._unplanned_tool(step, spec, ranked)
                or self._uncounted_text(step, spec)
            )
            is_repeated = note is None and len(self._linker.tasks) == planned
            return f"{self._quoted(step)} repeats the task {spec.name}" if is_repeated else note
        if not reasons:
            return None
        wanted, nearness = self._ranker.not_on_offer(step, scores)
        if wanted in TASKS and nearness > best:
            note = f"{self._quoted(step)} needs {self._linker.missing(wanted)}"
            return self._left_out(step, note, TASKS.get(wanted))
        return self._left_out(step, reasons[0], likely[0][0])

    def _left_out(self, step: Step, note: str, spec: TaskSpec | None) -> str:
        """Let later steps refer to what a step names, and to the result that it lacks. Returns the note.

        What a task of media would have changed still shows the same, so later steps use it as it is.
        """
        self._linker.discourse.mention(step.text if spec else _RE.NEW_NAME.sub("", step.text))
        if spec is not None and not (spec.category == "media" and kind_taken(spec) in spec.outputs):
            self._linker.leave_out(spec)
        return note

    def _unplanned_tool(self, step: Step, spec: TaskSpec, ranked: Ranked) -> str | None:
        """A note on a tool that may be meant to work on the text that the step's task makes."""
        if spec.category == "tool" or not spec.makes("text"):
            return None
        least = WEIGHTS.understood + WEIGHTS.described
        tools = [
            s.name for s, score in ranked if s.category == "tool" and not bank_name(s) and score >= least
        ]
        return f"{self._quoted(step)} may also need {tools[0]}, which is not planned" if tools else None

    def _uncounted_text(self, step: Step, spec: TaskSpec) -> str | None:
        """A note where a step counts words, and its task only makes or analyses the text."""
        is_counted = _RE.COUNTED_TEXT.search(step.original or step.text)
        if spec.category == "tool" or wording(spec).text != "content" or not is_counted:
            return None
        return f"{self._quoted(step)} is planned as {spec.name} only: no task counts words or letters"

    def _repeats_tool(self, step: Step, spec: TaskSpec) -> bool:
        """Whether a step only mentions a planned tool's work ("after editing it")."""
        if clause_class(spec) is None or self._masked.within(step.text):
            return False
        planned = [task.task for task in self._linker.tasks]
        return planned[-1:] == [spec.name] or (spec.name in planned and bool(REFERS_BACK.match(step.text)))

    def _refusal(
        self, step: Step, scores: Scores, ranked: Ranked, likely: Ranked
    ) -> tuple[str | None, TaskSpec | None]:
        """Why the step fits none of the offered tasks, or None; and the task that it needs."""
        wanted, nearness = self._ranker.not_on_offer(step, scores)
        is_own = bool(likely) and likely[0][0].category == "tool"
        if is_own and (wanted not in TASKS or clause_class(likely[0][0])):
            return None, None
        if not is_own and (is_errand(step.text) or self._is_beyond_tasks(step)):
            return f"no task type does this: {self._quoted(step)}", None
        if unfit := self._ranker.unfit(step, scores, ranked, nearness):
            file = next(mark.value for mark in self._masked.within(step.text) if mark.is_file)
            takes = noun(kind_taken(unfit))
            return f"{self._quoted(step)}: {unfit.name} needs {takes}, and {file} is none", None
        needed = TASKS.get(wanted)
        may_replace = needed and likely and {*needed.outputs} & {*likely[0][0].outputs}
        lead = WEIGHTS.margin if may_replace else 0.0
        if nearness >= WEIGHTS.understood and (not likely or likely[0][1] < nearness - lead):
            if note := load_bank()[wanted].note:
                return f"{note}: {self._quoted(step)}", None
            return f"{self._quoted(step)} needs {self._linker.missing(wanted)}", needed
        return (None if likely else f"{self._quoted(step)} is not understood"), None

    def _is_beyond_tasks(self, step: Step) -> bool:
        """Whether a step asks for a chart of a table, or for the language of a text."""
        marks = self._masked.within(step.text)
        kinds = {mark.kind for mark in marks} or ({"text"} if self._linker.discourse.fed else set())
        asked = " ".join([step.text, *(mark.value for mark in marks if mark.role == "question")])
        of_text = kinds == {"text"} and _RE.LANGUAGE_OF_TEXT.search(asked)
        return bool(of_text or ("table" in kinds and _RE.CHART.search(step.text)))

    def _add_implied(self, step: Step, spec: TaskSpec, made: list[str]) -> str | None:
        """Add the further tasks that the step asks for. Returns a note on a missing one, or None."""
        for row in IMPLIED:
            found = row.cue(step.text)
            if found is None or (row.several and len(made) < 2) or not _goes_with(row, spec):
                continue
            words = found if isinstance(found, str) else found.group()
            files = "".join(re.findall(MARK, step.text))
            text = f"the result {words}" if row.on_result else f"what is in the picture {files}"
            for name in row.tasks:
                note = self._add_one(step, text, name)
                if note is not None and row.on_result:
                    return self._left_out(step, note, TASKS.get(name))
        return None

    def _add_one(self, step: Step, text: str, name: str) -> str | None:
        implied = self._linker.offered.get(name)
        if implied is None:
            return f"{self._quoted(step)} needs {self._linker.missing(name)}"
        try:
            add_task(self._linker, self._masked, Step(text), implied)
        except PlanError as error:
            return f"{self._quoted(step)}: {error}"
        return None

    def _quoted(self, step: Step) -> str:
        original = step.original or self._masked.restored(step.text)
        return f"“{shorten(original.strip(' .,;!?'), _MOST_QUOTED)}”"


def _are_alike(spec: TaskSpec, other: TaskSpec) -> bool:
    """Whether two task types make the same of the same, such as depth-estimation and depth-control."""
    topics = {each.name.partition("-")[0] for each in (spec, other)}
    same_kinds = (spec.inputs, spec.outputs[:1]) == (other.inputs, other.outputs[:1])
    return spec.name != other.name and same_kinds and len(topics - {"text", *MEDIA}) == 1


def _goes_with(row: Implied, spec: TaskSpec) -> bool:
    return (bank_name(spec) in row.after) if row.after else spec.makes("text")
