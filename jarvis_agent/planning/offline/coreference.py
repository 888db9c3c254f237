"""Coreference: what "it" or "the recording" refers to.

    discourse = Discourse(masked, request)
    discourse.mention(step_text)                 # adds the files and texts that a step names
    discourse.make(spec, ["<resource>-0"])       # adds the results of a task
    discourse.resolve("audio", "transcribe the recording")     # the Referent, or None

Where the words do not decide, the latest referent is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from jarvis_agent.core.context import ChatTurn
from jarvis_agent.core.file_mentions import mentions
from jarvis_agent.core.tasks.spec import Modality, TaskSpec
from jarvis_agent.media.detect import kind_by_name
from jarvis_agent.planning.inputs import PlanRequest
from jarvis_agent.planning.offline.masking import Entity, MaskedText, spelling, without_references
from jarvis_agent.planning.offline.patterns import Patterns, word
from jarvis_agent.planning.offline.phrases import bank_name, wording

_RE = Patterns("coreference")

_DETERMINER = word("coreference.DETERMINER")
_ORDINALS = {"first": 0, "second": 1, "third": 2, "fourth": 3, "last": -1}
_ADJECTIVE = re.compile(
    r"\b(?:the|that)\s+(\w+)\s+(?:image|picture|map|photo|video|text|audio)\b", re.IGNORECASE
)
LABELLING = frozenset(
    {
        *("text-classification", "zero-shot-classification", "token-classification", "sentence-similarity"),
        *("question-answering", "table-question-answering"),
        *("document-question-answering", "visual-question-answering"),
    }
)
"""Tasks that label or describe their input; "it" in the next step still means that input."""


@dataclass(frozen=True, slots=True)
class Referent:
    """A file, a text or a result that an argument may refer to.

    Attributes:
        kind: its kind.
        values: file names, texts or references to tasks; several if they were named together.
        maker: the task that made it; None if it was given.
        is_view: whether it shows an analysis of something else (boxes, masks, depth, a sentiment); "it" and
            "the image" mean the thing analysed.
        asked: for a referent of an earlier turn of the chat, the request of that turn.
    """

    kind: Modality
    values: tuple[str, ...]
    maker: TaskSpec | None = None
    is_view: bool = False
    asked: str = ""

    def is_called(self, text: str) -> bool:
        """Whether the text names it by a noun for its task's result ("the recording")."""
        nouns = "|".join(map(re.escape, wording(self.maker).made)) if self.maker else ""
        called = rf"\b{_DETERMINER}\s+(?:\w+[\s-]+){{0,2}}?(?:{nouns})s?\b"
        return bool(nouns and re.search(called, text, re.IGNORECASE))


class Discourse:
    """The referents of a request, in the order of their mention.

    Attributes:
        things: the referents so far.
        fed: the text that the last task worked on, if it works on one.
    """

    def __init__(self, masked: MaskedText, request: PlanRequest) -> None:
        self.things: list[Referent] = []
        self.fed: Referent | None = None
        self._masked = masked
        named = {mark.value for mark in masked.marks.values() if mark.is_file}
        attached = [Entity(file.kind, spelling(file), is_file=True) for file in request.files]
        self._unnamed = [m for m in attached if m.value not in named and m.value not in request.text]
        self._turns = request.turns

    @property
    def attached(self) -> set[str]:
        """The attached files that the request does not name."""
        return {mark.value for mark in self._unnamed}

    @property
    def at_hand(self) -> set[Modality]:
        """The kinds of attached files that the request does not name, and of the last turn's files."""
        turn = next((turn for turn in reversed(self._turns) if turn.resources), None)
        return {mark.kind for mark in self._unnamed} | {r.kind for r in (turn.resources if turn else ())}

    def mention(self, text: str) -> None:
        """Add the files and texts that a piece of the request names; those of one kind are one referent."""
        marks = [mark for mark in self._masked.within(text) if mark.role not in ("labels", "question")]
        for kind in dict.fromkeys(mark.kind for mark in marks):
            values = tuple(mark.value for mark in marks if mark.kind == kind)
            self.things.append(Referent(kind, values))

    def make(self, spec: TaskSpec, references: Iterable[str]) -> None:
        """Add the results of a task."""
        values = tuple(references)
        for kind in spec.outputs:
            if kind != "any":
                self.things.append(Referent(kind, values, spec, is_view=_makes_views(spec, kind)))

    def join(self, kind: Modality, values: list[str]) -> None:
        """Make one referent of results of a kind that were added one by one."""
        made = self.made_last(kind)
        if made is not None and len(values) > 1:
            self.things.append(replace(made, values=tuple(values)))

    def note_fed(self, spec: TaskSpec, args: Mapping[str, list[Any]]) -> None:
        """Note the text that a task works on."""
        values = args.get("text") if wording(spec).text == "content" else None
        self.fed = Referent("text", tuple(values)) if values else None

    def has(self, kind: Modality, text_after: str) -> bool:
        """Whether the request or the chat has anything of that kind."""
        return bool(self.resolve(kind, "") or self.unmentioned(kind, text_after) or self.earlier(kind, ""))

    def made_last(self, kind: Modality) -> Referent | None:
        """The latest result of that kind, views included."""
        return next((thing for thing in reversed(self.things) if thing.maker and thing.kind == kind), None)

    def resolve(self, kind: Modality, text: str, *, task: str = "") -> Referent | None:
        """The thing of a kind that the words of a step name, else the latest one, or None.

        Args:
            task: the task of the step; a view that it made itself is not its input.
        """
        known = [thing for thing in self.things if _fits(thing, kind)]
        called = next((thing for thing in reversed(known) if thing.is_called(text)), None)
        if called is not None and called.is_view and called.maker is not None and called.maker.name == task:
            called = None
        if called is not None:
            return self._whole(called, text)
        if _RE.ORIGINAL.search(text) and (given := next((t for t in known if t.maker is None), None)):
            return given
        if _RE.EARLIER.search(text) and not any(thing.maker for thing in known):
            return self.earlier(kind, text) or self._latest(known, text)
        return self._latest(known, text)

    def unmentioned(self, kind: Modality, text_after: str) -> Referent | None:
        """What the request names later, else an attached file that it does not name."""
        marks = [mark for mark in self._masked.within(text_after) if mark.fits(kind)]
        marks = marks[:1] or [mark for mark in self._unnamed if mark.fits(kind)]
        return Referent(kind, tuple(mark.value for mark in marks)) if marks else None

    def earlier(self, kind: Modality, text: str) -> Referent | None:
        """The latest thing of a kind in earlier turns of the chat, preferably one that the words name."""
        last = self._turns[-1] if self._turns else None
        answer = Referent("text", (without_references(last.answer),)) if last and kind == "text" else None
        is_only_answer = last is not None and _made_no_file(last)
        is_statement = last is not None and not _RE.QUESTION.search(last.request)
        if answer and is_only_answer and is_statement and _RE.POINTS.search(text):
            return answer
        candidates = self._earlier_things
        if adjective := _ADJECTIVE.search(text):
            candidates = sorted(candidates, key=lambda t: adjective[1].lower() not in t[0].asked.lower())
        for things in candidates:
            if found := [thing for thing in things if thing.kind == kind]:
                values = tuple(dict.fromkeys(value for thing in reversed(found) for value in thing.values))
                return _chosen(found[0], values, text)
        return answer if is_only_answer or _RE.EARLIER.search(text) else None

    @cached_property
    def _earlier_things(self) -> list[tuple[Referent, ...]]:
        """The things of each earlier turn that has any, the latest turn first."""
        return [things for turn in reversed(self._turns) if (things := tuple(_things_of(turn)))]

    def _latest(self, known: list[Referent], text: str) -> Referent | None:
        plain = [thing for thing in known if not thing.is_view]
        last = known[-1].maker if known else None
        if last is not None and last.category == "control" and _RE.TURNED.search(text):
            return known[-1]
        found = next(reversed(known if _RE.VIEW.search(text) or not plain else plain), None)
        return self._whole(found, text) if found else None

    def _whole(self, thing: Referent, text: str) -> Referent:
        """A thing with others of its kind and maker where words are plural ("both captions")."""
        like = [t for t in self.things if t.kind == thing.kind and t.maker == thing.maker]
        return _chosen(thing, tuple(dict.fromkeys(value for t in like for value in t.values)), text)


def _makes_views(spec: TaskSpec, kind: Modality) -> bool:
    if spec.category == "tool":
        return False
    if kind == "text":
        return bank_name(spec) in LABELLING
    if kind == "table":
        return spec.outputs[0] == "table"
    if kind != "image":
        return False
    analyses = "data" in spec.outputs or bank_name(spec) == "depth-estimation"
    return analyses or (spec.category == "control" and spec.required == ("image",))


def _fits(thing: Referent, kind: Modality) -> bool:
    if thing.maker is None:
        return any(Entity(thing.kind, value).fits(kind) for value in thing.values)
    return thing.kind == kind


def _chosen(thing: Referent, values: tuple[str, ...], text: str) -> Referent:
    """A thing with the one of several values that an ordinal means, or with all of them for a plural."""
    match = _RE.ONE_OF.search(text)
    place = _ORDINALS[match[1].lower()] if match else 0
    if match and place < len(values):
        return replace(thing, values=(values[place],))
    return replace(thing, values=values) if _RE.PLURAL.search(text) else thing


def _made_no_file(turn: ChatTurn) -> bool:
    """Whether the answer of a turn is its only result."""
    return bool(turn.answer) and all(resource.name in turn.request for resource in turn.resources)


def _things_of(turn: ChatTurn) -> Iterator[Referent]:
    """The things of a turn, the latest of each kind first."""
    for resource in reversed(turn.resources):
        is_text = resource.kind == "text" and resource.text is not None
        value = without_references(resource.text or "") if is_text else str(resource.path or resource.name)
        yield Referent(resource.kind, (value,), asked=turn.request)
    for name in reversed(mentions(turn.request)):
        kind = kind_by_name(name)
        if kind in ("image", "audio", "video"):
            yield Referent(kind, (name,), asked=turn.request)
