"""Reads a request that describes a workflow: which tools it speaks of, in which order, about what.

    tasks = read(marked, brief, embedder)

Clauses are classified on their own; what is at hand and what was planned already then decide.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from jarvis_agent.embeddings import Embedder
from jarvis_agent.offline import arguments
from jarvis_agent.offline.marks import Marked
from jarvis_agent.offline.workflow.classify import NONE, Model, load_model, worded
from jarvis_agent.offline.workflow.clauses import Clause, clauses
from jarvis_agent.offline.workflow.tools import QUESTION, family
from jarvis_agent.offline.workflow.weave import Weaver, is_question
from jarvis_agent.request import Brief
from jarvis_agent.tools.spec import MEDIA, TaskSpec
from jarvis_agent.types import Task

LEAST = -1.0
"""Log-probability under which a clause is taken for no tool."""
ABSENT, OTHER_KIND = -3.0, -1.5
"""What it costs a tool that it takes a kind of file of which there is none, or not the one that the clause names."""
MOST = 40
"""Clauses beyond that many are left out."""

TRANSLATION = "translation"
_LANGUAGE = re.compile(
    r"\b(?:in|into|to) (French|Spanish|German|Italian|Chinese|Japanese|Russian|Korean|Portuguese|Hindi|Arabic|Dutch)\b"
    r"(?! (?:text|audio|document|article|image))"
    r"|\b(French|Spanish|German|Italian|Chinese|Japanese|Russian|Korean|Portuguese) (?:audio|version|speech|translation|summary)\b"
)
_KINDS = {
    "image": re.compile(r"\b(?:images?|pictures?|photos?|photograph|visual|drawing)\b", re.IGNORECASE),
    "audio": re.compile(r"\b(?:audio|recordings?|speech|voice|sound|spoken|speaker)\b", re.IGNORECASE),
}
_HAVE = re.compile(r"\b(?:have|got|there is|here is|here are|with|my)\b", re.IGNORECASE)
_GIVEN = re.compile(
    r"^\W*(?:(?:hi|hello|hey|also|and|so|additionally|now|lastly|finally)\b[,!.]*\s+)*(?:(?:i|we)(?:['’]ve| have)(?! to\b)|(?:i|we) (?:also |just |recently )*"
    r"(?:have(?! to\b)|got|took|found|recorded|wrote|attached|received)|here(?:['’]s| is| are)|there(?:['’]s| is| are)|"
    r"this is|(?:the|my|this|these) (?:[\w-]+ ){1,4}(?:is|are)\b)",
    re.IGNORECASE,
)
"""How a sentence begins that says what there is, rather than what is wanted."""
_DOCUMENT = re.compile(
    r"\b(?:documents?|invoice|receipt|contract|form|letter|report|table|chart)\b", re.IGNORECASE
)
_IMAGE = re.compile(r"\b(?:images?|pictures?|photos?|visual|colou?rs?|scene|depicted|shown)\b", re.IGNORECASE)
_TEXT = re.compile(
    r"\b(?:texts?|passage|paragraph|article|transcri\w+|extracted|translat\w+|summar\w+|conversation|response|"
    r"sentences?|description|audio|speech|entities|classification|classified)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Swap:
    """A tool, and the one that is meant instead by what there is to work on.

    Attributes:
        after: the kind of what was made last; empty: nothing was made.
        cue: must be found in the clause, or in the whole request (`anywhere`).
        unless: must not be found in the clause.
    """

    tool: str
    instead: str
    after: str
    cue: re.Pattern[str]
    unless: re.Pattern[str] | None = None
    anywhere: bool = False


SWAPS = (
    Swap(
        "image-classification",
        "tabular-classification",
        "",
        re.compile(r"\b(?:image|picture|photo)\b[^.]{0,30}\btables?\b|\btab(?:le|ular) (?:image|data|file)", re.IGNORECASE),
        re.compile(r"\bobjects?\b", re.IGNORECASE),
        anywhere=True,
    ),
    Swap(
        "image-to-text",
        "text-generation",
        "text",
        re.compile(r"\b(?:descri|explain|caption)", re.IGNORECASE),
        re.compile(r"\b(?:images?|pictures?|photos?|scene)\b", re.IGNORECASE),
    ),
)


@dataclass(frozen=True, slots=True)
class Mention:
    """A clause, and the class of the tool that it speaks of (NONE: of none)."""

    clause: Clause
    tool: str
    sure: float = 0.0


def read(marked: Marked, brief: Brief, embedder: Embedder) -> list[Task]:
    """The tasks that a marked request speaks of; at least one."""
    reader = _Reader(marked, brief, load_model(), embedder)
    return reader.tasks()


class _Reader:
    def __init__(self, marked: Marked, brief: Brief, model: Model, embedder: Embedder) -> None:
        self._marked = marked
        self._specs = brief.specs
        self._weaver = Weaver(marked, brief.specs)
        self._model = model
        self._embedder = embedder
        self._families: dict[str, list[TaskSpec]] = {}
        for spec in brief.specs.values():
            self._families.setdefault(family(spec), []).append(spec)
        self._questions: list[str] = []
        self._asked: set[str] = set()
        self._planned: set[str] = set()
        self._translates = False

    def tasks(self) -> list[Task]:
        pieces = clauses(self._marked.text)[:MOST] or [Clause(self._marked.text)]
        odds = self._model.log_odds(self._embedder, [worded(piece.text, self._marked) for piece in pieces])
        rows = [dict(zip(self._model.names, map(float, row), strict=True)) for row in odds]
        made: list[str] = []
        mentions = []
        for piece, row in zip(pieces, rows, strict=True):
            mention = self._mention(piece, row, made)
            made += [kind for spec in self._families.get(mention.tool, ())[:1] for kind in spec.outputs]
            mentions.append(mention)
        self._translates = any(mention.tool == TRANSLATION for mention in mentions)
        for mention in _in_order(_once(mentions)):
            self._take(mention)
        if self._questions and QUESTION in self._families:
            self._ask("")
        if not self._weaver.tasks:
            self._guess(pieces, rows)
        return self._weaver.tasks

    def _mention(self, piece: Clause, row: dict[str, float], made: list[str]) -> Mention:
        kinds = {kind for kind, words in _KINDS.items() if words.search(piece.text)}
        kinds |= {mark.kind for mark in self._marked.within(piece.text) if mark.is_file} & _KINDS.keys()
        named = {mark.kind for mark in self._marked.marks.values() if mark.is_file} | {*made}
        if _GIVEN.match(piece.text):
            return Mention(piece, NONE)
        best, score = NONE, row[NONE]
        last = made[-1] if made else ""
        for name, specs in self._families.items():
            worth = row.get(name, -99.0) + self._fits(specs, kinds, named)
            if worth > score:
                best, score = name, worth
        best = self._by_what_it_shows(best, piece.text, last)
        return Mention(piece, best if score > LEAST else NONE, score)

    def _by_what_it_shows(self, tool: str, text: str, last: str) -> str:
        """Another tool of the same wish, where what is at hand is none of what the likeliest one takes."""
        for row in SWAPS:
            told = self._marked.text if row.anywhere else text
            if (
                row.tool == tool
                and row.instead in self._families
                and last == row.after
                and row.cue.search(told)
                and not (row.unless and row.unless.search(text))
            ):
                return row.instead
        return tool

    def _fits(self, specs: Sequence[TaskSpec], kinds: set[str], named: set[str]) -> float:
        takes = {arg.kind for spec in specs for arg in spec.inputs if arg.required}
        media = takes & MEDIA
        if len(specs) > 1 or not media:
            return 0.0
        worth = 0.0 if media & (named | kinds) else ABSENT
        return worth + (OTHER_KIND if kinds and not kinds & media else 0.0)

    def _take(self, mention: Mention) -> None:
        text = mention.clause.text
        asked = self._question_in(text)
        if mention.tool == NONE or (mention.tool == QUESTION and asked and _is_context(text)):
            if asked:
                self._questions.append(asked)
            self._weaver.give(text)
            return
        if mention.tool == QUESTION:
            if asked:
                self._questions.append(asked)
            if self._questions or QUESTION not in self._planned:
                self._ask(text)
            return
        if mention.tool in self._planned:
            self._weaver.give(text)
            return
        if self._questions and QUESTION in self._families and re.search(r"\banswers?\b", text, re.IGNORECASE):
            self._ask("")
        spoken = self._translation_of(mention)
        if spoken and self._families[mention.tool][0].outputs != ("text",):
            self._add(TRANSLATION, spoken)
            spoken = None
        self._add(mention.tool, text)
        if spoken:
            self._add(TRANSLATION, spoken)

    def _add(self, tool: str, text: str) -> None:
        self._planned.add(tool)
        self._weaver.add(self._families[tool][0], text)

    def _translation_of(self, mention: Mention) -> str | None:
        """How a clause asks in passing for another language ("an audio version in French"); None if it does not."""
        if TRANSLATION not in self._families or mention.tool == TRANSLATION or self._translates:
            return None
        phrase = _LANGUAGE.search(mention.clause.text)
        return f"translate it to {phrase[1] or phrase[2]}" if phrase and TRANSLATION not in self._planned else None

    def _quoted_questions(self) -> list[str]:
        return [mark.value for mark in self._marked.marks.values() if is_question(mark)]

    def _question_in(self, text: str) -> str | None:
        for mark in self._marked.within(text):
            if is_question(mark):
                return mark.value
        return arguments.question(text, place="the image") if text.rstrip().endswith("?") else None

    def _ask(self, text: str) -> None:
        """Plan an answer to each question that is open; where none was put yet, to the next one."""
        waiting = [q for q in dict.fromkeys(self._questions) if q not in self._asked]
        waiting = waiting or [q for q in self._quoted_questions() if q not in self._asked][:1] or [""]
        if waiting == [""] and QUESTION in self._planned:
            return
        for question in waiting[:3]:
            self._planned.add(QUESTION)
            self._asked.add(question)
            self._weaver.add(self._answerer(text, question), text, question)
        self._questions.clear()

    def _answerer(self, text: str, question: str) -> TaskSpec:
        """Which of the tools that answer is meant."""
        by_name = {spec.name.lower(): spec for spec in self._families[QUESTION]}
        find = lambda word: next((s for n, s in by_name.items() if word in n), None)  # noqa: E731
        document, visual = find("document"), find("visual")
        plain = next((s for s in self._families[QUESTION] if s not in (document, visual)), None)
        words = f"{text} {question}"
        last = self._weaver.made[-1].kind if self._weaver.made else ""
        if self._weaver.has("image"):
            if (
                document
                and _DOCUMENT.search(words)
                and not (_TEXT.search(text) and last == "text" and not _DOCUMENT.search(text))
            ):
                return document
            if visual and _IMAGE.search(words):
                return visual
            if plain and (_TEXT.search(text) or last == "text"):
                return plain
            if document and _DOCUMENT.search(self._marked.text) and not last:
                return document
            return visual or document or self._families[QUESTION][0]
        return plain or self._families[QUESTION][0]

    def _guess(self, pieces: Sequence[Clause], rows: Sequence[dict[str, float]]) -> None:
        """Where no clause is plain: the likeliest tool of any."""
        named = {mark.kind for mark in self._marked.marks.values() if mark.is_file}
        _, name, place = max(
            (row.get(name, -99.0) + self._fits(specs, set(), named), name, place)
            for place, row in enumerate(rows)
            for name, specs in self._families.items()
        )
        self._take(Mention(Clause(pieces[place].text), name))


def _is_context(text: str) -> bool:
    return bool(_HAVE.search(text)) and not re.search(
        r"\b(?:answer|find|ask|respond|know|tell)\b", text, re.IGNORECASE
    )


def _once(mentions: list[Mention]) -> list[Mention]:
    """Mentions without those that only announce what later sentences spell out step by step."""
    steps = Counter(mention.clause.sentence for mention in mentions if mention.tool != NONE)
    kept = []
    for place, mention in enumerate(mentions):
        number = mention.clause.sentence
        is_told_again = mention.tool not in (NONE, QUESTION) and any(
            later.tool == mention.tool and later.clause.sentence > number and steps[later.clause.sentence] > 1
            for later in mentions[place + 1 :]
        )
        kept.append(Mention(mention.clause, NONE) if is_told_again and steps[number] == 1 else mention)
    return kept


def _in_order(mentions: list[Mention]) -> list[Mention]:
    """Mentions in the order of doing: "…, after segmenting it" goes before what it follows."""
    ordered: list[Mention] = []
    planned: set[str] = set()
    for mention in mentions:
        if mention.clause.is_back and mention.tool in planned:
            mention = Mention(mention.clause, NONE)
        if mention.clause.is_before and mention.tool != NONE and ordered:
            ordered.insert(len(ordered) - 1, mention)
        else:
            ordered.append(mention)
        planned.add(mention.tool)
    return ordered
