"""Reads a request that describes a workflow: a plan of the tools that its clauses speak of.

    tasks = read(marked, brief, embedder)

Each tool is planned once, as it is told. Questions wait for the clause that wants their answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from jarvis_agent.backends.starter.embeddings import StarterEmbeddings
from jarvis_agent.core.request import RunContext
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Task
from jarvis_agent.planning.offline import arguments
from jarvis_agent.planning.offline.marks import Marked
from jarvis_agent.planning.offline.workflow.classify import NONE, Model, load_model
from jarvis_agent.planning.offline.workflow.habits import (
    BESIDE,
    HEARD,
    IMPLIED,
    TRANSLATION,
    language_in_passing,
)
from jarvis_agent.planning.offline.workflow.mentions import Mention, is_given, mentions
from jarvis_agent.planning.offline.workflow.tools import QUESTION, family
from jarvis_agent.planning.offline.workflow.weave import Weaver, is_question

MOST_QUESTIONS = 3
"""Open questions that are answered at once."""

_ANSWER = re.compile(r"\banswers?\b", re.IGNORECASE)
_PROMPT = re.compile(r"\b(?:prompt|message|statement|phrase|title|conversation)\b", re.IGNORECASE)
_ASKED_ALOUD = re.compile(
    r"\b(?:audio|recording|voice|speech)\b[^.]{0,60}\b(?:questions?|query|asks?|asking)\b|"
    r"\b(?:spoken|asked) questions?\b|"
    r"\bquestions?\b[^.]{0,30}\b(?:in|from|of) (?:the|my|this|an?) (?:audio|recording)\b",
    re.IGNORECASE,
)
"""What says that the question itself is to be heard."""
_HAVE = re.compile(r"\b(?:have|got|there is|here is|here are|with|my)\b", re.IGNORECASE)
_WANTS = re.compile(r"\b(?:answer|find|ask|respond|know|tell)\b", re.IGNORECASE)
_DOCUMENT = re.compile(
    r"\b(?:documents?|invoice|receipt|contract|form|letter|report|table|chart)\b",
    re.IGNORECASE,
)
_IMAGE = re.compile(r"\b(?:images?|pictures?|photos?|visual|colou?rs?|scene|depicted|shown)\b", re.IGNORECASE)
_TEXT = re.compile(
    r"\b(?:texts?|passage|paragraph|article|transcri\w+|extracted|translat\w+|summar\w+|conversation|response|"
    r"sentences?|description|audio|speech|entities|classification|classified)\b",
    re.IGNORECASE,
)


def read(
    marked: Marked, brief: RunContext, embedder: StarterEmbeddings, model: Model | None = None
) -> list[Task]:
    """The tasks that a marked request speaks of; at least one. `model`: instead of the stored classifier."""
    families: dict[str, list[TaskSpec]] = {}
    for spec in brief.specs.values():
        families.setdefault(family(spec), []).append(spec)
    found = mentions(marked, families, embedder, model or load_model())
    return _Reader(marked, brief, families, found).tasks()


class _Reader:
    def __init__(
        self, marked: Marked, brief: RunContext, families: dict[str, list[TaskSpec]], found: list[Mention]
    ) -> None:
        self._marked = marked
        self._families = families
        self._found = found
        self._weaver = Weaver(marked, brief.specs)
        self._mentioned = {mention.tool for mention in found}
        self._planned: set[str] = set()
        self._open: list[str] = []
        self._asked: set[str] = set()

    def tasks(self) -> list[Task]:
        for mention in self._found:
            self._take(mention.tool, mention.clause.text)
        if self._open and QUESTION in self._families:
            self._ask("")
        return self._weaver.tasks

    def _take(self, tool: str, text: str) -> None:
        asked = self._question_in(text) if tool in (NONE, QUESTION) else None
        if asked:
            self._open.append(asked)
        is_context = tool == QUESTION and asked and _HAVE.search(text) and not _WANTS.search(text)
        if tool == NONE or is_context or (tool in self._planned and tool != QUESTION):
            self._weaver.give(text)
        elif tool != QUESTION:
            self._add_with_others(tool, text)
        elif self._open or QUESTION not in self._planned or self._weaver.has_new_text(text):
            self._ask(text)
            self._add_beside("text", text)

    def _add_with_others(self, tool: str, text: str) -> None:
        """Plan a tool, and those that the clause wants in passing."""
        if self._open and QUESTION in self._families and _ANSWER.search(text):
            self._ask("")
        for other, words in IMPLIED.items():
            if self._may_add(other) and words.search(text):
                self._add(other, text)
        language = language_in_passing(text) if self._may_add(TRANSLATION) and tool != TRANSLATION else None
        makes = self._families[tool][0].outputs
        if language and makes != ("text",):
            self._add(TRANSLATION, f"translate it to {language}")
        self._add(tool, text)
        if language and makes == ("text",):
            self._add(TRANSLATION, f"translate it to {language}")
        self._add_beside(next(iter(makes), ""), text)

    def _add_beside(self, kind: str, text: str) -> None:
        """Plan what a clause wants done in passing with what it made of that kind ("in audio format")."""
        if any(mark.is_file and mark.kind == "audio" for mark in self._marked.within(text)):
            return
        for other, (made, words) in BESIDE.items():
            if made == kind and self._may_add(other) and words.search(text):
                self._add(other, "it")

    def _may_add(self, tool: str) -> bool:
        """Whether a tool is offered that no clause speaks of and that is not planned."""
        return tool in self._families and tool not in self._mentioned | self._planned

    def _add(self, tool: str, text: str) -> None:
        self._planned.add(tool)
        self._weaver.add(self._families[tool][0], text)

    def _question_in(self, text: str) -> str | None:
        """The question that a clause quotes or asks."""
        if is_given(text) and _PROMPT.search(text):
            return None
        quoted = next((mark.value for mark in self._marked.within(text) if is_question(mark)), None)
        if quoted is not None or not text.rstrip().endswith("?"):
            return quoted
        return arguments.question(text, place="the image")

    def _ask(self, text: str) -> None:
        """Plan an answer to each question that is open; where none is, to the next one that is quoted."""
        quoted = [mark.value for mark in self._marked.marks.values() if is_question(mark)]
        waiting = [question for question in dict.fromkeys(self._open) if question not in self._asked]
        waiting = waiting or [question for question in quoted if question not in self._asked][:1]
        self._open.clear()
        if not waiting and QUESTION in self._planned and not self._weaver.has_new_text(text):
            return
        for question in waiting[:MOST_QUESTIONS] or [""]:
            answerer = self._answerer(text, question)
            if not question and self._may_add(HEARD) and _ASKED_ALOUD.search(self._marked.text):
                self._hear()
            self._planned.add(QUESTION)
            self._asked.add(question)
            self._weaver.add(answerer, text, question)

    def _hear(self) -> None:
        """Plan to write down the question that is asked in a recording, unless that is done already."""
        if self._weaver.has("audio") and all(thing.maker != HEARD for thing in self._weaver.made):
            self._add(HEARD, "the recording")

    def _answerer(self, text: str, question: str) -> TaskSpec:
        """Which of the tools that answer is meant, by what there is to ask about."""
        tools = self._families[QUESTION]
        document, visual = _named(tools, "document"), _named(tools, "visual")
        plain = next((spec for spec in tools if spec not in (document, visual)), None)
        last = self._weaver.made[-1].kind if self._weaver.made else ""
        if not self._weaver.has("image"):
            chat = self._families.get("conversational")
            is_about_nothing = not self._weaver.has_text and not self._weaver.has("audio")
            return chat[0] if chat and is_about_nothing else plain or tools[0]
        speaks_of_text = bool(_TEXT.search(text))
        is_of_text = speaks_of_text and last == "text" and not _DOCUMENT.search(text)
        if document and _DOCUMENT.search(f"{text} {question}") and not is_of_text:
            return document
        if visual and _IMAGE.search(f"{text} {question}"):
            return visual
        if plain and (speaks_of_text or last == "text"):
            return plain
        if document and _DOCUMENT.search(self._marked.text) and not last:
            return document
        return visual or document or tools[0]


def _named(tools: Sequence[TaskSpec], word: str) -> TaskSpec | None:
    return next((spec for spec in tools if word in spec.name.lower()), None)
