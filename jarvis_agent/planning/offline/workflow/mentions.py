"""Which tool each clause speaks of: what the classifier says, weighed with what there is to work on.

found = mentions(marked, brief.specs, embedder, load_model())
[mention.tool for mention in found]       # ["none", "automatic-speech-recognition", "summarization"]
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from jarvis_agent.backends.starter.embeddings import StarterEmbeddings
from jarvis_agent.core.tasks.spec import MEDIA, TaskSpec
from jarvis_agent.planning.offline.asking import REFUSES
from jarvis_agent.planning.offline.marks import Marked
from jarvis_agent.planning.offline.workflow.classify import NONE, Model, worded
from jarvis_agent.planning.offline.workflow.clauses import SPEAKER, Clause, clauses
from jarvis_agent.planning.offline.workflow.habits import SWAPS
from jarvis_agent.planning.offline.workflow.strangers import add_strangers

LEAST = -1.6
"""A clause whose likeliest tool is no likelier than this (as a logarithm) is taken for no tool."""
ABSENT, SPOKEN_OF, OTHER_KIND, LATEST = -3.0, -1.2, -1.5, 1.5
"""What it is worth that the kind of file which a tool takes is not there, or only spoken of; that the clause
names another kind; that "it" is of the kind."""
MOST = 40
"""Clauses beyond that many are left out."""

_KINDS = {
    "image": re.compile(r"\b(?:images?|pictures?|photos?|photograph|visual|drawing)\b", re.IGNORECASE),
    "audio": re.compile(r"\b(?:audio|recordings?|speech|voice|sound|spoken|speaker)\b", re.IGNORECASE),
}
_IT = re.compile(r"\b(?:it|its|this)\b", re.IGNORECASE)
_GIVEN = re.compile(
    r"^\W*(?:(?:hi|hello|hey|also|and|so|additionally|now|lastly|finally)\b[,!.]*\s+)*"
    rf"(?:{SPEAKER}(?:['’]ve| have| has)(?! to\b)"
    rf"|{SPEAKER} (?:also |just |recently )*(?:have(?! to\b)|got|took|found|recorded|wrote|attached|received)"
    r"|here(?:['’]s| is| are)|there(?:['’]s| is| are)|this is"
    r"|(?:the|my|this|these) (?:[\w-]+ ){1,4}(?:is|are)\b)",
    re.IGNORECASE,
)
_THING = re.compile(r"^\W*(?:an?|some|two|another|my|the|one)\b", re.IGNORECASE)

Families = Mapping[str, Sequence[TaskSpec]]


@dataclass(frozen=True, slots=True)
class Mention:
    """A clause, and the class of the tool that it speaks of (NONE: of none)."""

    clause: Clause
    tool: str


def is_given(text: str) -> bool:
    """Whether a clause says what there is ("I have a picture"), rather than what is wanted."""
    return bool(_GIVEN.match(text))


def mentions(marked: Marked, families: Families, embedder: StarterEmbeddings, model: Model) -> list[Mention]:
    """The clauses in the order of doing, each with its tool; where none has one, the likeliest gets it."""
    pieces = clauses(marked.text)[:MOST] or [Clause(marked.text)]
    given = _given(pieces)
    asking = [piece for piece, is_known in zip(pieces, given, strict=True) if not is_known] or pieces
    words = [worded(piece.text, marked) for piece in asking]
    odds = [dict(zip(model.names, map(float, row), strict=True)) for row in model.log_odds(embedder, words)]
    strangers = {name: specs[0] for name, specs in families.items() if name not in model.names}
    add_strangers(odds, words, strangers, embedder)
    rows = dict(zip(asking, odds, strict=True))
    weigher = _Weigher(marked, families)
    found = [
        Mention(piece, NONE if is_known else weigher.tool(piece.text, rows[piece]))
        for piece, is_known in zip(pieces, given, strict=True)
    ]
    if any(mention.tool != NONE for mention in found):
        return _in_order(_once(found))
    guesses = [(*weigher.likeliest(piece.text, row), piece) for piece, row in rows.items()]
    name, _, best = max(guesses, key=lambda guess: guess[1])
    return [replace(one, tool=name) if one.clause is best else one for one in found]


def _given(pieces: Sequence[Clause]) -> list[bool]:
    """For each clause whether it says what there is, or goes on so ("…, and a text"), or what not to do."""
    found: list[bool] = []
    sentence = -1
    for piece in pieces:
        goes_on = sentence == piece.sentence and bool(_THING.match(piece.text))
        found.append(goes_on or is_given(piece.text) or bool(REFUSES.match(piece.text)))
        sentence = piece.sentence if found[-1] else -1
    return found


class _Weigher:
    """Weighs tools for clauses in their order, since each may speak of what the ones before it make."""

    def __init__(self, marked: Marked, families: Families) -> None:
        self._marked = marked
        self._families = families
        self._files: list[str] = [mark.kind for mark in marked.marks.values() if mark.is_file]
        self._made: list[str] = []

    def tool(self, text: str, row: Mapping[str, float]) -> str:
        """The tool of a clause, whose log-probabilities by class are given; NONE if it speaks of none."""
        best, worth = self.likeliest(text, row)
        if worth <= max(row[NONE], LEAST):
            return NONE
        last = self._made[-1] if self._made else ""
        best = next(
            (
                swap.instead
                for swap in SWAPS
                if swap.instead in self._families and swap.holds(best, last, text, self._marked.text)
            ),
            best,
        )
        self._made += self._families[best][0].outputs
        return best

    def likeliest(self, text: str, row: Mapping[str, float]) -> tuple[str, float]:
        """The likeliest of the tools on offer, and its weight."""
        kinds = {kind for kind, words in _KINDS.items() if words.search(text)}
        kinds |= {mark.kind for mark in self._marked.within(text) if mark.is_file} & _KINDS.keys()
        only = self._files[0] if len({*self._files}) == 1 else ""
        recent = self._made[-1] if self._made else only
        is_it = recent in MEDIA and not kinds and bool(_IT.search(text))
        weights = {
            name: row.get(name, -99.0)
            + self._fits(specs, kinds)
            + (LATEST if is_it and {arg.kind for arg in specs[0].inputs if arg.required} == {recent} else 0.0)
            for name, specs in self._families.items()
        }
        return max(weights.items(), key=lambda item: item[1])

    def _fits(self, specs: Sequence[TaskSpec], kinds: set[str]) -> float:
        media = {str(arg.kind) for spec in specs for arg in spec.inputs if arg.required and arg.kind in MEDIA}
        if len(specs) > 1 or not media:
            return 0.0
        worth = 0.0 if media & {*self._files, *self._made} else SPOKEN_OF if media & kinds else ABSENT
        return worth + (OTHER_KIND if kinds and not kinds & media else 0.0)


def _once(found: list[Mention]) -> list[Mention]:
    """Without the mentions that only announce what a later sentence spells out step by step."""
    steps = Counter(mention.clause.sentence for mention in found if mention.tool != NONE)
    return [
        replace(mention, tool=NONE)
        if steps[mention.clause.sentence] == 1
        and any(_repeats(later, mention) and steps[later.clause.sentence] > 1 for later in found[place + 1 :])
        else mention
        for place, mention in enumerate(found)
    ]


def _repeats(later: Mention, mention: Mention) -> bool:
    is_same = later.tool == mention.tool != NONE
    return is_same and not later.clause.is_back and later.clause.sentence > mention.clause.sentence


def _in_order(found: list[Mention]) -> list[Mention]:
    """In the order of doing: "…, after segmenting it" goes before what it follows."""
    ordered: list[Mention] = []
    planned: set[str] = set()
    for mention in found:
        told = replace(mention, tool=NONE) if mention.clause.is_back and mention.tool in planned else mention
        is_earlier = told.clause.is_before and told.tool != NONE
        ordered.insert(max(0, len(ordered) - is_earlier), told)
        planned.add(told.tool)
    return ordered
