"""Slot filling: the arguments of a task, from the inputs of a step.

    SlotFiller(TASKS["translation"], supply).args()     # {"text": ["<resource>-0"], "tgt_lang": ["fr"]}

Each argument gets a list of values; several values mean that the task is run several times.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jarvis_agent.core.errors import PlanError
from jarvis_agent.core.tasks.spec import MEDIA, Arg, Modality, TaskSpec
from jarvis_agent.planning.offline import extraction
from jarvis_agent.planning.offline.clauses import Step
from jarvis_agent.planning.offline.linking import PlanLinker
from jarvis_agent.planning.offline.masking import MARK, MaskedText
from jarvis_agent.planning.offline.phrases import bank_name, clause_class, wording
from jarvis_agent.planning.offline.sources import DETECTOR, FINDER, SPEAKER, StepInputs
from jarvis_agent.planning.offline.text_arguments import TextArguments
from jarvis_agent.planning.offline.tool_arguments import tool_argument
from jarvis_agent.planning.reading import asks_for_text

_NOUNS: Mapping[str, str] = {"image": "an image", "audio": "an audio file", "data": "a list of labels"}
SOUND, JOIN, COMPOSER = "extract-audio", "combine-video-audio", "text-to-audio"
"""The tasks that extract the sound of a video, add sound to it, and make a sound other than speech."""

RESIZER = "resize-image"
"""The task that needs one of its optional arguments."""


def add_task(
    linker: PlanLinker, masked: MaskedText, step: Step, spec: TaskSpec, text_after: str = ""
) -> list[str]:
    """Add the step's task to the plan, after those that it needs. Returns references to its results.

    Args:
        text_after: the rest of the request, which may name what the step leaves out.

    Raises:
        PlanError: an argument is missing, or the plan is full; nothing has been added then.
    """
    planned, known, left_out = len(linker.tasks), len(linker.discourse.things), linker.left_out
    reads = asks_for_text(masked.restored(step.text))
    linker.reads = reads if reads or spec.name == "image-to-text" else None
    supply = StepInputs(step, text_after, masked, linker)
    try:
        args = SlotFiller(spec, supply).args()
        linker.discourse.mention(step.text)
        return linker.emit(spec, args)
    except PlanError:
        del linker.tasks[planned:], linker.discourse.things[known:]
        linker.left_out = left_out
        raise


class SlotFiller:
    """Finds the arguments of one task."""

    def __init__(self, spec: TaskSpec, supply: StepInputs) -> None:
        self._spec = spec
        self._supply = supply
        self._text = supply.text
        self._found: dict[str, list[Any]] = {}
        self._texts = TextArguments(spec, supply, self._found)

    def args(self) -> dict[str, list[Any]]:
        """The values of each argument that the step gives.

        Raises:
            PlanError: an argument is missing that the task needs.
        """
        found = self._found
        for arg in sorted(self._spec.inputs, key=_turn):
            values = self._values(arg)
            if values:
                found[arg.name] = values
            elif arg.required:
                self._supply.check_last_result()
                wanted = arg.description or noun(arg.kind)
                raise PlanError(f"{self._spec.name} needs {wanted}, and none is named{self._example(arg)}")
        if bank_name(self._spec) == RESIZER and found.keys().isdisjoint({"width", "height"}):
            raise PlanError(f"{self._spec.name} needs a width or a height in pixels, and none is named")
        return {arg.name: found[arg.name] for arg in self._spec.inputs if arg.name in found}

    def _example(self, arg: Arg) -> str:
        """A question of the phrase bank, where the question is missing."""
        words = wording(self._spec)
        asked = (phrase for phrase in words.phrases if phrase.startswith(("how ", "what ", "which ")))
        is_question = words.text == "question" and arg.name == "text"
        return f"; ask for example “{example}?”" if is_question and (example := next(asked, "")) else ""

    def _values(self, arg: Arg) -> list[Any]:
        if self._spec.category == "tool" and bank_name(self._spec) is None and arg.kind not in MEDIA:
            return tool_argument(self._spec, arg, self._supply)
        if arg.name in ("src_lang", "tgt_lang"):
            return list(extraction.languages(self._text).get(arg.name, ()))
        if arg.name == "labels":
            return self._labels()
        if arg.kind == "data":
            return self._number(arg)
        if arg.kind in MEDIA:
            return self._media(arg)
        return self._texts.values(arg)

    def _media(self, arg: Arg) -> list[Any]:
        assert arg.kind != "any"
        if not arg.required:
            return self._supply.take_after(arg.name) or self._one_of_several_kinds(arg.kind)
        if arg.many:
            own = self._supply.take(self._supply.own(arg.kind)) or self._supply.values_elsewhere(arg.kind)
            return [own] if own else []
        if (maker := wording(self._spec).map) is not None:
            return self._control_map(maker)
        own = self._supply.own(arg.kind)
        if not own and arg.kind == "audio" and (videos := self._supply.own("video")):
            return self._supply.run(SOUND, self._supply.take(videos), self._spec.name)
        takes_several = sum(other.kind == arg.kind and other.required for other in self._spec.inputs) > 1
        values = self._supply.take(own[:1] if takes_several else own)
        values = (
            values or self._sounding(arg.kind) or self._supply.values_elsewhere(arg.kind, self._spec.name)
        )
        if values or clause_class(self._spec) is None:
            return values
        return self._supply.rendered(arg.kind, self._spec.name)

    def _sounding(self, kind: Modality) -> list[str]:
        """What a step that adds sound to a video says is to be heard: spoken words, or a sound."""
        if kind != "audio" or bank_name(self._spec) != JOIN:
            return []
        said = extraction.heard(self._text)
        if texts := self._supply.take_texts():
            return self._supply.run(COMPOSER if said else SPEAKER, texts, self._spec.name)
        return self._supply.run(COMPOSER, [said], self._spec.name) if said else []

    def _one_of_several_kinds(self, kind: Modality) -> list[str]:
        """A file for a task that takes one of each kind, whichever there are, and needs none of them."""
        if any(arg.kind in MEDIA and arg.required for arg in self._spec.inputs):
            return []
        return self._supply.take(self._supply.own(kind)[:1])

    def _number(self, arg: Arg) -> list[Any]:
        """A number, or a box: as the step says it, else the boxes of what is found in the image."""
        said = extraction.amount(arg.name, self._text)
        if said is not None or arg.name != "box":
            return [] if said is None else [said]
        if extraction.REFERS_TO_FOUND.search(self._text) and (
            known := self._supply.boxes((DETECTOR, FINDER))
        ):
            return list(known.values)
        images, wanted = self._found.get("image", []), extraction.cut_out(self._text)
        if wanted and self._supply.offers(FINDER):
            return self._supply.run(FINDER, images, self._spec.name, labels=[[wanted]])
        return self._supply.run(DETECTOR, images, self._spec.name)

    def _control_map(self, maker: str) -> list[str]:
        """A control map: as it is named or was made, else made from the image that the step names."""
        spec = self._supply.offers(maker)
        nouns = rf"\b(?:{'|'.join(wording(spec).made)})" if spec else rf"\b{maker.partition('-')[0]}"
        own = self._supply.own("image")
        if own:
            noun = re.search(nouns, self._text, re.IGNORECASE)
            after = [c for c in own if noun and self._text.find(c) > noun.start()]
            values = self._supply.take((after or own)[:1])
            called = rf"{nouns}(?: map| image| picture| file)?\s+{MARK}"
            is_map = self._is_said_to_be(nouns, values[0]) or bool(re.search(called, self._text, re.I))
        else:
            made = self._supply.made_by(maker)
            thing = made or self._supply.elsewhere("image")
            values = list(thing.values) if thing else []
            asked = thing is not None and re.search(nouns, thing.asked, re.IGNORECASE)
            is_map = made is not None or bool(asked)
            is_map = is_map or any(self._is_said_to_be(nouns, value) for value in values)
        return values if is_map or not values else self._supply.run(maker, values, self._spec.name)

    def _is_said_to_be(self, nouns: str, file: str) -> bool:
        """Whether a file's name, or the sentence that names it, says that it is such a map."""
        is_ = r"(?:already |which |that )*(?:is|has|holds|shows|contains|that['’]s)"
        after = rf"{MARK}\W+{is_}\b[\w -]{{0,20}}{nouns}"
        said = rf"{nouns}[\w ]{{0,20}}\W+(?:is|called|named)\W+{MARK}|{after}"
        known = rf"\b(?:an?|this|my) (?:[\w-]+ )?{nouns}(?!\w* (?:of|from|in) (?:{MARK}|the|it))"
        around = f"{self._supply.context} {self._text}"
        return bool(
            re.search(nouns, file, re.I)
            or re.search(said, around, re.I)
            or re.search(known, self._supply.context, re.I)
        )

    def _labels(self) -> list[Any]:
        for character in self._supply.left:
            if self._supply.mark(character).role == "labels":
                listed = self._supply.take([character])[0]
                return [extraction.split_labels(listed) or [listed]]
        if quoted := extraction.quoted_labels(self._text):
            return [self._supply.take(quoted)]
        said = extraction.labels(self._text)
        if bank_name(self._spec) == FINDER and (several := extraction.things_sought(self._text)):
            return [several]
        if not said and bank_name(self._spec) == FINDER and (sought := extraction.thing_sought(self._text)):
            return [[sought]]
        return [said] if said else []


def _turn(arg: Arg) -> int:
    """Labels are found first, files before texts: a file that is left over can be turned into a text."""
    if arg.kind == "data":
        return 0 if arg.many else 3
    if arg.kind in MEDIA:
        return 2 if arg.required else 1
    return 3


def noun(kind: str) -> str:
    """A kind as messages name it ("an image")."""
    return _NOUNS.get(kind, f"a {kind}")
