"""The inputs of a step: its own files and texts, what it refers to, and what can be made from these.

    supply = StepInputs(Step("translate the summary of \\ue000"), "", masked, linker)
    supply.made_of_files("translation")      # plans the summary and returns the reference to it

Inputs are looked for in this order: what the step names; what its words refer to, or the latest result or
file; what the request names later, or what is attached; earlier turns of the chat.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from jarvis_agent.core.errors import PlanError
from jarvis_agent.core.tasks.spec import Modality, TaskSpec
from jarvis_agent.planning.offline.clauses import Step
from jarvis_agent.planning.offline.coreference import LABELLING, Referent
from jarvis_agent.planning.offline.extraction import QUERY
from jarvis_agent.planning.offline.linking import PlanLinker
from jarvis_agent.planning.offline.masking import MARK, Entity, MaskedText
from jarvis_agent.planning.offline.phrases import bank_name, wording

BRIDGES: Mapping[Modality, str] = {"image": "image-to-text", "audio": "automatic-speech-recognition"}
"""The task that turns a kind of file into text, where a text is needed and only a file is given."""

RENDERERS: Mapping[str, str] = {"image": "text-to-image", "audio": "text-to-speech"}
"""The task that makes a kind of file from a text."""

SPEAKER = "text-to-speech"

TWINS: Mapping[str, str] = {"seg-control": "image-segmentation", "depth-control": "depth-estimation"}
"""By task that makes a control map: another task whose image is such a map too."""

_OF_WHOLE = re.compile(r"\b(?:it|its)\b|^(?:give|show|tell) me the\b", re.IGNORECASE)
_GOES_BY = re.compile(
    r"\b(?:based on|according to|accordance with|reflect\w*|using|mentioned|described|given|from|as)\b",
    re.IGNORECASE,
)
"""Words before the text that says how something is to be changed."""

DETECTOR, FINDER = "object-detection", "zero-shot-object-detection"
"""The tasks that find boxes: of any known thing, and of the things that the step names."""


class StepInputs:
    """The inputs that one step can use. Each of its own marks is taken once."""

    def __init__(self, step: Step, text_after: str, masked: MaskedText, plans: PlanLinker) -> None:
        self.text = step.text
        self.context = step.context
        self._is_beside = step.is_beside
        self._text_after = text_after
        self._masked = masked
        self._plans = plans
        self._discourse = plans.discourse
        self._left = [character for character in dict.fromkeys(step.text) if character in masked.marks]

    def own(self, kind: Modality) -> list[str]:
        """The step's own marks that fit this kind and are not taken yet."""
        return [c for c in self._left if self.mark(c).fits(kind)]

    @property
    def left(self) -> list[str]:
        """The step's own marks that are not taken yet."""
        return list(self._left)

    def mark(self, character: str) -> Entity:
        """The entity of a mark."""
        return self._masked.marks[character]

    def take(self, characters: list[str]) -> list[str]:
        """Take marks; returns their values."""
        self._left = [c for c in self._left if c not in characters]
        return [self.mark(c).value for c in characters]

    def take_texts(self) -> list[str]:
        """Take the step's own texts; returns them."""
        return self.take(self.own("text"))

    def take_after(self, word: str) -> list[str]:
        """Take the file that follows a word ("with the mask m.png")."""
        found = re.search(rf"\b{re.escape(word)}\b[^{MARK[1:-1]}]{{0,20}}({MARK})", self.text, re.IGNORECASE)
        return self.take([found[1]]) if found and found[1] in self._left else []

    def restored(self, text: str) -> str:
        """A piece of the step with the values in place of its marks."""
        return self._masked.restored(text)

    def elsewhere(self, kind: Modality, task: str = "") -> Referent | None:
        """What the step refers to, or the nearest thing of that kind."""
        if known := self._discourse.resolve(kind, self.text, task=task):
            return known
        new = self._discourse.unmentioned(kind, self._text_after) or self._discourse.earlier(kind, self.text)
        if new is not None:
            self._discourse.things.append(new)
        return new

    def text_beside(self, spec: TaskSpec) -> list[str]:
        """The input of the step before, where this step is about it too and not about the result."""
        fed, made = self._discourse.fed, self._discourse.made_last("text")
        if fed is None or (made is not None and made.is_called(self.text)) or bank_name(spec) == SPEAKER:
            return []
        is_summary = made is not None and made.maker is not None and bank_name(made.maker) == "summarization"
        of_whole = is_summary and bank_name(spec) in LABELLING and _OF_WHOLE.search(self.text)
        return list(fed.values) if self._is_beside or of_whole else []

    def made_before(self, kind: Modality) -> list[str]:
        """The values of the thing that the step refers to, among those mentioned before."""
        known = self._discourse.resolve(kind, self.text)
        return list(known.values) if known else []

    def texts_before(self) -> list[str]:
        """Texts made or given before the step, the latest first, then those named after it."""
        known = [thing for thing in reversed(self._discourse.things) if thing.kind == "text"]
        if after := self._discourse.unmentioned("text", self._text_after):
            known.append(after)
        return list(dict.fromkeys(value for thing in known for value in thing.values))

    def text_just_made(self, text: str) -> list[str]:
        """The text of a task on which a step is based ("based on the summary")."""
        made = self._discourse.made_last("text")
        last = next((t for t in reversed(self._discourse.things) if t.maker), None)
        if made is None or not (made.is_called(text) or (made is last and _GOES_BY.search(text))):
            return []
        return list(made.values)

    def question_before(self) -> str | None:
        """The question that the sentence before the step quotes."""
        marks = [*self._masked.within(self.context), *self._masked.marks.values()]
        questions = [
            m.value for m in marks if not m.is_file and m.value.rstrip(" .'\"").endswith(("?", "？"))
        ]
        asked = [value for task in self._plans.tasks for value in task.args.values()]
        return next((value for value in questions if value not in asked), None)

    def query_before(self) -> str | None:
        """The text that the sentence before the step introduces as a query or a question."""
        for character in re.findall(MARK, self.context):
            if QUERY.search(self.context[: self.context.index(character)]):
                return self.mark(character).value
        return None

    def boxes(self, makers: Collection[str]) -> Referent | None:
        """The latest boxes of one of these tasks, in this request or an earlier turn."""
        found = (thing for thing in reversed(self._discourse.things) if thing.kind == "data" and thing.maker)
        made = next((thing for thing in found if thing.maker and bank_name(thing.maker) in makers), None)
        return made or self._discourse.earlier("data", self.text)

    def made_by(self, maker: str) -> Referent | None:
        """The latest image of the task of that name, or of its twin."""
        makers = (maker, TWINS.get(maker))
        made = (t for t in reversed(self._discourse.things) if t.kind == "image" and t.maker)
        return next((t for t in made if t.maker and bank_name(t.maker) in makers), None)

    def values_elsewhere(self, kind: Modality, task: str = "") -> list[str]:
        """The values of `elsewhere`; none if there is nothing."""
        thing = self.elsewhere(kind, task)
        return list(thing.values) if thing else []

    def check_last_result(self) -> None:
        """Raise PlanError if the task of the step before was left out."""
        self._plans.check(self._discourse.things[-1:])

    def offers(self, name: str) -> TaskSpec | None:
        """The offered task of that name in the phrase bank."""
        return self._plans.offered.get(name)

    def run(self, name: str, values: list[str], needed_for: str, **more: list[Any]) -> list[str]:
        """Plan a task for each of the values; returns references to the results.

        Args:
            values: of its first required argument; `more` are values of others.

        Raises:
            PlanError: the task is not offered.
        """
        spec = self.offers(name)
        if spec is None or not spec.inputs:
            raise PlanError(f"{needed_for} needs {self._plans.missing(name)}")
        return self._plans.emit(spec, {principal(spec): values, **more})

    def made_of_files(self, needed_for: str, *, only_named: bool = False) -> list[str]:
        """Texts made from the step's own files that are not taken yet, by the tasks that its words name.

        Args:
            needed_for: the task that needs the texts.
            only_named: skip files for which the words name no task.
        """
        made: list[str] = []
        for character in self.left:
            kind = self.mark(character).kind
            maker = self._maker_named_before(character, needed_for)
            if maker is None and (only_named or kind not in BRIDGES):
                continue
            values = self.take([character])
            if kind in BRIDGES and (maker is None or kind_taken(maker) != kind):
                values = self._text_of(kind, values, needed_for)
            made += self._plans.emit(maker, {principal(maker): values}) if maker else values
        self._discourse.join("text", made)
        return made

    def rendered(self, kind: Modality, needed_for: str) -> list[str]:
        """An image or a recording made from a text, where no file of that kind is given."""
        texts = self.texts_before()[:1]
        if not texts or RENDERERS.get(kind) not in self._plans.offered:
            return []
        return self.run(RENDERERS[kind], texts, needed_for)

    def made_elsewhere(self, needed_for: str) -> list[str]:
        """Texts made from a file that the step does not name."""
        for kind in BRIDGES:
            if values := self.values_elsewhere(kind):
                return self._text_of(kind, values, needed_for)
        return []

    def _text_of(self, kind: Modality, files: list[str], needed_for: str) -> list[str]:
        """Texts made from files. For a task that works on a text, an image is read, not described."""
        spec = self.offers(needed_for)
        is_read = kind == "image" and spec is not None and wording(spec).text == "content"
        return self.run(BRIDGES[kind], files, needed_for, **({"text": ["read"]} if is_read else {}))

    def _maker_named_before(self, character: str, needed_for: str) -> TaskSpec | None:
        """The task whose result the words before a file name ("the summary of …")."""
        before = self.text[: self.text.index(character)]
        noun = re.search(r"([\w-]+) (?:of|from|in|for)(?: the [\w ]{0,30})?\s*$", before)
        if noun is None:
            return None
        kind = self.mark(character).kind
        for spec in self._plans.offered.values():
            if spec.name == needed_for or not spec.makes("text") or len(spec.required) != 1:
                continue
            if kind_taken(spec) in (kind, "text") and noun[1].lower() in wording(spec).made:
                return spec
        return None


def kind_taken(spec: TaskSpec) -> str:
    """The kind of the first required argument."""
    return next(arg.kind for arg in spec.inputs if arg.name == principal(spec))


def principal(spec: TaskSpec) -> str:
    """The name of the first required argument."""
    return next((arg.name for arg in spec.inputs if arg.required), spec.inputs[0].name)
