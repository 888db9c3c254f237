"""Coreference: what a request has mentioned so far, and what "it" or "the recording" refers to.

    discourse = Discourse(masked, request)
    discourse.mention(step_text)                 # the files and texts that a step names
    discourse.make(spec, ["<resource>-0"])       # what a task makes
    discourse.resolve("audio", "transcribe the recording")     # the Referent that is meant, or None

What the words do not decide, recency does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
_PLACES = {"first": 0, "second": 1, "third": 2, "fourth": 3, "last": -1}
ORDINAL = rf"(?:{'|'.join(_PLACES)})"
LABELLING = frozenset(
    {
        "text-classification",
        "zero-shot-classification",
        "token-classification",
        "question-answering",
        "table-question-answering",
        "document-question-answering",
        "visual-question-answering",
        "sentence-similarity",
    }
)
"""The tasks that say something of a text or a picture, after which "it" still means that."""


@dataclass(frozen=True, slots=True)
class Referent:
    """A file, a text or a result that an argument may refer to.

    Attributes:
        kind: what it is.
        values: file names, texts or references to tasks; several if they were named together.
        maker: the task that made it; None if it was given.
        is_view: a picture that shows what was found in another one (boxes, masks, edges, depth), or what was
            found of a text (its sentiment); "it" and "the image" mean the other one.
        from_turn: whether it is from an earlier turn of the chat.
        asked: the request of that turn.
    """

    kind: Modality
    values: tuple[str, ...]
    maker: TaskSpec | None = None
    is_view: bool = False
    from_turn: bool = False
    asked: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether it was given, or is what its task is for, rather than a by-product of its data."""
        return self.maker is None or self.maker.outputs[0] == self.kind

    def is_called(self, text: str) -> bool:
        """Whether the text speaks of it by a noun for what its task makes ("the recording")."""
        if self.maker is None:
            return False
        nouns = "|".join(re.escape(noun) for noun in wording(self.maker).made)
        return bool(nouns) and bool(
            re.search(rf"\b{_DETERMINER}\s+(?:\w+[\s-]+){{0,2}}?(?:{nouns})s?\b", text, re.IGNORECASE)
        )


class Discourse:
    """The referents that were mentioned, in order.

    Attributes:
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
    def at_hand(self) -> set[Modality]:
        """The kinds of files that came with the request unnamed, and of those of the last turn with any."""
        turn = next((turn for turn in reversed(self._turns) if turn.resources), None)
        return {mark.kind for mark in self._unnamed} | {r.kind for r in (turn.resources if turn else ())}

    def mention(self, text: str) -> None:
        """Note the files and texts that a piece of the request names, those of one kind together."""
        marks = [mark for mark in self._masked.within(text) if mark.role not in ("labels", "question")]
        for kind in dict.fromkeys(mark.kind for mark in marks):
            values = tuple(mark.value for mark in marks if mark.kind == kind)
            self.things.append(Referent(kind, values))

    def make(self, spec: TaskSpec, references: Iterable[str]) -> None:
        """Note what a task makes."""
        values = tuple(references)
        for kind in spec.outputs:
            if kind != "any":
                self.things.append(Referent(kind, values, spec, is_view=_makes_views(spec, kind)))

    def join(self, kind: Modality, values: list[str]) -> None:
        """Note that things of a kind that were made one by one are wanted together."""
        made = next(
            (t for t in reversed(self.things) if t.kind == kind and t.maker and set(t.values) <= set(values)),
            None,
        )
        if made is not None and len(values) > 1:
            self.things.append(replace(made, values=tuple(values)))

    def note_fed(self, spec: TaskSpec, args: Mapping[str, list[Any]]) -> None:
        """Note what a task works on."""
        values = args.get("text") if wording(spec).text == "content" else None
        self.fed = Referent("text", tuple(values)) if values else None

    def has(self, kind: Modality, text_after: str) -> bool:
        """Whether the request, or the chat before it, speaks of anything of that kind."""
        return bool(self.resolve(kind, "") or self.unmentioned(kind, text_after) or self.earlier(kind, ""))

    def made_last(self, kind: Modality) -> Referent | None:
        """The latest thing of a kind that a task made, views too."""
        return next((thing for thing in reversed(self.things) if thing.maker and thing.kind == kind), None)

    def resolve(self, kind: Modality, text: str, *, task: str = "") -> Referent | None:
        """The thing of a kind that a step means by its words, else the latest one; None if there is none.

        Args:
            task: what the step is for; its own result is not what it works on.
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
            earlier = self.earlier(kind, text)
            if earlier is not None:
                return earlier
        return self._latest(known, text)

    def unmentioned(self, kind: Modality, text_after: str) -> Referent | None:
        """What the request names later, or a file that came with it without being named."""
        marks = [mark for mark in self._masked.within(text_after) if mark.fits(kind)]
        marks = marks[:1] or [mark for mark in self._unnamed if mark.fits(kind)]
        return Referent(kind, tuple(mark.value for mark in marks)) if marks else None

    def earlier(self, kind: Modality, text: str) -> Referent | None:
        """The last thing of a kind in earlier turns of the chat, by preference in one that the words name."""
        turns = self._turns[::-1]
        if (
            kind == "text"
            and turns
            and _RE.POINTS.search(text)
            and _candidates_in_words(turns[0])
            and not _RE.QUESTION.search(turns[0].request)
        ):
            return Referent("text", (without_references(turns[0].answer),), from_turn=True)
        adjective = re.search(
            r"\b(?:the|that)\s+(\w+)\s+(?:image|picture|map|photo|video|text|audio)\b", text, re.IGNORECASE
        )
        candidates = self._earlier_things
        if adjective is not None:
            candidates = sorted(
                candidates, key=lambda things: adjective[1].lower() not in things[0].asked.lower()
            )
        for things in candidates:
            if found := [thing for thing in things if thing.kind == kind]:
                values = tuple(dict.fromkeys(value for thing in reversed(found) for value in thing.values))
                one = _one_of(values, text)
                if one is None and not _RE.PLURAL.search(text):
                    return found[0]
                return replace(found[0], values=(one,) if one else values)
        if kind == "text" and turns and (_RE.EARLIER.search(text) or _candidates_in_words(turns[0])):
            return Referent("text", (without_references(turns[0].answer),), from_turn=True)
        return None

    @cached_property
    def _earlier_things(self) -> list[tuple[Referent, ...]]:
        """The things of each earlier turn that has any, the last turn first."""
        return [things for turn in reversed(self._turns) if (things := tuple(_things_of(turn)))]

    def _latest(self, known: list[Referent], text: str) -> Referent | None:
        plain = [thing for thing in known if not thing.is_view]
        last = known[-1].maker if known else None
        if last is not None and last.category == "control" and _RE.TURNED.search(text):
            return known[-1]
        found = next(reversed(known if _RE.VIEW.search(text) or not plain else plain), None)
        return self._whole(found, text) if found else None

    def _whole(self, thing: Referent, text: str) -> Referent:
        """A thing with its like where words are plural ("both captions"), or one of these ("the first")."""
        like = [t for t in self.things if t.kind == thing.kind and t.maker == thing.maker]
        values = tuple(dict.fromkeys(value for t in like for value in t.values))
        one = _one_of(values, text)
        if one is None and not _RE.PLURAL.search(text):
            return thing
        return replace(thing, values=(one,) if one else values)


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


def _one_of(values: Sequence[str], text: str) -> str | None:
    """The value that a step means by its place among several."""
    match = _RE.ONE_OF.search(text)
    place = _PLACES[match[1].lower()] if match else 0
    return values[place] if match and place < len(values) else None


def _candidates_in_words(turn: ChatTurn) -> bool:
    """Whether a turn made no file, so that its answer is all that it came to."""
    return bool(turn.answer) and all(resource.name in turn.request for resource in turn.resources)


def _things_of(turn: ChatTurn) -> Iterator[Referent]:
    """The things of a turn, of each kind the latest first."""
    for resource in reversed(turn.resources):
        is_text = resource.kind == "text" and resource.text is not None
        value = without_references(resource.text or "") if is_text else str(resource.path or resource.name)
        yield Referent(resource.kind, (value,), from_turn=True, asked=turn.request)
    for name in reversed(mentions(turn.request)):
        kind = kind_by_name(name)
        if kind in ("image", "audio", "video"):
            yield Referent(kind, (name,), from_turn=True, asked=turn.request)
