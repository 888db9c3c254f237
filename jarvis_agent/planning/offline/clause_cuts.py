"""Clause cuts: a step is cut further where its parts ask for different tasks.

    split_finer(steps, masked, classifier)
    # [Step("describe the image and translate the result")] becomes two steps

The patterns here cut more than `clauses.split`. A cut counts only if the clause model is certain of the class
of both parts and the classes differ; other parts stay together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from jarvis_agent.planning.offline.classifier import NONE, Classifier
from jarvis_agent.planning.offline.clauses import Step
from jarvis_agent.planning.offline.delexicalise import clause_words
from jarvis_agent.planning.offline.masking import MARK, MaskedText
from jarvis_agent.planning.offline.patterns import START, Patterns, word
from jarvis_agent.planning.offline.phrases import load_clauses
from jarvis_agent.planning.offline.weights import WEIGHTS

_RE = Patterns("clause_cuts")

_VERBS = str(load_clauses()["verbs"]).split()
_NAMES = [name.replace("-", "[- ]") for name in load_clauses()["tasks"] if "-" in name]
"""Names of tasks, as a clause may have them ("object detection")."""


def _forms(verb: str) -> list[str]:
    stem = verb[:-1] if verb.endswith("e") and verb != "be" else verb
    doubled = f"{verb}{verb[-1]}ing" if re.search(r"[^aeiou][aeiou][gtnpbm]$", verb) else f"{stem}ing"
    return [verb, f"{stem}ing", doubled]


_VERB = (
    rf"(?:use(?! of\b)\b|(?:{'|'.join(dict.fromkeys(form for verb in _VERBS for form in _forms(verb)))})\b)"
)
_MADE = word("clause_cuts.MADE")
_DONE = word("clause_cuts.DONE")
_ADVERB = word("clause_cuts.ADVERB")
_JOIN = word("clause_cuts.JOIN")
_WISH = word("clause_cuts.WISH")
_LAST = word("clause_cuts.LAST")
_CUTS = (
    rf"(?<!\bi)(?<!\bwe)(?<!\buser){_JOIN}(?={_ADVERB}{_VERB})",
    rf"\s*[,;:–—]\s*(?={_ADVERB}{_VERB})",
    rf"{_JOIN}(?=(?:would like|['’]d like|want|need|wish)\b)",
    rf"(?:\s*,\s*|\s+)(?:(?:and|but|so|that|which|where|for which|then)\s+){{0,2}}(?={_WISH})",
    r"\s+(?:that|which)\s+(?=(?:needs?|should|must|has|have)\s+(?:to be|been)\b)",
    rf"\s*,?\s+(?:and|as well as|along with|followed by|plus|or)\s+{_LAST}"
    rf"(?=(?:an?|its|their)\s+(?:[\w-]+\s+){{0,3}}{_MADE}\b)",
    rf"\s*,\s*(?:and\s+)?(?:then |finally )?(?=an?\s+(?:[\w-]+\s+){{0,3}}{_MADE}\b)",
    rf"(?:{_JOIN}|\s*,\s*){_LAST}(?=(?:{'|'.join(_NAMES)})\b)",
    r"\s*,\s*(?:and\s+)?(?=(?:its|their)\s+(?:depths?|class(?:es)?|categor(?:y|ies)|emotions?)\b)",
    rf"\s*,?\s+and\s+{_LAST}(?=the\s+(?:similarity|answer|depth|class|category|emotion)\b)",
    rf"\s*,?\s+and\s+{_LAST}(?=(?:the|its|their)\s+(?:[\w'’-]+\s+|{MARK}\s+){{1,5}}?(?:to be\s+)?{_DONE}\b)",
    rf"(?:{_JOIN}|\s*,\s*){_LAST}(?={_DONE}\b(?!\s+(?:text|image|picture|audio|version|content|answer|objects?)\b))",
    rf"{_JOIN}(?=(?:what|how|who|where|when|which|why|whether)\b)",
    r"(?:\s*,)?\s+(?=(?:before|after|upon|by(?: first)?|followed by)\s+(?:first\s+)?"
    rf"(?:{_VERB}|(?:the )?\w*(?:tion|ment|ing|sis)\b))",
)
_CUT = re.compile("|".join(_CUTS), re.IGNORECASE)
REFERS_BACK = _RE.REFERS_BACK


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a step.

    Attributes:
        text: its words, with marks.
        is_back: whether it refers back to something ("after editing the image").
        is_before: whether it is to be done before the part ahead of it ("…, after segmenting it").
    """

    text: str
    is_back: bool = False
    is_before: bool = False


def split_finer(steps: Sequence[Step], masked: MaskedText, classifier: Classifier) -> list[Step]:
    """The steps, each cut where the clause model finds another task. Steps of a known task stay whole."""
    steps = [each for step in steps for each in _with_asking_context(step, masked, classifier)]
    parts = [[Part(step.text)] if step.task else parts_of(step.text) for step in steps]
    texts = [clause_words(part.text, masked) for each in parts if len(each) > 1 for part in each]
    classes = iter(map(_certain_class, classifier.log_probs(texts) if texts else []))
    found: list[Step] = []
    for step, each in zip(steps, parts, strict=True):
        groups = _grouped(each, [next(classes) for _ in each]) if len(each) > 1 else [step.text]
        if len(groups) == 1:
            found.append(step)
            continue
        found += [
            replace(step, text=text, context=step.context if n == 0 else "") for n, text in enumerate(groups)
        ]
    return found


def _with_asking_context(step: Step, masked: MaskedText, classifier: Classifier) -> list[Step]:
    """A step, after the wishes that its context ends in ("I have a picture that I'd like to edit")."""
    parts = [] if step.task or not step.context else parts_of(step.context)
    wishes = [place for place, part in enumerate(parts) if place and START.match(part.text)]
    if not wishes:
        return [step]
    texts = [part.text for part in parts[wishes[0] :]]
    names = map(_certain_class, classifier.log_probs([clause_words(text, masked) for text in texts]))
    if not all(names):
        return [step]
    before = " ".join(part.text for part in parts[: wishes[0]])
    return [
        *(Step(text, before if n == 0 else "") for n, text in enumerate(texts)),
        replace(step, context=""),
    ]


def _certain_class(log_probs: dict[str, float]) -> str:
    name, worth = max(log_probs.items(), key=lambda item: item[1])
    return name if name != NONE and worth > WEIGHTS.cut else ""


def _grouped(parts: Sequence[Part], classes: Sequence[str]) -> list[str]:
    """Parts joined where no cut counts, in the order of execution."""
    groups: list[str] = []
    known = ""
    for part, name in zip(parts, classes, strict=True):
        is_new = name and name != known and (not part.is_back or part.is_before)
        if not groups or (is_new and known):
            groups.insert(max(0, len(groups) - bool(groups and part.is_before)), part.text)
            known = name
        else:
            groups[-1] = f"{groups[-1]}, {part.text}"
            known = known or name
    return groups


def parts_of(text: str) -> list[Part]:
    """Every part into which a step may be cut."""
    pieces = [piece.strip(" ,;:-–") for piece in _CUT.split(text)]
    pieces = [piece for piece in pieces if re.search(rf"\w|{MARK}", piece)]
    return [
        Part(piece, bool(REFERS_BACK.match(piece)), place > 0 and bool(_RE.LATER.match(piece)))
        for place, piece in enumerate(pieces)
    ]
