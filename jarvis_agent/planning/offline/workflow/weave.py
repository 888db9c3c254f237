"""Tools become tasks, each fed with what fits of the things made or given before it.

    weaver = Weaver(marked, brief.specs)
    weaver.add(brief.specs["Translation"], "translate the answer into French")
    weaver.tasks

The rule is a chain: each task takes what was made last of the kind that it takes. Words that name what
another task made ("the transcribed text"), a file or a quoted text override it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jarvis_agent.core.references import ref, refs_in
from jarvis_agent.core.tasks.spec import MEDIA, TaskSpec
from jarvis_agent.core.types import Task
from jarvis_agent.planning.offline import arguments
from jarvis_agent.planning.offline.marks import MARK, Mark, Marked
from jarvis_agent.planning.offline.supply import BRIDGES
from jarvis_agent.planning.offline.workflow.tools import called, family

_ORIGINAL = re.compile(r"\b(?:original|initial|source|provided|given)\b", re.IGNORECASE)
_SPEAKS: Mapping[str, re.Pattern[str]] = {
    "audio": re.compile(r"\b(?:audio|recording|speech|spoken|voice|said)\b", re.IGNORECASE),
    "image": re.compile(r"\b(?:images?|pictures?|photos?)\b", re.IGNORECASE),
}
_OUTPUT = re.compile(
    rf"({MARK})(?= (?:file |image )?(?:as|for) (?:the |an? )?(?:\w+ )?outputs?\b)"
    rf"|\b(?:save|store)\b[^.,]{{0,30}} (?:as|to|in) ({MARK})",
    re.IGNORECASE,
)
_POINTING = r"\b(?:the|that|this|its|from|on|of|those|using|a|an)"
_HEARD = re.compile(r"\b(?:audio|recording|spoken|command|voice)\b", re.IGNORECASE)
_GIVEN_TEXT = re.compile(
    r"\b(?:following|provided|given)\s+(?:[\w-]+\s+)?(?:texts?|sentences?|paragraph|passage|article)\b",
    re.IGNORECASE,
)
"""How a clause speaks of a text that the request holds, if only further on."""
_WRITTEN = re.compile(r"\b(?:articles?|essay|paragraph|passage|story|book)\b", re.IGNORECASE)
_PLACEHOLDERS = {"image": "the image", "audio": "the audio", "video": "the video", "text": "the text"}
RENDERS = {"image": "text-to-image", "audio": "text-to-speech"}
"""The tool that makes a kind of file of a text, where one is needed and only a text is there."""
_MAKES_ANEW = frozenset({"text-to-image", "text-to-video", "text-generation", "conversational"})


@dataclass(frozen=True, slots=True)
class Made:
    """What a task made: its kind, the reference to it, and the family and name of the tool."""

    kind: str
    value: str
    maker: str
    tool: str


class Weaver:
    """Builds the tasks of a plan.

    Attributes:
        tasks: the tasks so far, each after those that feed it.
        made: what they make, in their order.
    """

    def __init__(self, marked: Marked, specs: Mapping[str, TaskSpec]) -> None:
        self.tasks: list[Task] = []
        self.made: list[Made] = []
        self._marked = marked
        self._named = tuple(dict.fromkeys(marked.within(marked.text)))
        self._by_family = {family(spec): spec for spec in specs.values()}
        self._used: set[str] = set()
        self._given: list[Mark] = []
        self._outputs: set[str] = {
            marked.marks[found[1] or found[2]].value for found in _OUTPUT.finditer(marked.text)
        }

    def give(self, text: str) -> None:
        """Note the files and texts that a clause names."""
        self._given += [mark for mark in self._marked.within(text) if mark not in self._given]

    def _name_output(self, text: str, spec: TaskSpec) -> None:
        """Note the files by which a clause calls what its task makes ("save it as \ue000").

        Where nothing else is there to be worked on, a file is no name for a result.
        """
        takes = {arg.kind for arg in spec.inputs}
        if not self.made and len(self._named) == 1:
            return
        for mark in self._marked.within(text):
            if mark.is_file and mark.kind in spec.outputs and mark.kind not in takes:
                self._outputs.add(mark.value)

    def has(self, kind: str) -> bool:
        """Whether anything of a kind has been made, or is named anywhere in the request."""
        return any(thing.kind == kind for thing in self.made) or any(m.kind == kind for m in self._files())

    @property
    def has_text(self) -> bool:
        """Whether a text is given that is no question, or was made."""
        return (
            bool(self._all_quoted()) or any(thing.kind == "text" for thing in self.made) or self.has("text")
        )

    def has_new_text(self, text: str) -> bool:
        """Whether a clause quotes a text that no task takes yet."""
        return any(quoted not in self._used for quoted in self._quoted(text))

    def add(self, spec: TaskSpec, text: str, question: str | None = None) -> None:
        """Add a task for a clause.

        Args:
            question: what is asked, for a task that answers.
        """
        self.give(text)
        self._name_output(text, spec)
        media = {
            arg.name: self._medium(arg.kind, text)
            for arg in spec.inputs
            if arg.kind in MEDIA and arg.required
        }
        texts = [arg for arg in spec.inputs if arg.kind == "text" and arg.required]
        others = [arg.name for arg in spec.inputs if arg.kind not in ("text", *MEDIA) and arg.required]
        args: dict[str, Any] = dict(media) | dict.fromkeys(others, self._subject(text))
        if len(texts) > 1 and family(spec) == "sentence-similarity":
            args |= zip((arg.name for arg in texts), self._two_texts(spec, text), strict=False)
        elif len(texts) > 1:
            args |= self._question_and_context(spec, text, question)
        elif texts and question is not None:
            args[texts[0].name] = self._with_latest(spec, question, text)
        elif texts and media:
            args[texts[0].name] = self._instruction(spec, text)
        elif texts:
            args[texts[0].name] = self._text(spec, text)
        args |= self._options(spec, text)
        self._emit(spec, args)

    def _emit(self, spec: TaskSpec, args: dict[str, Any]) -> str:
        number = len(self.tasks)
        ordered = {arg.name: args[arg.name] for arg in spec.inputs if arg.name in args}
        self.tasks.append(Task(task=spec.name, id=number, dep=refs_in(ordered) or [-1], args=ordered))
        self._used.update(str(value) for value in ordered.values())
        self.made += [Made(kind, ref(number), family(spec), spec.name) for kind in spec.outputs]
        return ref(number)

    def _options(self, spec: TaskSpec, text: str) -> dict[str, Any]:
        said = arguments.languages(text)
        return {arg.name: said[arg.name][0] for arg in spec.inputs if not arg.required and arg.name in said}

    def _files(self) -> list[Mark]:
        return [m for m in self._named if m.is_file and m.value not in self._outputs]

    def _medium(self, kind: str, text: str) -> str:
        """A file, or what a task made of that kind."""
        named = [m.value for m in self._marked.within(text) if m.is_file and m.kind == kind]
        named = [value for value in named if value not in self._outputs]
        if fresh := [value for value in named if value not in self._used]:
            return fresh[0]
        made = [thing for thing in self.made if thing.kind == kind]
        if called := self._called(made, text):
            return called.value
        if named:
            return named[0]
        files = [mark.value for mark in self._files() if mark.kind == kind]
        if files and made and re.search(r"\boriginal\b", text, re.IGNORECASE):
            return files[0]
        if made:
            return made[-1].value
        if files:
            return files[0]
        return self._rendered(kind, text) or _PLACEHOLDERS.get(kind, f"the {kind}")

    def _rendered(self, kind: str, text: str) -> str | None:
        """A picture or recording made of a text, where a task needs one and there is none."""
        spec = self._by_family.get(RENDERS.get(kind, ""))
        texts = [thing.value for thing in self.made if thing.kind == "text"][-1:]
        given = [mark.value for mark in self._given if mark.kind == "text"]
        texts = texts or self._quoted(text)[-1:] or given[-1:] or self._all_quoted()[:1]
        return self._emit(spec, {spec.required[0]: texts[0]}) if spec and texts else None

    def _called(self, made: list[Made], text: str) -> Made | None:
        """What the words of a clause name by what its task does; the latest of these."""
        for thing in reversed(made):
            words = called().get(thing.maker)
            if words and re.search(rf"{_POINTING}\s+(?:\w+\s+)?(?:{words})\b", text, re.IGNORECASE):
                return thing
        return None

    def _texts_for(self, spec: TaskSpec) -> list[Made]:
        """The texts that were made, but for the tool's own: no question is asked of the answer to another."""
        return [thing for thing in self.made if thing.kind == "text" and thing.tool != spec.name]

    def _latest_text(self, text: str, spec: TaskSpec) -> str | None:
        """The text that a clause means for a tool; a picture or recording made since is read."""
        texts = self._texts_for(spec)
        if meant := self._called(texts, text):
            return meant.value
        for kind, words in _SPEAKS.items():
            things = [thing for thing in self.made if thing.kind == kind]
            newer = bool(things) and (not texts or self.made.index(things[-1]) > self.made.index(texts[-1]))
            files = [m.value for m in self._files() if m.kind == kind and m.value not in self._used]
            is_first = bool(files) and not things and not texts
            if kind not in spec.outputs and words.search(text) and (newer or is_first):
                return self._bridged(kind, things[-1].value if newer else files[0], text)
        return texts[-1].value if texts else None

    def _bridged(self, kind: str, value: str, text: str) -> str | None:
        is_table = kind == "image" and bool(
            re.search(r"\btab(?:le|ular)\b", self._marked.text, re.IGNORECASE)
        )
        spec = self._by_family.get("tabular-classification") if is_table else None
        if kind == "image" and re.search(r"\bobjects?\b", text, re.IGNORECASE):
            spec = self._by_family.get("object-detection")
        spec = spec or self._by_family.get(BRIDGES[kind])  # type: ignore[index]
        return self._emit(spec, {next(a.name for a in spec.inputs if a.required): value}) if spec else None

    def _quoted(self, text: str) -> list[str]:
        return [m.value for m in self._marked.within(text) if m.kind == "text" and not is_question(m)]

    def _all_quoted(self) -> list[str]:
        return [m.value for m in self._named if m.kind == "text" and not is_question(m)]

    def _any_text(self, text: str) -> str:
        """A given text, or one made of a file; else what the clause says itself."""
        given = [m.value for m in self._given if m.kind == "text" and not is_question(m)]
        later = self._all_quoted()
        is_later = _GIVEN_TEXT.search(text) or not any(self.has(kind) for kind in BRIDGES)
        if given or (later and is_later):
            return (given or later)[0]
        if _WRITTEN.search(text) and not _SPEAKS["image"].search(text) and not self.has("audio"):
            return self._said(text)
        for kind in ("audio", "image"):
            things = [t.value for t in self.made if t.kind == kind][-1:]
            files = things or [m.value for m in self._files() if m.kind == kind]
            if files and (found := self._bridged(kind, files[0], text)):
                return found
        asked = later or [m.value for m in self._named if m.kind == "text"]
        return asked[0] if asked else self._said(text)

    def _said(self, text: str) -> str:
        return arguments.prompt(text) or self._marked.restored(text).strip(" .,;:") or "the text"

    def _subject(self, text: str) -> str:
        """What stands in an argument of which no kind is known."""
        marks = self._marked.within(text)
        return marks[0].value if marks else arguments.subject(text).strip(" .,;:?!") or "the text"

    def _text(self, spec: TaskSpec, text: str) -> str:
        """The one text that a task takes."""
        quoted = [m.value for m in self._marked.within(text) if m.kind == "text"]
        latest = self._latest_text(text, spec) if not quoted or self._called(self.made, text) else None
        if latest is not None:
            return latest
        if quoted:
            return quoted[0]
        if family(spec) == "conversational" and not self._all_quoted() and latest is None:
            asked = [m.value for m in self._given if m.kind == "text" and not m.is_file]
            if asked:
                return asked[-1]
        if family(spec) in _MAKES_ANEW and not self._all_quoted():
            said = arguments.prompt(text)
            if said or not any(self.has(kind) for kind in BRIDGES):
                return said or self._said(text)
        return self._any_text(text)

    def _instruction(self, spec: TaskSpec, text: str) -> str:
        """What is to be changed in a picture: quoted, what a text says, or the clause's own words."""
        quoted = self._quoted(text)
        last = self.made[-1] if self.made else None
        texts = [thing for thing in self.made if thing.kind == "text"]
        meant = self._called(texts, text) or (last if last and last.kind == "text" else None)
        if meant is None and texts and not quoted and arguments.refers_to_text(text):
            meant = texts[-1]
        if meant is not None:
            return f"{quoted[0]} {meant.value}" if quoted else meant.value
        if quoted:
            return quoted[0]
        is_heard = not texts and self.has("audio") and _HEARD.search(text)
        if is_heard and (found := self._latest_text(text, spec)):
            return found
        return self._marked.restored(text).strip(" .,;:")

    def _with_latest(self, spec: TaskSpec, question: str, text: str) -> str:
        texts = self._texts_for(spec)
        meant = self._called(texts, text)
        if meant is None and texts and texts[-1] is self.made[-1]:
            meant = texts[-1]
        if meant is None or re.search(r"\balso\b", text, re.IGNORECASE):
            return question or self._said(text)
        return f"{question} {meant.value}".strip()

    def _question_and_context(self, spec: TaskSpec, text: str, question: str | None) -> dict[str, str]:
        quoted = self._quoted(text)
        latest = self._latest_text(text, spec)
        context = quoted[-1] if quoted else latest or self._any_text(text)
        asked = question or (latest if quoted else None) or self._said(text)
        first, second = [arg.name for arg in spec.inputs if arg.kind == "text" and arg.required][:2]
        return {first: asked, second: context}

    def _two_texts(self, spec: TaskSpec, text: str) -> list[str]:
        quoted = self._quoted(text)
        made = [thing.value for thing in self.made if thing.kind == "text"]
        if len(quoted) > 1:
            return quoted[:2]
        meant = [thing.value for thing in self.made if thing.kind == "text" and self._called([thing], text)]
        if meant and quoted:
            return [meant[-1], quoted[0]]
        if len(meant) > 1:
            return meant[-2:]
        others = [value for value in self._all_quoted() if value not in quoted]
        unused = [value for value in others if value not in self._used]
        latest = self._latest_text(text, spec)
        one = [latest] if latest else []
        if _ORIGINAL.search(text) and others:
            found = [*one, *quoted, *others]
        else:
            found = [*one, *quoted, *([] if meant else unused), *reversed(made), *others]
        found = list(dict.fromkeys(found))
        if len(found) < 2 and not made:
            found = list(dict.fromkeys([*found, self._any_text(text)]))
        return [*found, *[self._said(text)] * 2][:2]


def is_question(mark: Mark) -> bool:
    """Whether a mark is a quoted question."""
    is_text = mark.kind == "text" and not mark.is_file
    return is_text and (mark.role == "question" or mark.value.rstrip(" .'\"").endswith(("?", "？")))
