"""Slot filling of texts: a text to work on, a prompt, a question, an instruction or a request.

    TextArguments(TASKS["text-to-image"], supply, found).values(arg)      # ["a red fox in the snow"]

`Wording.text` in the phrase bank states the role of a task's text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jarvis_agent.core.tasks.spec import MEDIA, Arg, TaskSpec
from jarvis_agent.planning.offline import extraction
from jarvis_agent.planning.offline.clauses import without_lead_in
from jarvis_agent.planning.offline.masking import MARK
from jarvis_agent.planning.offline.phrases import bank_name, clause_class, wording
from jarvis_agent.planning.offline.sources import StepInputs

_CALLED: Mapping[str, str] = {"image": "the image", "audio": "the recording", "video": "the video"}


class TextArguments:
    """Finds the text arguments of one task.

    Args:
        found: the other arguments, as far as they are known.
    """

    def __init__(self, spec: TaskSpec, supply: StepInputs, found: Mapping[str, list[Any]]) -> None:
        self._spec = spec
        self._supply = supply
        self._text = supply.text
        self._role = wording(spec).text
        self._takes_map = wording(spec).map is not None
        self._found = found
        self._others: list[str] = []
        self._pair: list[str] = []

    def values(self, arg: Arg) -> list[Any]:
        """The values of a text argument; one that takes a list gets the texts that `text` left over."""
        if arg.many:
            return [self._others] if self._others else []
        role = self._role
        if role == "content" and clause_class(self._spec) and self._takes_two_texts():
            return self._one_of_pair()
        if not arg.required:
            optional = {"instruction": self._instruction, "prompt": self._scene}
            return optional[role]() if role in optional else []
        if arg.name != "text":
            return self._content()
        by_role = {
            "question": self._question_with_text,
            "prompt": self._scene if self._spec.arg("image") and not self._takes_map else self._prompt,
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
            own = self._supply.take_texts()
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
            or self._supply.take_texts()
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
        place = "the image" if sees else "the text" if self._spec.arg("context") else "it"
        if found := extraction.question(self._text, place):
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
        """The prompt: quoted, in the step's words, or the text of another result."""
        takes_file = any(arg.kind in MEDIA for arg in self._spec.inputs)
        if found := self._supply.take_texts():
            return found if self._takes_map or not takes_file else found[:1]
        if extraction.BASED_ON_TEXT.search(self._text) and (made := self._supply.made_before("text")):
            return made
        said = extraction.drawn(self._text) if self._takes_map else extraction.prompt(self._text)
        return (
            ([said] if said else [])
            or self._supply.made_of_files(self._spec.name)
            or self._supply.values_elsewhere("text")
            or self._previous_sentence()
            or self._words_of_step()
        )

    def _previous_sentence(self) -> list[str]:
        """The sentence before the step ("rain on a roof: can you make that sound?")."""
        words = self._supply.context.strip(" .,;:!?-–—")
        return [words] if len(words.split()) > 1 and not re.search(MARK, words) else []

    def _request(self) -> list[str]:
        """The request to a language model: a quoted prompt, or the step with its text."""
        words = without_lead_in(self._text)
        if not extraction.is_rewriting(self._text) and (found := self._supply.take_texts()):
            return found
        if about := self._supply.made_of_files(self._spec.name):
            return [f"{without_lead_in(re.sub(MARK, '', words))}: {value}" for value in about]
        last = clause_class(self._spec) and self._supply.made_before("text")
        points = last or extraction.REFERS_TO_TEXT.search(self._text) or extraction.is_rewriting(self._text)
        if not self._supply.take_texts() and points:
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
        """The instruction for a change."""
        if found := self._supply.take_texts():
            return found[:1]
        if clause_class(self._spec) and (made := self._supply.text_just_made(self._text)):
            return made
        said = extraction.instruction(self._text, self._noun())
        return [said] if said else []

    def _wish(self) -> list[str]:
        """A question or an order about a file: quoted, or the step itself."""
        if found := self._supply.take_texts():
            return found[:1]
        asked = extraction.question(self._text)
        words = re.sub(rf"^.*{MARK}\s*,\s*", "", self._text) or self._text
        if asked and without_lead_in(words).lower().startswith(asked.split()[0].lower()):
            return [asked]
        said = extraction.instruction(self._text, self._noun())
        return [said] if said else []

    def _scene(self) -> list[str]:
        """What happens in the video that is made from an image."""
        if found := self._supply.take_texts():
            return found[:1]
        said = extraction.scene(self._text)
        return [said] if said else []

    def _noun(self) -> str:
        kinds = [arg.kind for arg in self._spec.inputs if arg.kind in _CALLED and self._found.get(arg.name)]
        return _CALLED[kinds[0]] if len(kinds) == 1 else "it"

    def _role_of(self, value: str) -> str:
        for found in re.finditer(MARK, self._text):
            mark = self._supply.mark(found.group())
            if mark.value == value:
                is_query = extraction.QUERY.search(self._text[: found.start()])
                return mark.role or ("question" if is_query else "")
        return ""
