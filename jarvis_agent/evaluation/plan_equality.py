"""Whether two plans are the same: tasks, links, and the arguments that matter.

    same_plan(gold, said)      # whatever their ids and the order of what does not depend on each other

The gold plan holds what must be there; arguments that it does not have are free. How near an argument must
come depends on what it is:

files, references      the same
languages              the same language, by name or code
numbers                the same
labels, sentences      the same ones in any order; articles and a plural s do not count
texts that are the matter itself (to be translated, spoken, …)    the same words
questions, prompts     the gold words but for articles, in their order, among not too many others
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from jarvis_agent.core.references import ref, refs_in, substitute
from jarvis_agent.core.languages import find_language
from jarvis_agent.core.tasks.spec import MEDIA, Arg
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Task

WORD_FOR_WORD = frozenset(
    {
        "text-classification",
        "token-classification",
        "fill-mask",
        "zero-shot-classification",
        "translation",
        "summarization",
        "feature-extraction",
        "sentence-similarity",
        "text-to-speech",
    }
)
"""The tasks whose text is what they work on, and no instruction."""

_LANGUAGES = ("src_lang", "tgt_lang")
_MORE_WORDS, _MORE_WORDS_DRAWN = 16, 8
"""So many words may always stand beside the gold ones, or as many as those: more in a question than in a
prompt, as what is drawn would show them."""

_HAN = "\u3400-\u9fff"
_WORD = re.compile(rf"[{_HAN}]|[^\W_{_HAN}]+")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_ARTICLES = ("a", "an", "the")
_LEADING_ARTICLE = re.compile(r"^(?:an?|the)\s+")


def same_plan(gold: Sequence[Task], said: Sequence[Task]) -> bool:
    """Whether the tasks can be paired so that names, links and arguments agree."""
    return len(gold) == len(said) and _paired(gold, said, {})


def _paired(gold: Sequence[Task], said: Sequence[Task], pairs: Mapping[int, int]) -> bool:
    """Whether the rest of the gold tasks can be paired too; `pairs` are ids, gold to said."""
    if not gold:
        return True
    free = (task for task in said if task.id not in pairs.values())
    return any(
        _is_same(gold[0], task, pairs) and _paired(gold[1:], said, {**pairs, gold[0].id: task.id})
        for task in free
    )


def _is_same(gold: Task, said: Task, pairs: Mapping[int, int]) -> bool:
    needed = {pairs[needs] for needs in needs_of(gold)}
    if gold.task != said.task or needed != needs_of(said):
        return False
    wanted = substitute(gold.args, lambda number: ref(pairs[number]))
    return all(fits(gold.task, name, value, said.args.get(name)) for name, value in wanted.items())


def needs_of(task: Task) -> set[int]:
    """The ids of the tasks that it waits for or takes something from."""
    return {*task.deps, *refs_in(task.args)}


def fits(task: str, name: str, gold: Any, said: Any) -> bool:
    """Whether what a plan says for an argument of a task is what the gold plan says."""
    if said is None:
        return False
    arg = TASKS[task].arg(name) or Arg(name, "text")
    if arg.many:
        return sorted(map(_bare, _listed(gold))) == sorted(map(_bare, _listed(said)))
    if refs_in(gold):
        return _text(gold) == _text(said)
    if arg.kind in MEDIA:
        return _is_file(_listed(gold), _listed(said))
    if arg.kind == "data":
        return _numbers(gold) == _numbers(said)
    if name in _LANGUAGES:
        return _language(gold) == _language(said)
    if PurePath(_text(gold)).suffix and " " not in _text(gold):
        return _text(gold) == _text(said)
    if task in WORD_FOR_WORD or name == "context":
        return _words(gold) == _words(said)
    is_drawn = TASKS[task].outputs[0] in MEDIA
    return _says(_words(gold), _words(said), _MORE_WORDS_DRAWN if is_drawn else _MORE_WORDS)


def _says(gold: Sequence[str], said: Sequence[str], more: int) -> bool:
    rest = iter(said)
    is_held = all(word in rest for word in gold if word not in _ARTICLES)
    return is_held and len(said) <= len(gold) + max(len(gold), more)


def _is_file(gold: Sequence[Any], said: Sequence[Any]) -> bool:
    return sorted(map(_text, gold)) == sorted(map(_text, said))


def _words(value: Any) -> list[str]:
    return _WORD.findall(_text(value).casefold())


def _bare(label: Any) -> str:
    text = _LEADING_ARTICLE.sub("", _text(label).casefold().strip(" .,;!?'\""))
    return text if refs_in(text) else text.removesuffix("s")


def _numbers(value: Any) -> list[float]:
    written = value if isinstance(value, str) else json.dumps(value)
    return [float(number) for number in _NUMBER.findall(written)]


def _language(value: Any) -> str:
    known = find_language(_text(value))
    return known.code if known else _text(value).casefold()


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _text(value: Any) -> str:
    only = value[0] if isinstance(value, list | tuple) and len(value) == 1 else value
    return str(only).strip().removeprefix("./")
