"""Ranking of recognised tools: the clause model, and the kinds that a clause can work on.

ranker = ToolRanker(classifier, masked, discourse)
ranker.read(steps)
ranker.score(step, spec)           # 0.58
ranker.asks_for_nothing(step, 0.3) # whether the clause model finds no task more likely than that
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from jarvis_agent.core.tasks.spec import MEDIA, TaskSpec
from jarvis_agent.planning.offline.classifier import NONE, Classifier
from jarvis_agent.planning.offline.clauses import Step
from jarvis_agent.planning.offline.coreference import Discourse
from jarvis_agent.planning.offline.delexicalise import clause_words
from jarvis_agent.planning.offline.masking import MaskedText
from jarvis_agent.planning.offline.patterns import Patterns
from jarvis_agent.planning.offline.phrases import clause_class
from jarvis_agent.planning.offline.weights import WEIGHTS

_RE = Patterns("tool_ranking")

_KINDS = {
    "image": re.compile(r"\b(?:images?|pictures?|photos?|photograph|visual|drawing)\b", re.IGNORECASE),
    "audio": re.compile(r"\b(?:audio|recordings?|speech|voice|sound|spoken|speaker)\b", re.IGNORECASE),
}
_QUESTION = "question"
"""The class of all tools that answer questions; their inputs distinguish them."""


class ToolRanker:
    """Scores recognised tools for the steps of one request."""

    def __init__(self, classifier: Classifier, masked: MaskedText, discourse: Discourse) -> None:
        self._classifier = classifier
        self._masked = masked
        self._discourse = discourse
        self._log_probs: dict[str, Mapping[str, float]] = {}

    def read(self, steps: Sequence[Step]) -> None:
        """Classify all steps in one pass of the embedder."""
        words = [clause_words(step.text, self._masked) for step in steps]
        rows = self._classifier.log_probs(words)
        self._log_probs = dict(zip((step.text for step in steps), rows, strict=True))

    def score(self, step: Step, spec: TaskSpec) -> float:
        """The score of a recognised tool."""
        name = clause_class(spec)
        assert name is not None
        log_prob = self._log_probs[step.text].get(name, -99.0)
        fit = self._fit_of_answer(step, spec) if name == _QUESTION else self._fit(step, spec)
        return _as_score(log_prob + fit)

    def asks_for_nothing(self, step: Step, best: float) -> bool:
        """Whether it is more likely that a step asks for no task than for one with this score."""
        return _as_score(self._log_probs[step.text][NONE]) >= best

    def _fit(self, step: Step, spec: TaskSpec) -> float:
        """How well the kinds that a tool takes match the files and results of the request."""
        takes = {str(arg.kind) for arg in spec.inputs if arg.required}
        media = takes & MEDIA
        named = {kind for kind, words in _KINDS.items() if words.search(step.text)}
        named |= {mark.kind for mark in self._masked.within(step.text) if mark.is_file} & _KINDS.keys()
        latest = self._latest()
        is_it = latest in MEDIA and not named and bool(_RE.IT.search(step.text))
        fit = WEIGHTS.kind_latest if is_it and takes == {latest} else 0.0
        if media and not media & self._present():
            fit += WEIGHTS.kind_mentioned if media & named else WEIGHTS.kind_absent
        if media and named and not named & media:
            fit += WEIGHTS.kind_differs
        return fit

    def _fit_of_answer(self, step: Step, spec: TaskSpec) -> float:
        """How well the input of a question-answering tool fits what the question is about."""
        meant = self._asked_about(step)
        if not any(arg.kind == "image" for arg in spec.inputs):
            return 0.0 if meant == "text" else WEIGHTS.kind_absent
        if meant == "text":
            return WEIGHTS.kind_absent
        is_for_documents = spec.aliases[-1] == "document-question-answering"
        return 0.0 if is_for_documents == (meant == "document") else WEIGHTS.kind_mentioned

    def _asked_about(self, step: Step) -> str:
        """What a question is about: "text", "document" or "image"."""
        if "image" not in self._present():
            return "text"
        words = self._masked.restored(f"{step.text} {step.context}")
        is_of_text = bool(_RE.TEXT.search(step.text)) and self._latest() == "text"
        if _RE.DOCUMENT.search(words) and (not is_of_text or _RE.DOCUMENT.search(step.text)):
            return "document"
        if _RE.IMAGE.search(words):
            return "image"
        return "text" if _RE.TEXT.search(step.text) or self._latest() == "text" else "image"

    def _present(self) -> set[str]:
        files = {mark.kind for mark in self._masked.marks.values() if mark.is_file}
        return {*files, *(thing.kind for thing in self._discourse.things)}

    def _latest(self) -> str:
        made = [thing.kind for thing in self._discourse.things if thing.maker]
        files = {mark.kind for mark in self._masked.marks.values() if mark.is_file}
        return made[-1] if made else next(iter(files)) if len(files) == 1 else ""


def _as_score(log_prob: float) -> float:
    return WEIGHTS.certain + WEIGHTS.log_prob * log_prob
