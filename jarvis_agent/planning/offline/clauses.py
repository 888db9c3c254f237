"""Clauses: a request is split into steps that each ask for one thing.

    split("First describe \\ue000, then translate the caption to French. Also detect the objects in it.")
    # [Step("describe \\ue000"), Step("translate the caption to French"), Step("detect the objects in it")]

A clause asks for something if it begins with a verb of action or a question word. Another clause ("Based
on \\ue000, …") belongs to the clause after it, and a whole sentence of that kind ("I have an image \\ue000.")
is the context of the step after it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate

from jarvis_agent.planning.offline.masking import MARK
from jarvis_agent.planning.offline.patterns import ACTIONS, OPENERS, REFUSES, START, Patterns
from jarvis_agent.planning.offline.phrases import UNKNOWN, results

_RE = Patterns("clauses")


MOST_STEPS, MOST_LETTERS = 50, 5000
"""Steps, and characters of steps, that are planned at most."""


@dataclass(frozen=True, slots=True)
class Step:
    """A clause that asks for something.

    Attributes:
        text: its words, with marks for files and quoted texts.
        context: sentences around it that ask for nothing but may name what it is about.
        original: the clause as the user wrote it, where `text` puts it in other words.
        task: the task that is meant, by its name in the phrase bank, where that is known already.
        is_beside: whether it is about what the step before is about, rather than about what that one makes.
    """

    text: str
    context: str = ""
    original: str = ""
    task: str = ""
    is_beside: bool = False


def split(text: str, verbs: Sequence[str] = ()) -> list[Step]:
    """The steps of a masked text, in its order. Where no clause asks for anything, each sentence is one.

    Args:
        verbs: further verbs with which a step begins, from the names of tools.
    """
    own = re.compile(rf"(?i)\W*{OPENERS}(?:{'|'.join(map(re.escape, verbs)) or '(?!)'})\b")
    text = re.sub(rf"(?i),? and (?={own.pattern.removeprefix('(?i)')})", ". ", text) if verbs else text
    text = _RE.FOLLOWING.sub(r"\2\1", _RE.SEEN.sub("the description of ", text))
    sentences = [sentence.strip() for sentence in _RE.SENTENCE.split(text) if sentence.strip(" \t.,;!?-–")]
    clauses = [
        [(c, bool(asks or own.match(c)) and not REFUSES.match(c)) for c, asks in _clauses(sentence)]
        for sentence in sentences
    ]
    if not any(asks for sentence in clauses for _, asks in sentence):
        return [Step(sentence) for sentence in sentences if not REFUSES.match(sentence)]
    steps: list[Step] = []
    waiting: list[str] = []
    for clause, asks in (item for sentence in clauses for item in sentence):
        if not asks:
            is_first = all(step.task == UNKNOWN for step in steps)
            if is_other_order(clause):
                steps.append(Step(clause, task=UNKNOWN if is_first else ""))
            if is_first or not is_other_order(clause):
                waiting.append(clause)
            continue
        clause, *others = _RE.OTHER_ORDER.split(clause)
        context = " ".join(waiting)
        steps.append(Step(_with_noun(clause, context), context, is_beside=bool(_RE.BESIDE.search(clause))))
        steps += [Step(other) for other in others]
        waiting = []
    if waiting:
        steps[-1] = replace(steps[-1], context=" ".join([steps[-1].context, *waiting]).strip())
    return steps


def is_other_order(clause: str) -> bool:
    """Whether a clause begins with a verb that no task is known by, and an object ("upload it")."""
    return bool(_RE.OTHER_VERB.match(clause)) and not START.match(clause) and not REFUSES.match(clause)


def is_errand(clause: str) -> bool:
    """Whether a clause asks for what no task does, such as to deliver a file ("email a.jpg to Anna")."""
    return bool(_RE.DELIVERY.match(clause) or Patterns("chinese").ERRAND.match(clause))


def first_of(steps: Sequence[Step]) -> Sequence[Step]:
    """The steps that are planned: all of a plain request, the first ones of what is too long for one."""
    lengths = accumulate(len(step.text) for step in steps[:MOST_STEPS])
    return steps[: sum(length <= MOST_LETTERS for length in lengths) or 1]


def without_lead_in(text: str) -> str:
    """A clause without "please", "can you", "then" and the like before it, and without its full stop."""
    return _RE.LEAD_IN.sub("", text).strip().rstrip(".,;!?。！？；").strip()


def _clauses(sentence: str) -> list[tuple[str, bool]]:
    """The clauses of a sentence, each with whether it asks for something."""
    pieces = [piece.strip() for piece in _RE.CUT.split(sentence) if without_lead_in(f"{piece} ")]
    if not pieces:
        return [(sentence, False)]
    clauses: list[tuple[str, bool]] = []
    opening = ""
    for place, piece in enumerate(pieces):
        if place + 1 < len(pieces) and _is_opening(piece, is_first=place == 0):
            if _RE.STATES.search(piece) and not opening:
                clauses.append((piece, False))
            else:
                opening = f"{piece}, "
            continue
        clauses += [(clause, True) for clause in _with_verb(f"{opening}{piece}")]
        opening = ""
    if len(clauses) == 1:
        return [(clauses[0][0], len(pieces) > 1 or bool(START.search(sentence)))]
    clauses = _joined(clauses)
    texts = [text for text, _ in clauses]
    return [(_with_object(text, texts[n + 1 :]), asks) for n, (text, asks) in enumerate(clauses)]


def _joined(clauses: list[tuple[str, bool]]) -> list[tuple[str, bool]]:
    """Clauses, with a bare verb joined to the next clause ("identify and label the objects")."""
    found: list[tuple[str, bool]] = []
    for clause, asks in clauses:
        if found and _RE.BARE_VERB.fullmatch(without_lead_in(found[-1][0])):
            clause = f"{found.pop()[0]} and {clause}"
        found.append((clause, asks))
    return found


def _with_noun(clause: str, context: str) -> str:
    """A clause with "one" replaced by the noun that ends the sentence before ("a depth map")."""
    noun = _RE.LAST_NOUN.search(context)
    return _RE.ONE.sub(noun[1].strip(), clause, count=1) if noun else clause


def _with_verb(clause: str) -> list[str]:
    """The results that one verb asks for, each with the verb ("make a caption of \ue000 and a depth map")."""
    if both := _RE.INTO.match(clause):
        return [f"{both[1]} {both[2]}", f"{both[1]} {both[3]}"]
    grounds = _RE.GROUNDS.match(clause)
    wish = _RE.WISH_AFTER.search(clause) if grounds else None
    if grounds and wish is None:
        return [clause]
    lead, wanted = (clause[: wish.end()], clause[wish.end() :]) if wish else ("", clause)
    first, *others = _another().split(wanted)
    if not others:
        return [clause]
    first = lead + first
    verb = without_lead_in(wanted).partition(" ")[0]
    is_verb = re.fullmatch(ACTIONS, verb, re.IGNORECASE) and verb.lower() not in ("give", "get", "show")
    verb = verb if is_verb else "give me"
    return [first, *(f"{lead}{verb} {other}" for other in others)]


@lru_cache(maxsize=1)
def _another() -> re.Pattern[str]:
    """Where another result begins, by the nouns for what tasks make."""
    is_next = r"\b(?=\s*(?:,|\band\b|\W*$))"
    return re.compile(
        rf"\s*(?:,\s*(?:(?:and|plus)\s+)?|,?\s+(?:and|plus|as well as|along with|together with)\s+)"
        rf"(?=(?:also\s+)?(?:the|its?|an?|some|one)\s+(?:list of\s+(?:all\s+)?(?:the\s+)?)?(?:[\w-]+\s+)?"
        rf"(?:(?:{results()})s?\b|(?:image|picture|photo|video|clip) (?:of|showing)\b|"
        rf"(?<=\ban )image{is_next}|(?<=\ba )(?:picture|photo|video|clip){is_next})"
        rf"(?!\W*(?:is|are|was|were|should)\b))",
        re.IGNORECASE,
    )


def _is_opening(piece: str, *, is_first: bool) -> bool:
    """Whether a piece of a sentence only leads to the one after it ("Based on \ue000")."""
    if _RE.SETTING.match(piece) or _RE.REGARD.match(piece) or _RE.ANSWERS.match(piece):
        return True
    if START.search(piece) or _RE.INTRO.match(piece):
        return not START.search(piece)
    return is_first and re.search(MARK, piece) is not None and not is_other_order(piece)


def _with_object(clause: str, following: list[str]) -> str:
    """A bare verb ("classify and describe \ue000") with the files that the next clause names."""
    if not following or not re.fullmatch(ACTIONS, clause, re.IGNORECASE):
        return clause
    return " ".join([clause, *re.findall(MARK, following[0])])
