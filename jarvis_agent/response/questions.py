"""The questions of a request that have a definite form, and whether results answer them.

    (question,) = find_questions("Is there a dog in a.jpg?")
    question.thing, question.files           # "dog", {"a.jpg"}
    decide(question, result)                 # True if "dog" is a label of the result; None: it does not tell
    is_answered(question, results)

A detector that found no zebra may not know zebras, and "malamute" does not deny a dog. So "no" needs the very
word of the question among the labels.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from jarvis_agent.backends.outputs.validators import plural
from jarvis_agent.core.file_mentions import mentions
from jarvis_agent.core.languages import detect_script
from jarvis_agent.core.messages import CHINESE
from jarvis_agent.core.types import TaskResult
from jarvis_agent.response.results import detections, input_files, scored_labels

Kind = Literal["how_many", "whether", "where", "other"]
_WORDS: dict[str, dict[str, str]] = tomllib.loads(
    (Path(__file__).parent / "data" / "questions.toml").read_text(encoding="utf-8")
)
_QUOTED = re.compile(r"[“\"「『][^”\"」』]*[”\"」』]")
_NAME = re.compile("\ufffc(\\d+)\ufffc")
_KINDS: tuple[Kind, ...] = get_args(Kind)
_MAJORITY = 0.5
_UNLIKE = frozenset(_WORDS["labels"]["unlike"].strip().split(", "))
_PERSON = frozenset(_WORDS["labels"]["person"].split())


@dataclass(frozen=True, slots=True)
class Question:
    """A question in its own words, what it asks for ("dog"), and the files that it names."""

    kind: Kind
    text: str
    thing: str
    files: frozenset[str]


def find_questions(request: str) -> list[Question]:
    """The questions whether there is something, how many, and where, and others that no label answers."""
    patterns = _WORDS["zh" if detect_script(request) == "zh" else "en"]
    files = mentions(request)
    names = sorted({*files, *_QUOTED.findall(request)}, key=len, reverse=True)
    text = request
    for number, name in enumerate(names):  # what is quoted asks nothing, and the dots of a name end nothing
        text = text.replace(name, f"\ufffc{number}\ufffc")
    questions = list[Question]()
    for sentence in re.findall(patterns["sentence"], text, re.IGNORECASE):
        for kind in _KINDS:
            if match := re.search(patterns[kind], sentence, re.IGNORECASE):
                words = _NAME.sub(lambda name: names[int(name[1])], match[0]).strip(" ,:")
                named = frozenset(names[int(number)] for number in _NAME.findall(sentence)) & {*files}
                thing = _NAME.sub(" ", match["thing"] or "").lower()
                thing = re.sub(patterns["around"], "", thing).strip()
                if not re.search(patterns["several"], thing):  # "a cat or a dog" is neither yes nor no
                    questions.append(Question(kind, words, thing, named))
                break
    return questions


def decide(question: Question, result: TaskResult) -> bool | None:
    """Whether what is asked for is there, if labels of the result decide it."""
    if question.kind != "whether" or not question.thing or not _concerns(question, result):
        return None
    if boxes := detections(result):
        return any(_is(question.thing, box["label"]) for box in boxes) or None
    labels = scored_labels(result)
    share = sum(score or 0.0 for label, score in labels if _is(question.thing, label))
    if share >= _MAJORITY:
        return True
    is_known = any(label.lower() == question.thing for label, _ in labels)
    return False if is_known and (labels[0][1] or 0.0) >= _MAJORITY else None


def is_answered(question: Question, results: Iterable[TaskResult]) -> bool:
    """False if none of these results can be the answer; a text may always be it.

    A question that a task was given as its text, to be spoken or drawn, asks nothing.
    """
    return any(_may_answer(question, result) for result in results if _concerns(question, result))


def leaves_open(question: Question, results: Iterable[TaskResult]) -> bool:
    """Whether labels are no answer, but may lead to one: a malamute is a dog, and two dogs are animals."""
    about = [result for result in results if _concerns(question, result)]
    labelled = any(detections(result) or scored_labels(result) for result in about)
    return labelled and not is_answered(question, about)


def _may_answer(question: Question, result: TaskResult) -> bool:
    if question.text.rstrip("?？ ").lower() in str(result.task.args.get("text", "")).lower():
        return True
    boxes = detections(result)
    if boxes is not None and question.kind in ("how_many", "where"):
        return not boxes or not question.thing or any(_is(question.thing, box["label"]) for box in boxes)
    if boxes is not None or scored_labels(result):
        return decide(question, result) is not None
    return result.resource("text") is not None


def _concerns(question: Question, result: TaskResult) -> bool:
    """Whether a result may be about the files of a question: it has one of them, or none of its own."""
    files = set(map(_base_name, input_files(result.task)))
    return not question.files or not files or not files.isdisjoint(map(_base_name, question.files))


def _base_name(file: str) -> str:
    return re.split(r"[/\\]", file)[-1]


def _is(thing: str, label: Any) -> bool:
    """Whether a label is this thing: "people" or "人" for "person", "cat" for "tiger cat", "车" for "car"."""
    for name in str(label).lower().split(", "):
        chinese = CHINESE.labels.get(name, "")[1:]  # without its measure word
        last = name if name in _UNLIKE else name.rpartition(" ")[2]
        if thing in {name, plural(name), chinese, last, plural(last), CHINESE.labels.get(last, "")[1:]}:
            return True
        if (name == "person" and thing in _PERSON) or (name not in _UNLIKE and chinese.endswith(thing)):
            return True
    return False
