"""The purpose of a task: what the request says about it beyond the task itself.

    purpose_of(task, spec, RunContext("Is there pneumonia in the chest X-ray scan.png?"))
    # Purpose(text="Is there pneumonia in the chest X-ray?", words=("pneumonia", "chest", "ray"))
    purpose_of(task, spec, RunContext("What is in cat.jpg?"))      # Purpose(): any model will do

Its words neither are general nor belong to the task type. Names of files and long texts, which
are data, are left out.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from jarvis_agent.core.context import RunContext
from jarvis_agent.core.file_mentions import mentions
from jarvis_agent.core.languages import LANGUAGES
from jarvis_agent.core.references import refs_in
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Task
from jarvis_agent.planning.examples import CJK
from jarvis_agent.selection.hints import words_about

WORD = re.compile(r"[^\W_]+")
_FUNCTION_WORDS = """
    a about all also am an and any are as at be been but by can could did do does each every for from get
    give had has have he her him his how i if in into is it its just let like may me more most my need
    needed needs new not of on one only or other our out over own please should so some such than that the
    their them then there these they this those to too two under up us very want wants was we were what
    when where which who whom whose will with would you your api app application base based build company
    create design develop dataset find fine finetuned generate help huggingface identify large make model
    models pretrained project provide small system trained tuned transformers use used using
"""
_GENERAL_WORDS = """
    after ai analyze apply before between check come contain customer data describe determine different
    down example figure file good great here implement improve include information input know list look
    many name now number off output people picture photo possible plan prepare process product program read
    result run save say see service set show solution specific take tell thank thing today tool try turn
    understand user various version via way word work write animal audio background body car cat child
    colour color dog face human image kind man object person place recording room scene sentence song
    sound speech street text type video voice woman
"""

FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""Words that are not compared with cards: of any sentence, of any request, or of any card."""

GENERAL_WORDS = FUNCTION_WORDS | frozenset(_GENERAL_WORDS.split())
"""Words that make no purpose: of many requests, or of what every general model knows."""

_LONG_TEXT = 12
"""Words of an argument from which it is data to be processed and no part of the request."""
_STEM = 6
_NAMES = {language.name.lower(): language.code for language in LANGUAGES if len(language.name) > 3}
_NAMES |= {"mandarin": "zh", "cantonese": "zh"}


class Purpose(NamedTuple):
    """What a request says about one task.

    Attributes:
        text: its clause; "" if it has no words of its own.
        words: the words of its own, in lower case.
        languages: ISO 639-1 codes of the languages that are named.
    """

    text: str = ""
    words: tuple[str, ...] = ()
    languages: frozenset[str] = frozenset()


NO_PURPOSE = Purpose()


def purpose_of(task: Task, spec: TaskSpec, context: RunContext) -> Purpose:
    """Return the purpose of a task: what its planner wrote, its clause of the request, its short texts.

    A clause in Chinese, Japanese or Korean is left out beside the planner's words: cards are in English.
    """
    values = [task.args.get(arg.name) for arg in spec.inputs]
    media = next((task.args.get(arg.name) for arg in spec.inputs if arg.kind != "text"), None)
    names = {file.name for file in context.files}
    text = words_about(media, context.request, names)
    for name in sorted(mentions(text, names.__contains__), key=len, reverse=True):
        text = text.replace(name, " ")
    for value in map(_text, values):
        if len(value.split()) >= _LONG_TEXT:
            text = text.replace(value, " ")
        elif value.lower() not in text.lower() and not mentions(value, names.__contains__):
            text = f"{text} {value}"
    text = task.purpose if task.purpose and CJK.search(text) else f"{task.purpose} {text}"
    languages = languages_in(text)
    words = purpose_words(text, spec)
    return Purpose(" ".join(text.split()) if words or languages else "", words, languages)


def purpose_words(text: str, spec: TaskSpec) -> tuple[str, ...]:
    """Return the words of a text that are neither general nor part of the task type's description."""
    own = " ".join((spec.name, *spec.aliases, spec.description, *(arg.kind for arg in spec.inputs)))
    known = {stem(word) for word in WORD.findall(own.lower())} | _GENERAL_STEMS
    words = dict.fromkeys(WORD.findall(text.lower()))
    return tuple(word for word in words if len(word) > 1 and stem(word) not in known)


def languages_in(text: str) -> frozenset[str]:
    """Return the ISO 639-1 codes of the languages that a text names in English."""
    return frozenset(_NAMES[word] for word in WORD.findall(text.lower()) if word in _NAMES)


def stem(word: str) -> str:
    """The first letters of a word, so that its forms are equal ("detect", "detection")."""
    return word.removesuffix("s")[:_STEM]


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return value if isinstance(value, str) and not refs_in(value) else ""


_GENERAL_STEMS = frozenset(map(stem, GENERAL_WORDS))
