"""How likely each task is for a step: the cosine of its nearest phrase, moved by what the step names.

    ranker = Ranker(matcher, marked, discourse, specs)
    scores = ranker.scores(steps)
    ranker.ranked(steps[0], scores[0], text_after)     # [(TaskSpec, 0.93), (TaskSpec, 0.71), …]

The numbers were set by hand on plain requests; a step's kinds of files exclude what can not take them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jarvis_agent.offline.arguments import offers_choice, prompt, question, refers_to_text
from jarvis_agent.offline.discourse import Discourse
from jarvis_agent.offline.marks import MARK, Marked
from jarvis_agent.offline.plain import readings
from jarvis_agent.offline.steps import Step, without_lead_in
from jarvis_agent.offline.supply import BRIDGES
from jarvis_agent.offline.wordings import OUT_OF_SCOPE, SMALL_TALK, Matcher, bank_name, verbs, wording
from jarvis_agent.tools.spec import MEDIA, Modality, TaskSpec

TAKES_FILE, NEEDS_BRIDGE, LACKS_FILE = 0.04, -0.06, -0.08
"""What it is worth that a task takes the step's file, that it takes a text which the file can be turned into,
or that it takes a file where none is in sight."""
SPEAKS_OF_MAP = 0.12
"""What it is worth that the step speaks of the control map that the task takes, with a prompt."""
VERB = 0.15
"""What it is worth that the step begins with a verb that only phrases of the task begin with."""

MAP_AT_HAND = 0.15
"""What it is worth, on top of that, that "it" is the map."""
HOLDS = 0.3
"""What it is worth that a text of the step has the gap that the task fills."""
CHOICE = 0.15
"""What it is worth for a task that takes labels that the step asks which of several things it is."""

OWN_TASK = 0.12
"""What makes up for the many phrases of the bank, where a task of the user's own has only a description."""
ANSWERS: Mapping[Modality, str] = {
    "image": "visual-question-answering",
    "video": "video-text-to-text",
    "table": "table-question-answering",
    "text": "question-answering",
}
"""The tasks that answer any question about something of a kind."""
QUESTION = 0.5
"""How near a question about something at hand is to the task that answers any, at least."""

_WORDS = re.compile(r"\b(?:descri\w+|captions?|texts?|words|says|see|shows?)\b", re.IGNORECASE)
_PRONOUN = re.compile(r"\b(?:it|they|them|he|she|there|this|that|these|those)\b", re.IGNORECASE)
_MAP = re.compile(r"\b(?:it|this|that|the (?:map|result))\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Scores:
    """Nearness of a step to each task: as it stands, and with its files put as texts."""

    as_is: Mapping[str, float]
    as_text: Mapping[str, float]


class Ranker:
    """Ranks the tasks on offer for each step of a request."""

    def __init__(
        self, matcher: Matcher, marked: Marked, discourse: Discourse, specs: Iterable[TaskSpec]
    ) -> None:
        self._matcher = matcher
        self._marked = marked
        self._discourse = discourse
        self._specs = tuple(specs)
        self._needed = {kind for spec in self._specs for kind in _files_needed(spec)}
        self._offered = {bank_name(spec) or spec.name for spec in self._specs}

    def scores(self, steps: Sequence[Step]) -> list[Scores]:
        """The scores of all steps, in one pass of the embedder."""
        read = [readings(step.text, self._marked) for step in steps]
        texts = list(dict.fromkeys(text for r in read for text in (*r.as_is, r.as_text)))
        near = dict(zip(texts, self._matcher.scores(texts, self._specs), strict=True))
        return [
            Scores({n: max(near[text][n] for text in r.as_is) for n in near[r.as_text]}, near[r.as_text])
            for r in read
        ]

    def is_small_talk(self, step: Step, scores: Scores) -> bool:
        """Whether a step is a greeting or the like."""
        return max(scores.as_is, key=lambda name: scores.as_is[name]) == SMALL_TALK and not self._files(step)

    def ranked(self, step: Step, scores: Scores, text_after: str) -> list[tuple[TaskSpec, float]]:
        """The offered tasks that can take the step's files, the likeliest first."""
        answers = self._asks_about(step)
        at_hand = {kind for kind in self._needed if self._discourse.has(kind, text_after)}
        found = []
        for spec in self._specs:
            if self._is_named(step, spec):
                nearness = self._nearness(step, spec, scores, at_hand)
                if nearness is not None:
                    least = QUESTION if bank_name(spec) == answers is not None else 0.0
                    found.append((spec, max(nearness + self._worth_of_words(step, spec), least)))
        return sorted(found, key=lambda item: -item[1])

    def not_on_offer(self, step: Step, scores: Scores) -> tuple[str, float]:
        """What the step is nearest to of all that is not on offer, out-of-scope wishes among it."""
        others = {
            name: score
            for name, score in scores.as_is.items()
            if name not in {*self._offered, SMALL_TALK} and not (name == OUT_OF_SCOPE and self._files(step))
        }
        return max(others.items(), key=lambda item: item[1], default=("", 0.0))

    def _nearness(self, step: Step, spec: TaskSpec, scores: Scores, at_hand: set[Modality]) -> float | None:
        """The step's nearness to a task, by the kinds of its files; None if the task can not take them."""
        name = bank_name(spec) or spec.name
        takes = {arg.kind for arg in spec.inputs}
        kinds = {kind for kind in self._files(step) if kind in MEDIA}
        if kinds & takes or (kinds and "any" in takes):
            return scores.as_is[name] + TAKES_FILE * max(1, len(kinds & takes))
        if kinds:
            if "audio" in takes and kinds == {"video"} and name != "combine-video-audio":
                return scores.as_is[name] + NEEDS_BRIDGE
            is_bridged = "text" in takes and kinds & BRIDGES.keys()
            is_made_of_text = (
                wording(spec).text != "prompt" or refers_to_text(step.text) or _WORDS.search(step.text)
            )
            penalty = NEEDS_BRIDGE if is_made_of_text else 3 * NEEDS_BRIDGE
            return scores.as_text[name] + penalty if is_bridged else None
        return scores.as_is[name] + (0.0 if _files_needed(spec) <= at_hand else LACKS_FILE)

    def _asks_about(self, step: Step) -> str | None:
        """The task that answers the step's question about what is at hand; None if it is no such question."""
        if question(step.text) is None:
            return None
        kinds = [kind for kind in ANSWERS if any(mark.fits(kind) for mark in self._marked.within(step.text))]
        if not kinds and _PRONOUN.search(step.text):
            things = [thing for thing in self._discourse.things if thing.kind in ANSWERS and thing.is_whole]
            kinds = [thing.kind for thing in things[-1:]]
        return ANSWERS[kinds[0]] if kinds else None

    def _worth_of_words(self, step: Step, spec: TaskSpec) -> float:
        clause = without_lead_in(step.text.rpartition(", ")[2] if self._opens(step) else step.text)
        share = verbs().get(clause.partition(" ")[0].lower(), {}).get(bank_name(spec) or spec.name, 0.0)
        is_of_map = wording(spec).map is not None and self._says_what_to_make(step)
        is_own = bank_name(spec) is None
        is_choice = spec.arg("labels") is not None and offers_choice(step.text)
        holds = HOLDS * self._holds(step, spec) + CHOICE * is_choice
        holds += MAP_AT_HAND * self._has_its_map(step, spec)
        return holds + VERB * share + (SPEAKS_OF_MAP if is_of_map else 0.0) + (OWN_TASK if is_own else 0.0)

    def _holds(self, step: Step, spec: TaskSpec) -> bool:
        holds = wording(spec).holds
        texts = [mark.value for mark in self._marked.within(step.text) if not mark.is_file]
        return holds is not None and any(holds.search(text) for text in texts)

    def _opens(self, step: Step) -> bool:
        return bool(re.match(r"\W*(?:based|using|from|with|in|given|use|take)\b", step.text, re.IGNORECASE))

    def _says_what_to_make(self, step: Step) -> bool:
        texts = [mark for mark in self._marked.within(step.text) if not mark.is_file]
        return bool(texts) or prompt(step.text) is not None

    def _is_named(self, step: Step, spec: TaskSpec) -> bool:
        """Whether the step has the words without which the task is not meant, or "it" is the map it takes."""
        words = wording(spec)
        if words.named is None or words.named.search(step.text) or self._holds(step, spec):
            return True
        return self._has_its_map(step, spec)

    def _has_its_map(self, step: Step, spec: TaskSpec) -> bool:
        """Whether "it" is the map that the task takes, as it was made or named before."""
        words = wording(spec)
        if words.map is None or words.named is None or not _MAP.search(step.text):
            return False
        if words.named.search(step.context) and re.search(MARK, step.context):
            return True
        made = self._discourse.made_last("image")
        is_its_map = made is not None and made.maker is not None and words.map == bank_name(made.maker)
        return is_its_map and self._says_what_to_make(step)

    def _files(self, step: Step) -> list[str]:
        return [mark.kind for mark in self._marked.within(step.text) if mark.is_file]


def _files_needed(spec: TaskSpec) -> set[Modality]:
    return {arg.kind for arg in spec.inputs if arg.required and arg.kind != "any" and arg.kind in MEDIA}
