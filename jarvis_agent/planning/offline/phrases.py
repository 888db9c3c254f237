"""The bank of phrases: for each task, examples of a step that asks for it.

    load_bank()["object-detection"].phrases      # ("detect the objects in the image", …)
    clause_classes()["translation"].task         # the task that the class of clauses stands for

The data are in data/phrases.json and data/clauses.json. Run benchmarks/train_offline.py after a change.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from jarvis_agent.core.tasks.registry import find_task
from jarvis_agent.core.tasks.spec import TaskSpec

DATA = Path(__file__).parent / "data"

SMALL_TALK, OUT_OF_SCOPE = "small-talk", "out-of-scope"
"""Entries of the bank that are no tasks: greetings, and requests that no expert model can fulfil."""

UNKNOWN = "unknown"
"""The task of a step that is known to be none of the bank's."""

_SHARED_NOUNS = frozenset(
    {"text", "words", "word", "image", "new image", "picture", "photo", "video", "clip", "movie", "result"}
)

Role = Literal["content", "prompt", "question", "instruction", "wish", "request"]


@dataclass(frozen=True, slots=True)
class Wording:
    """The words for a task.

    Attributes:
        phrases: examples of a step that asks for it.
        made: nouns for its result in later steps.
        named: required in the step; None: nothing is required.
        text: the role of its argument `text`: the text it works on, a prompt, a question, an instruction for
            a change, a wish (a question or an order) about a file, or a request to a language model.
        map: the task that makes the control map which is its image.
        note: on an entry that is no task: why nothing can do it.
    """

    phrases: tuple[str, ...]
    made: tuple[str, ...] = ()
    named: re.Pattern[str] | None = None
    text: Role = "content"
    map: str | None = None
    note: str = ""


@lru_cache(maxsize=1)
def load_bank() -> Mapping[str, Wording]:
    """The entries of the bank by name: tasks of the catalogue, small talk and what is out of scope."""
    return {
        name: Wording(
            phrases=tuple(entry["phrases"]),
            made=tuple(entry.get("made", ())),
            named=_pattern(entry.get("named")),
            text=entry.get("text", "content"),
            map=entry.get("map"),
            note=entry.get("note", ""),
        )
        for name, entry in json.loads((DATA / "phrases.json").read_text(encoding="utf-8")).items()
    }


@lru_cache(maxsize=1)
def results() -> str:
    """Pattern of the nouns for results, without those that many tasks share."""
    nouns = {noun for entry in load_bank().values() for noun in entry.made} - _SHARED_NOUNS
    return "|".join(re.escape(noun) for noun in sorted(nouns, key=len, reverse=True))


def _pattern(written: str | None) -> re.Pattern[str] | None:
    return None if written is None else re.compile(written, re.IGNORECASE)


@lru_cache(maxsize=1)
def verbs() -> Mapping[str, Mapping[str, float]]:
    """By the word that phrases begin with: the share of each task in these phrases."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for name, entry in load_bank().items():
        for phrase in entry.phrases:
            counts[phrase.split()[0].lower()][name] += 1
    return {verb: {name: n / tasks.total() for name, n in tasks.items()} for verb, tasks in counts.items()}


@lru_cache(maxsize=1024)
def wording(spec: TaskSpec) -> Wording:
    """The words for a task. Outside the bank, its name and description are the phrases."""
    known = bank_name(spec)
    if known is not None:
        return load_bank()[known]
    words = re.sub(r"[-_]+", " ", spec.name)
    return Wording(phrases=(words, spec.description or words), made=(words,))


def bank_name(spec: TaskSpec) -> str | None:
    """The bank's entry for a task, or None.

    Catalogue tasks are known by name. A tool is known by the class that `Classifier.recognise` gave it.
    """
    if spec.category == "tool":
        return next((alias for alias in reversed(spec.aliases) if alias in load_bank()), None)
    return _catalogue_name(spec.name)


@lru_cache(maxsize=1024)
def _catalogue_name(name: str) -> str | None:
    found = find_task(name)
    known = found.name if found is not None else name
    return known if known in load_bank() else None


@dataclass(frozen=True, slots=True)
class ClauseClass:
    """A class of tools. It identifies tools whose names are unknown.

    Attributes:
        task: the bank's entry for such tools.
        takes: the kinds of the required inputs.
        makes: the possible kinds of the first output.
        description: what such tools do.
        clauses: the class in the clause model.
    """

    task: str
    takes: Sequence[str]
    makes: Sequence[str]
    description: str
    clauses: str

    def fits(self, spec: TaskSpec) -> bool:
        """Whether the input and output types of a tool are those of the class."""
        takes = Counter(arg.kind for arg in spec.inputs if arg.required)
        return takes == Counter(self.takes) and (not spec.outputs or spec.outputs[0] in self.makes)


@lru_cache(maxsize=1)
def load_clauses() -> Mapping[str, Any]:
    """The content of data/clauses.json."""
    held: Mapping[str, Any] = json.loads((DATA / "clauses.json").read_text(encoding="utf-8"))
    return held


@lru_cache(maxsize=1)
def clause_classes() -> Mapping[str, ClauseClass]:
    """The classes of tools that can be recognised, by name."""
    return {
        name: ClauseClass(**{"clauses": name, **entry}) for name, entry in load_clauses()["classes"].items()
    }


def clause_class(spec: TaskSpec) -> str | None:
    """The class of a recognised tool in the clause model, or None."""
    if spec.category != "tool" or len(spec.aliases) != 2 or spec.aliases[0] not in clause_classes():
        return None
    return clause_classes()[spec.aliases[0]].clauses
