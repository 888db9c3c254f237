"""The arguments of a task, found in what a step supplies.

    ArgumentFiller(TASKS["translation"], supply).args()     # {"text": ["<resource>-0"], "tgt_lang": ["fr"]}

Each argument gets a list of values; several values mean that the task is run several times.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jarvis_agent.core.errors import PlanError
from jarvis_agent.core.tasks.spec import MEDIA, Arg, Modality, TaskSpec
from jarvis_agent.planning.offline import extraction
from jarvis_agent.planning.offline.clauses import without_lead_in
from jarvis_agent.planning.offline.masking import MARK
from jarvis_agent.planning.offline.phrases import bank_name, clause_class, wording
from jarvis_agent.planning.offline.sources import DETECTOR, FINDER, SPEAKER, Supply
from jarvis_agent.planning.offline.tool_arguments import tool_argument

_NOUNS: Mapping[str, str] = {
    "text": "a text",
    "image": "an image",
    "audio": "an audio file",
    "video": "a video",
    "table": "a table",
    "data": "a list of labels",
}
_CALLED: Mapping[str, str] = {"image": "the image", "audio": "the recording", "video": "the video"}
SOUND = "extract-audio"
"""The task that gives the sound of a video to what takes audio."""
JOIN, COMPOSER = "combine-video-audio", "text-to-audio"
"""The task that adds sound to a video, and the one that makes a sound that is no speech."""


class ArgumentFiller:
    """Finds the arguments of one task."""

    def __init__(self, spec: TaskSpec, supply: Supply) -> None:
        self._spec = spec
        self._supply = supply
        self._text = supply.text
        self._wording = wording(spec)
        self._others: list[str] = []
        self._pair: list[str] = []
        self._found: dict[str, list[Any]] = {}

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
                raise PlanError(f"{self._spec.name} needs {_needed(arg)}, and none is named")
        return {arg.name: found[arg.name] for arg in self._spec.inputs if arg.name in found}

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
        if arg.many:
            return [self._others] if self._others else []
        return self._texts(arg)

    def _media(self, arg: Arg) -> list[Any]:
        assert arg.kind != "any"
        if not arg.required:
            return self._supply.take_after(arg.name) or self._one_of_several_kinds(arg.kind)
        if arg.many:
            own = self._supply.take(self._supply.own(arg.kind)) or self._supply.values_elsewhere(arg.kind)
            return [own] if own else []
        if self._wording.map is not None:
            return self._control_map(self._wording.map)
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
        if texts := self._take_texts():
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
        if extraction.refers_to_found(self._text) and (known := self._supply.boxes((DETECTOR, FINDER))):
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

    def _texts(self, arg: Arg) -> list[str]:
        role = self._wording.text
        if role == "content" and clause_class(self._spec) and self._takes_two_texts():
            return self._one_of_pair()
        if not arg.required:
            optional = {"instruction": self._instruction, "prompt": self._scene}
            return optional[role]() if role in optional else []
        if arg.name != "text":
            return self._content()
        by_role = {
            "question": self._question_with_text,
            "prompt": self._scene if self._spec.arg("image") and not self._wording.map else self._prompt,
            "request": self._request,
            "instruction": self._instruction,
            "wish": self._wish,
        }
        values = by_role.get(role, self._content)()
        if not any(other.many and other.kind == "text" for other in self._spec.inputs):
            return values
        query = next((value for value in values if self._role_of(value) == "question"), None)
        if query is None and role == "content" and (asked := self._supply.query_before()):
            query = asked
        first = query or next(iter(values), None)
        self._others = [value for value in values if value != first]
        return [first] if first else []

    def _takes_two_texts(self) -> bool:
        return sum(arg.kind == "text" and arg.required for arg in self._spec.inputs) > 1

    def _one_of_pair(self) -> list[str]:
        """The next text of a tool that compares two: those of the step, then the latest ones before it."""
        if not self._pair:
            own = self._take_texts()
            before = [value for value in self._supply.texts_before() if value not in own]
            self._pair = own if len(own) > 1 else [*before[:1], *own, *before[1:]]
            if not self._pair:
                self._pair = self._content()
        taken = [value for values in self._found.values() for value in values]
        return [value for value in self._pair if value not in taken][:1]

    def _content(self) -> list[str]:
        """The text that the task works on."""
        task = self._spec.name
        said = extraction.inline_text(self._text, bank_name(self._spec) or "")
        return (
            self._supply.made_of_files(task, only_named=True)
            or self._take_texts()
            or self._supply.made_of_files(task)
            or ([said] if said else [])
            or self._supply.text_beside(self._spec)
            or self._supply.values_elsewhere("text")
            or self._supply.made_elsewhere(task)
            or self._words_of_step()
        )

    def _words_of_step(self) -> list[str]:
        """The step itself, for a recognised tool of one text."""
        return [self._supply.restored(without_lead_in(self._text))] if clause_class(self._spec) else []

    def _question_with_text(self) -> list[str]:
        """The question, with the text that the step goes by where a recognised tool is asked about a file."""
        asked = self._question()
        sees = clause_class(self._spec) and self._spec.arg("image") is not None
        made = self._supply.text_just_made(self._text) if sees and asked else []
        return [f"{asked[0]} {made[0]}"] if made else asked

    def _question(self) -> list[str]:
        """What is asked: quoted, or the step itself."""
        quoted = [c for c in self._supply.left if not self._supply.mark(c).is_file]
        for character in quoted:
            mark = self._supply.mark(character)
            if mark.role == "question" or mark.value.endswith(("?", "？")):
                return self._supply.take([character])
        sees = self._spec.arg("image") is not None
        if found := extraction.question(self._text, place="the image" if sees else "it"):
            return [found]
        if quoted and "question" in self._text.lower():
            return self._supply.take(quoted[:1])
        if quoted_before := self._supply.question_before():
            return [quoted_before]
        if found := extraction.question(self._supply.context):
            return [found]
        wanted = extraction.asked(self._text)
        return [wanted] if wanted else []

    def _prompt(self) -> list[str]:
        """What is to be made: quoted, in the step's words, or what something says."""
        takes_file = any(arg.kind in MEDIA for arg in self._spec.inputs)
        if found := self._take_texts():
            return found if self._wording.map or not takes_file else found[:1]
        if extraction.drawn_from_text(self._text) and (made := self._supply.made_before("text")):
            return made
        if clause_class(self._spec) and self._supply.speaks_of_made_image():
            return self._supply.made_elsewhere(self._spec.name)
        said = extraction.drawn(self._text) if self._wording.map else extraction.prompt(self._text)
        return (
            ([said] if said else [])
            or self._supply.made_of_files(self._spec.name)
            or self._supply.values_elsewhere("text")
            or self._told_before()
            or self._words_of_step()
        )

    def _told_before(self) -> list[str]:
        """What the sentence before the step is about ("rain on a roof: can you make that sound?")."""
        words = self._supply.context.strip(" .,;:!?-–—")
        return [words] if len(words.split()) > 1 and not re.search(MARK, words) else []

    def _request(self) -> list[str]:
        """What a language model is asked: a quoted prompt, or the step with the text that it is about."""
        words = without_lead_in(self._text)
        if not extraction.is_rewriting(self._text) and (found := self._take_texts()):
            return found
        if about := self._supply.made_of_files(self._spec.name):
            return [f"{without_lead_in(re.sub(MARK, '', words))}: {value}" for value in about]
        last = clause_class(self._spec) and self._supply.made_before("text")
        points = last or extraction.refers_to_text(self._text) or extraction.is_rewriting(self._text)
        if not self._take_texts() and points:
            worked_on = [f"{words}: {value}" for value in self._supply.values_elsewhere("text")]
            if worked_on or extraction.is_rewriting(self._text):
                return worked_on
        if (
            clause_class(self._spec)
            and not self._supply.texts_before()
            and (read := self._supply.made_elsewhere(self._spec.name))
        ):
            return [f"{words}: {value}" for value in read]
        return [self._supply.restored(words)]

    def _instruction(self) -> list[str]:
        """How something is to be changed."""
        if found := self._take_texts():
            return found[:1]
        if clause_class(self._spec) and (made := self._supply.text_just_made(self._text)):
            return made
        said = extraction.instruction(self._text, self._noun())
        return [said] if said else []

    def _wish(self) -> list[str]:
        """A question or an order about a file: quoted, or the step itself."""
        if found := self._take_texts():
            return found[:1]
        asked = extraction.question(self._text)
        words = re.sub(rf"^.*{MARK}\s*,\s*", "", self._text) or self._text
        if asked and without_lead_in(words).lower().startswith(asked.split()[0].lower()):
            return [asked]
        said = extraction.instruction(self._text, self._noun())
        return [said] if said else []

    def _scene(self) -> list[str]:
        """What happens in the video that is made of an image."""
        if found := self._take_texts():
            return found[:1]
        said = extraction.scene(self._text)
        return [said] if said else []

    def _noun(self) -> str:
        kinds = [arg.kind for arg in self._spec.inputs if arg.kind in _CALLED and self._found.get(arg.name)]
        return _CALLED[kinds[0]] if len(kinds) == 1 else "it"

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

    def _take_texts(self) -> list[str]:
        return self._supply.take(self._supply.own("text"))

    def _role_of(self, value: str) -> str:
        character = next(
            (c for c in re.findall(MARK, self._text) if self._supply.mark(c).value == value), None
        )
        if character is None:
            return ""
        is_query = extraction.QUERY.search(self._text[: self._text.index(character)])
        return self._supply.mark(character).role or ("question" if is_query else "")


def _turn(arg: Arg) -> int:
    """Labels are found first, files before texts: a file that is left over can be turned into a text."""
    if arg.kind == "data":
        return 0 if arg.many else 3
    if arg.kind in MEDIA:
        return 2 if arg.required else 1
    return 3


def _needed(arg: Arg) -> str:
    return arg.description or _NOUNS.get(arg.kind, f"a {arg.kind}")
