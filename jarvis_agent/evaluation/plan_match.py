"""Whether a predicted plan is what a gold plan asks for, whatever the ids and the order of its tasks.

same_plan(gold, predicted)                                         # names, links and arguments agree
same_argument("translation", "tgt_lang", "French", "fr")           # True

Arguments that the gold plan leaves out are free. The others are compared by kind:

files, references, numbers         equal
languages                          the same language, by name or code
labels, sentences                  the same ones in any order, without articles and plurals
texts that are processed           the same words (translation, speech, …)
questions, prompts                 the gold words in order, among few others
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from jarvis_agent.core.languages import find_language
from jarvis_agent.core.references import ref, refs_in, substitute
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import MEDIA, Arg
from jarvis_agent.core.types import Task

_LITERAL_TEXT = {
    *("text-classification", "token-classification", "zero-shot-classification", "fill-mask", "translation"),
    *("summarization", "feature-extraction", "sentence-similarity", "text-to-speech"),
}
"""Tasks whose text is processed as it is, and is not an instruction."""

_EXTRA_WORDS, _EXTRA_PROMPT_WORDS = 16, 8
_HAN = "\u3400-\u9fff"
_WORD = re.compile(rf"[{_HAN}]|[^\W_{_HAN}]+")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_ARTICLES = ("a", "an", "the")


def same_plan(gold: Sequence[Task], predicted: Sequence[Task]) -> bool:
    """Whether tasks can be paired so that names, links and arguments agree, whatever their ids and order."""
    return len(gold) == len(predicted) and _can_be_paired(gold, predicted, {})


def _can_be_paired(gold: Sequence[Task], predicted: Sequence[Task], pairs: Mapping[int, int]) -> bool:
    if not gold:
        return True
    first, *rest = gold
    return any(
        _same_task(first, task, pairs) and _can_be_paired(rest, predicted, {**pairs, first.id: task.id})
        for task in predicted
        if task.id not in pairs.values()
    )


def _same_task(gold: Task, predicted: Task, pairs: Mapping[int, int]) -> bool:
    if gold.task != predicted.task or {pairs[i] for i in dependencies(gold)} != dependencies(predicted):
        return False
    wanted = substitute(gold.args, lambda number: ref(pairs[number]))
    return all(same_argument(gold.task, name, v, predicted.args.get(name)) for name, v in wanted.items())


def dependencies(task: Task) -> set[int]:
    """Return the ids of the tasks that a task waits for or refers to."""
    return {*task.deps, *refs_in(task.args)}


def same_argument(task: str, name: str, gold: Any, predicted: Any) -> bool:
    """Whether an argument of a predicted task is what the gold plan has, by the rules of this module."""
    if predicted is None:
        return False
    arg = TASKS[task].arg(name) or Arg(name, "text")
    normalise: Callable[[Any], Any] = _words
    if arg.many:
        normalise = _labels
    elif refs_in(gold):
        normalise = _text
    elif arg.kind in MEDIA:
        normalise = _names
    elif arg.kind == "data":
        normalise = _numbers
    elif name in ("src_lang", "tgt_lang"):
        normalise = _language
    elif PurePath(_text(gold)).suffix and " " not in _text(gold):
        normalise = _text
    elif task not in _LITERAL_TEXT and name != "context":
        is_prompt = TASKS[task].outputs[0] in MEDIA
        return _contains(_words(gold), _words(predicted), _EXTRA_PROMPT_WORDS if is_prompt else _EXTRA_WORDS)
    return bool(normalise(gold) == normalise(predicted))


def _contains(gold: Sequence[str], predicted: Sequence[str], extra: int) -> bool:
    """Whether the gold words come in order, among at most `extra` others, or as many as the gold words."""
    rest = iter(predicted)
    in_order = all(word in rest for word in gold if word not in _ARTICLES)
    return in_order and len(predicted) <= len(gold) + max(len(gold), extra)


def _words(value: Any) -> list[str]:
    return _WORD.findall(_text(value).casefold())


def _names(value: Any) -> list[str]:
    return sorted(map(_text, _listed(value)))


def _labels(value: Any) -> list[str]:
    texts = (_text(label).casefold().strip(" .,;!?'\"") for label in _listed(value))
    bare = [re.sub(r"^(?:an?|the)\s+", "", text) for text in texts]
    return sorted(text if refs_in(text) else text.removesuffix("s") for text in bare)


def _numbers(value: Any) -> list[float]:
    return [float(one) for one in _NUMBER.findall(value if isinstance(value, str) else json.dumps(value))]


def _language(value: Any) -> str:
    known = find_language(_text(value))
    return known.code if known else _text(value).casefold()


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _text(value: Any) -> str:
    only = value[0] if isinstance(value, list | tuple) and len(value) == 1 else value
    return str(only).strip().removeprefix("./")
