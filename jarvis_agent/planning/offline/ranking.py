"""Ranking: the score of each task for a step.

The base is the cosine of the nearest phrase. Log-odds, files and cues in the words are added to it.

    ranker = Ranker(classifier, masked, discourse, specs)
    scores = ranker.scores(steps)
    ranker.ranked(steps[0], scores[0], text_after)     # [(TaskSpec, 0.93), (TaskSpec, 0.71), …]

The weights are in `weights`. A task that cannot take the files of a step is excluded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jarvis_agent.core.tasks.spec import MEDIA, Modality, TaskSpec
from jarvis_agent.planning.offline.classifier import Classifier, Nearness
from jarvis_agent.planning.offline.clauses import Step
from jarvis_agent.planning.offline.coreference import Discourse
from jarvis_agent.planning.offline.cues import Cues
from jarvis_agent.planning.offline.delexicalise import readings
from jarvis_agent.planning.offline.extraction import REFERS_TO_TEXT
from jarvis_agent.planning.offline.masking import MaskedText
from jarvis_agent.planning.offline.phrases import (
    OUT_OF_SCOPE,
    SMALL_TALK,
    UNKNOWN,
    bank_name,
    clause_class,
    load_bank,
    wording,
)
from jarvis_agent.planning.offline.sources import BRIDGES
from jarvis_agent.planning.offline.tool_ranking import ToolRanker
from jarvis_agent.planning.offline.weights import WEIGHTS

Ranked = Sequence[tuple[TaskSpec, float]]
"""Tasks with their scores, the likeliest first."""

_WORDS = re.compile(r"\b(?:descri\w+|captions?|texts?|words|says|see|shows?)\b", re.IGNORECASE)
_WHICH = re.compile(r"\b(?:which|find|rank|order|sort|search|among|any of|one of)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Scores:
    """Nearness of a step to each task: as is, with files read as texts, and with videos as recordings."""

    as_is: Nearness
    as_text: Nearness
    as_sound: Nearness


class Ranker:
    """Ranks the tasks on offer for each step of a request."""

    def __init__(
        self, classifier: Classifier, masked: MaskedText, discourse: Discourse, specs: Iterable[TaskSpec]
    ) -> None:
        self._classifier = classifier
        self._masked = masked
        self._discourse = discourse
        self._specs = tuple(specs)
        self._tools = ToolRanker(classifier, masked, discourse)
        self._cues = Cues(masked, discourse)
        self._needed = {kind for spec in self._specs for kind in _files_needed(spec)}
        self._offered = {bank_name(spec) or spec.name for spec in self._specs}

    def scores(self, steps: Sequence[Step]) -> list[Scores]:
        """The scores of all steps, in one pass of the embedder."""
        recognised = [clause_class(spec) is not None for spec in self._specs]
        if any(recognised):
            self._tools.read(steps)
        if all(recognised):
            return [Scores(Nearness({}, {}), Nearness({}, {}), Nearness({}, {}))] * len(steps)
        read = [readings(step.text, self._masked, step.context) for step in steps]
        texts = list(dict.fromkeys(text for r in read for text in (*r.as_is, r.as_text, r.as_sound)))
        near = dict(zip(texts, self._classifier.near(texts, self._specs), strict=True))
        return [
            Scores(_nearest([near[text] for text in r.as_is]), near[r.as_text], near[r.as_sound])
            for r in read
        ]

    def is_small_talk(self, step: Step, scores: Scores) -> bool:
        """Whether a step is a greeting or the like."""
        if step.task or any(clause_class(spec) for spec in self._specs):
            return step.task == SMALL_TALK
        near = scores.as_is
        likeliest = max(
            near.cosines, key=lambda name: near.cosines[name] + WEIGHTS.odds * near.odds.get(name, 0.0)
        )
        return likeliest == SMALL_TALK and not self._files(step)

    def ranked(self, step: Step, scores: Scores, text_after: str) -> Ranked:
        """The offered tasks that can take the step's files, the likeliest first."""
        recognised = [spec for spec in self._specs if clause_class(spec)]
        at_hand = {kind for kind in self._needed if self._discourse.has(kind, text_after)}
        feasible = [
            (spec, near)
            for spec in self._specs
            if spec not in recognised and (near := self._near(step, spec, scores, at_hand))
        ]
        known = [log_odds for _, (_, log_odds) in feasible if log_odds < math.inf]
        known += [scores.as_is.odds[name] for name in self._others(step, scores) if load_bank()[name].note]
        top = max(known, default=0.0)
        found = [(spec, self._tools.score(step, spec)) for spec in recognised]
        for spec, (cosine, log_odds) in feasible:
            has_map = self._cues.has_its_map(step, spec)
            score = cosine + self._worth(step, spec) - (0.0 if has_map else _behind(log_odds, top))
            score += WEIGHTS.repeats if self._repeats(step, spec) else 0.0
            found.append((spec, max(score, WEIGHTS.map_said if has_map else 0.0)))
        return sorted(found, key=lambda item: -item[1])

    def unfit(self, step: Step, scores: Scores, ranked: Ranked, nearness: float) -> TaskSpec | None:
        """The task that a step clearly names but that cannot take its files, where no other one does it.

        Args:
            nearness: of the nearest entry of the bank that is not offered.
        """
        cosines, fit = scores.as_is.cosines, {spec.name for spec, _ in ranked}
        if not cosines or step.task == UNKNOWN or not self._files(step):
            return None
        best = ranked[0][1] if ranked else 0.0
        if best >= WEIGHTS.understood and wording(ranked[0][0]).text in ("wish", "question"):
            return None
        least = max(WEIGHTS.clear, nearness, best + WEIGHTS.margin)
        named = [spec for spec in self._specs if spec.name not in fit and self._cues.is_named(step, spec)]
        scored = [(cosines[bank_name(spec) or spec.name] + self._worth(step, spec), spec) for spec in named]
        score, spec = max(scored, key=lambda item: item[0], default=(0.0, None))
        return spec if score >= least else None

    def asks_for_nothing(self, step: Step, spec: TaskSpec, score: float) -> bool:
        """Whether the clause model takes a step for none, where the best task is a recognised tool."""
        return clause_class(spec) is not None and self._tools.asks_for_nothing(step, score)

    def not_on_offer(self, step: Step, scores: Scores) -> tuple[str, float]:
        """The nearest entry of the bank that is not offered ("out-of-scope" included), and its score."""
        if not scores.as_is.odds:
            return "", 0.0
        if step.task:
            is_missing = step.task in scores.as_is.cosines and step.task not in self._offered
            return (step.task, WEIGHTS.sure) if is_missing else ("", 0.0)
        top = max(scores.as_is.odds.values())
        others = {
            name: scores.as_is.cosines[name] - _behind(scores.as_is.odds[name], top)
            for name in self._others(step, scores)
        }
        return max(others.items(), key=lambda item: item[1], default=("", 0.0))

    def _others(self, step: Step, scores: Scores) -> list[str]:
        """The entries of the bank that are not offered."""
        left_out = {*self._offered, SMALL_TALK, *([OUT_OF_SCOPE] if self._files(step) else [])}
        return [name for name in scores.as_is.odds if name not in left_out]

    def _near(
        self, step: Step, spec: TaskSpec, scores: Scores, at_hand: set[Modality]
    ) -> tuple[float, float] | None:
        """The step's cosine to a task, by the kinds of its files, and the task's log-odds.

        None if the task cannot take the files, or if a required word is missing.
        """
        if step.task == UNKNOWN and bank_name(spec) is not None:
            return None
        is_named = self._cues.is_named(step, spec)
        if not is_named and spec.category == "control":
            return None
        name = bank_name(spec) or spec.name
        worth = 0.0 if is_named else WEIGHTS.unnamed
        near = scores.as_is
        takes = {arg.kind for arg in spec.inputs}
        kinds = {kind for kind in self._files(step) if kind in MEDIA}
        if kinds & takes or (kinds and "any" in takes):
            worth += WEIGHTS.takes_file * max(1, len(kinds & takes))
            worth += WEIGHTS.several if self._chooses_among(step, spec) else 0.0
        elif kinds and "audio" in takes and kinds == {"video"} and name != "combine-video-audio":
            near = scores.as_sound
            worth += WEIGHTS.needs_bridge
        elif kinds and not ("text" in takes and kinds & BRIDGES.keys()):
            return None
        elif kinds:
            near = scores.as_text
            is_made_of_text = (
                wording(spec).text != "prompt" or REFERS_TO_TEXT.search(step.text) or _WORDS.search(step.text)
            )
            worth += WEIGHTS.needs_bridge * (len(kinds) if is_made_of_text else 3)
        elif not _files_needed(spec) <= at_hand or self._lacks_text(step, spec):
            worth += WEIGHTS.lacks_file
        return near.cosines[name] + worth, near.odds.get(name, math.inf)

    def _worth(self, step: Step, spec: TaskSpec) -> float:
        """What the words of a step add to a task's similarity, and that the task is known, if it is."""
        is_known = step.task == (bank_name(spec) or spec.name)
        return self._cues.worth(step, spec) + WEIGHTS.sure * is_known

    def _repeats(self, step: Step, spec: TaskSpec) -> bool:
        """Whether the step would do to the last result what made it."""
        last = next((thing.maker for thing in reversed(self._discourse.things) if thing.maker), None)
        named = [t.maker for t in self._discourse.things if t.maker and t.is_called(step.text)]
        if any(maker.name == spec.name for maker in named) and not self._masked.within(step.text):
            return True
        is_same = last is not None and last.name == spec.name and not self._masked.within(step.text)
        return is_same and any(arg.required and arg.kind in spec.outputs for arg in spec.inputs)

    def _lacks_text(self, step: Step, spec: TaskSpec) -> bool:
        """Whether a task works on a text, and only a file that could be turned into one is in sight."""
        if wording(spec).text != "content" or spec.arg("text") is None or self._masked.within(step.text):
            return False
        return not self._discourse.has("text", "") and any(self._discourse.has(kind, "") for kind in BRIDGES)

    def _chooses_among(self, step: Step, spec: TaskSpec) -> bool:
        """Whether the step asks which of several files, and the task compares them."""
        kinds = self._files(step)
        takes = [arg.kind for arg in spec.inputs if arg.many and kinds.count(arg.kind) > 1]
        return bool(takes) and _WHICH.search(step.text) is not None

    def _files(self, step: Step) -> list[str]:
        return [mark.kind for mark in self._masked.within(step.text) if mark.is_file]


def _nearest(readings: Sequence[Nearness]) -> Nearness:
    """The maximum over several readings, for each task."""
    first = readings[0]
    return Nearness(
        {name: max(near.cosines[name] for near in readings) for name in first.cosines},
        {name: max(near.odds[name] for near in readings) for name in first.odds},
    )


def _behind(log_odds: float, top: float) -> float:
    """The cost of log-odds below the likeliest task's."""
    return WEIGHTS.odds * min(WEIGHTS.most_odds, max(0.0, top - log_odds))


def _files_needed(spec: TaskSpec) -> set[Modality]:
    return {arg.kind for arg in spec.inputs if arg.required and arg.kind != "any" and arg.kind in MEDIA}
