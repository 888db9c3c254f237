"""Cues: words of a step that raise or lower the score of a task, beside its similarity to phrases.

cues = Cues(masked, discourse)
cues.worth(step, spec)              # 0.15 if only phrases of this task begin with the step's verb
cues.has_its_map(step, spec)        # whether "it" is the control map that the task takes
"""

from __future__ import annotations

import re
from functools import lru_cache

from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.planning.offline.clauses import Step, without_lead_in
from jarvis_agent.planning.offline.coreference import Discourse
from jarvis_agent.planning.offline.extraction import amount, drawn, languages, offers_choice, thing_sought
from jarvis_agent.planning.offline.masking import MaskedText
from jarvis_agent.planning.offline.phrases import DATA, bank_name, verbs, wording
from jarvis_agent.planning.offline.sources import DETECTOR, FINDER
from jarvis_agent.planning.offline.weights import WEIGHTS

_MAP = re.compile(r"\b(?:it|them|this|that|these|the (?:map|result|drawing))\b", re.IGNORECASE)
_QUESTION = re.compile(r"(?:what|which|who|whose|when|where|why|how|is|are|does|do|did|was|were)\b", re.I)
_OPENING = re.compile(r"\W*(?:according|based|using|from|with|in|given|use|take)\b", re.IGNORECASE)


class Cues:
    """The cues in the steps of one request."""

    def __init__(self, masked: MaskedText, discourse: Discourse) -> None:
        self._masked = masked
        self._discourse = discourse

    def worth(self, step: Step, spec: TaskSpec) -> float:
        """What the words of a step add to a task's cosine similarity."""
        clause = without_lead_in(step.text.rpartition(", ")[2] if _OPENING.match(step.text) else step.text)
        name, words = bank_name(spec), wording(spec)
        share = verbs().get(clause.partition(" ")[0].lower(), {}).get(name or spec.name, 0.0)
        is_choice = spec.arg("labels") is not None and offers_choice(step.text)
        is_of_map = words.map and words.named and self._says_what_to_make(step, words.named)
        return (
            WEIGHTS.verb * share
            + WEIGHTS.choice * is_choice
            + WEIGHTS.quantity * _says_amount(step, spec)
            + WEIGHTS.described * (name is None)
            + WEIGHTS.tool_name * (name is None and _is_called(clause, spec))
            + WEIGHTS.speaks_of_map * bool(is_of_map)
            + WEIGHTS.map_at_hand * self.has_its_map(step, spec)
            + WEIGHTS.thing * _knows_thing(step, name)
            + WEIGHTS.asks_of_text * (name == "question-answering" and self._asks_of_text(clause, step))
            + WEIGHTS.no_language * (name == "translation" and self._asks_of_text(clause, step))
        )

    def _asks_of_text(self, clause: str, step: Step) -> bool:
        """Whether a step is a question about a text file, and not about its words in a language."""
        files = [mark.kind for mark in self._masked.within(step.text) if mark.is_file]
        is_question = set(files) == {"text"} and _QUESTION.match(clause) is not None
        return is_question and not languages(step.text) and "translat" not in clause.lower()

    def _says_what_to_make(self, step: Step, words: re.Pattern[str]) -> bool:
        """Whether a step says what to make with a control map that `words` name."""
        texts = [mark for mark in self._masked.within(step.text) if not mark.is_file]
        if texts:
            return True
        wanted = drawn(step.text)
        is_map = rf"(?:{words.pattern})(?: \w+)?(?: (?:of|from|for) .*)?$"
        return wanted is not None and not re.search(is_map, wanted, re.IGNORECASE)

    def is_named(self, step: Step, spec: TaskSpec) -> bool:
        """Whether the step has the words that the task requires, or "it" is the map that the task takes."""
        words = wording(spec)
        if words.named is None or words.named.search(step.text) or step.task == bank_name(spec):
            return True
        return self.has_its_map(step, spec)

    def has_its_map(self, step: Step, spec: TaskSpec) -> bool:
        """Whether "it" is the map that the task takes, made or named before."""
        words = wording(spec)
        if words.map is None or words.named is None:
            return False
        if words.named.search(step.context) and self._says_what_to_make(step, words.named):
            return True
        if not _MAP.search(step.text):
            return False
        made = self._discourse.made_last("image")
        is_its_map = made is not None and made.maker is not None and words.map == bank_name(made.maker)
        return is_its_map and self._says_what_to_make(step, words.named)


@lru_cache(maxsize=1)
def _detected() -> frozenset[str]:
    """What models for object-detection find: the classes of COCO, and words for any of them."""
    return frozenset((DATA / "detectable.txt").read_text(encoding="utf-8").splitlines())


def _is_called(clause: str, spec: TaskSpec) -> bool:
    """Whether a clause has the whole name of a tool, or begins with its verb and no other task's."""
    parts = re.split(r"[\W_]+|(?<=[a-z])(?=[A-Z])", spec.name.lower())
    verb = clause.partition(" ")[0].lower()
    is_its_verb = verb not in verbs() and verb in (parts[0], spec.description.partition(" ")[0].lower())
    return is_its_verb or all(re.search(rf"(?i)\b{re.escape(part)}", clause) for part in parts)


def _says_amount(step: Step, spec: TaskSpec) -> bool:
    """Whether the step has numbers that the task takes: a box, a size, a horizon."""
    return any(arg.kind == "data" and amount(arg.name, step.text) is not None for arg in spec.inputs)


def _knows_thing(step: Step, name: str | None) -> int:
    """1 if this detector finds what the step looks for, -1 if the other one does, else 0."""
    sought = thing_sought(step.text) if name in (DETECTOR, FINDER) else None
    if sought is None:
        return 0
    is_known = sought.rpartition(" ")[2] in _detected() or sought in _detected()
    return 1 if is_known == (name == DETECTOR) else -1
