"""Examples for training from hand-written ones: other files, words and languages, and two requests joined.

examples = read_examples(voices)             # hand-written
varied(example, examples_by_slot, rng)       # the same request with other names and words
repeated(example, examples_by_slot, rng)     # the same request for several files
joined(first, second, rng)                   # one request for both
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from notation import FILES, read_records

from jarvis_agent.core.references import ref, substitute
from jarvis_agent.core.types import Task
from jarvis_agent.evaluation.requests import OwnRequest, Turn, read_requests
from jarvis_agent.media.detect import kind_by_name
from jarvis_agent.planning.examples import CJK, load_examples

_LANGUAGES = {
    "French": "法语",
    "German": "德语",
    "Spanish": "西班牙语",
    "Italian": "意大利语",
    "Russian": "俄语",
    "Japanese": "日语",
    "Korean": "韩语",
    "Portuguese": "葡萄牙语",
    "Arabic": "阿拉伯语",
    "Thai": "泰语",
    "Dutch": "荷兰语",
    "Polish": "波兰语",
    "Turkish": "土耳其语",
    "Vietnamese": "越南语",
    "Greek": "希腊语",
    "Swedish": "瑞典语",
    "Hindi": "印地语",
    "Danish": "丹麦语",
    "Finnish": "芬兰语",
    "Czech": "捷克语",
}
_JOINTS = {
    "en": (
        "\n",
        " ",
        " and ",
        ", then ",
        ". Then ",
        ". Also, ",
        "; ",
        " and also ",
        ", and ",
        ". After that ",
        " + ",
    ),
    "zh": ("，", "。", "；", "，然后", "，再", "，另外", "。还有，", "\n", "，顺便", "，同时"),
}
_LONG = ("summarization", "translation", "text-to-speech", "text-classification", "token-classification")
"""Task types whose texts may be long."""
_SWAPPED = 0.3
"""How often a value is replaced."""


@dataclass(frozen=True)
class Example:
    """A request with its plan and the words that the plan leaves out."""

    asked: OwnRequest
    left: tuple[str, ...] = ()


def read_examples(voices: Iterable[Path]) -> list[Example]:
    """The hand-written records of some files."""
    return [
        Example(record.as_request("zh" if voice.stem.startswith("zh") else "en"), tuple(record.left_out))
        for voice in voices
        for record in read_records(voice)
    ]


def project_examples() -> list[Example]:
    """The project's own requests that a planner may be improved on, and the bank of examples for prompts."""
    bank = [
        OwnRequest(
            id=f"bank-{number}",
            kind="graph" if example.plan else "empty",
            language="zh" if CJK.search(example.input) else "en",
            request=example.input,
            files=[file.name for file in example.files],
            turns=[
                Turn(request=turn.request, answer=turn.answer, files=[file.name for file in turn.resources])
                for turn in example.chat
            ],
            plan=[Task.model_validate(task) for task in example.plan],
        )
        for number, example in enumerate(load_examples("bank"))
    ]
    return [Example(asked) for asked in (*read_requests("dev"), *bank)]


def voices() -> list[Path]:
    """The files that may be learned from: those set aside are in a folder of their own."""
    return sorted(FILES.glob("*.txt"))


Slots = Mapping[tuple[str, str, str], Sequence[str]]
"""Words that were copied, by language, task type and argument; and file names by "", "file" and kind."""


def slots_of(examples: Iterable[Example]) -> Slots:
    """The values of all examples."""
    slots: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for example in examples:
        for name in example.asked.files:
            slots["", "file", kind_by_name(name)].add(name)
        for task, name, value in _copied(example):
            slots[example.asked.language, task, name].add(value)
    return {key: sorted(values) for key, values in slots.items()}


def _copied(example: Example) -> Iterable[tuple[str, str, str]]:
    """Task type, argument and words of every value that stands in the request once."""
    for task in example.asked.plan:
        for name, value in task.args.items():
            for one in value if isinstance(value, list) else [value]:
                is_copied = isinstance(one, str) and example.asked.request.count(one) == 1
                if is_copied and name not in ("src_lang", "tgt_lang") and one not in example.asked.files:
                    yield task.task, name, one


def varied(example: Example, slots: Slots, rng: Random) -> Example:
    """The same request with other file names, and sometimes other words and another language."""
    swaps: dict[str, str] = {}
    if not example.asked.turns:
        for task, name, value in _copied(example):
            if len(value) > 1 and rng.random() < _SWAPPED:
                swaps[value] = rng.choice(slots[example.asked.language, task, name])
    for name in example.asked.files:
        if "://" not in name and rng.random() < 2 * _SWAPPED:
            swaps[name] = rng.choice(slots["", "file", kind_by_name(name)])
    targets = {task.args.get("tgt_lang") for task in example.asked.plan}
    for english, spellings in {**_LANGUAGES, "English": "英语", "Chinese": "中文"}.items():
        chinese = (spellings, spellings.replace("语", "文"))
        for said in dict.fromkeys((english, *chinese)):
            times = example.asked.request.count(said)
            if times and (english in _LANGUAGES or (english in targets and times == 1)):
                if rng.random() > 2 * _SWAPPED:
                    continue
                other = rng.choice(list(_LANGUAGES))
                suffix = rng.choice("语文")
                swaps[said] = other if said == english else _LANGUAGES[other].removesuffix("语") + suffix
                swaps[english] = other
    return _replaced(example, swaps) if swaps else example


def lengthened(example: Example, slots: Slots, rng: Random) -> Example:
    """The same request with a long text in place of one that its plan copies, if there is one."""
    language = example.asked.language
    for task, name, value in _copied(example) if not example.asked.turns else ():
        if name == "text" and task in _LONG and len(value) > 12:
            sentences = [text for one in _LONG for text in slots[language, one, "text"] if len(text) > 12]
            long = ("" if language == "zh" else " ").join(rng.choices(sentences, k=rng.randint(4, 40)))
            return _replaced(example, {value: long})
    return example


_LISTS = {
    "en": ((", ", " and "), (", ", ", "), (" ", " "), (" + ", " + ")),
    "zh": (("、", "和"), ("，", "，"), ("、", "、")),
}
"""What stands between the names of several files, and before the last one."""


def repeated(example: Example, slots: Slots, rng: Random) -> Example:
    """The same request for two to four files, if it names one, and every task works on it."""
    asked = example.asked
    name = asked.files[0] if len(asked.files) == 1 else ""
    is_on_it = all(task.deps or name in task.args.values() for task in asked.plan)
    if not name or asked.turns or not 1 <= len(asked.plan) <= 3 or not is_on_it:
        return example
    names = [name, *rng.sample(slots["", "file", kind_by_name(name)], rng.choice((1, 1, 1, 2, 2, 3)))]
    if asked.request.count(name) != 1 or len({*names}) < len(names):
        return example
    middle, last = rng.choice(_LISTS[asked.language])
    size = len(asked.plan)
    plan = [
        Task(
            task=task.task,
            id=task.id + number * size,
            dep=[dep + number * size for dep in task.deps] or [-1],
            args={
                key: file if value == name else substitute(value, lambda old, by=number * size: ref(old + by))
                for key, value in task.args.items()
            },
        )
        for number, file in enumerate(names)
        for task in asked.plan
    ]
    request = asked.request.replace(name, f"{middle.join(names[:-1])}{last}{names[-1]}")
    return Example(asked.model_copy(update={"request": request, "files": names, "plan": plan}), example.left)


def _replaced(example: Example, swaps: Mapping[str, str]) -> Example:
    """The example with other words for some, in the request, its files and its plan."""
    inside = (
        rf"(?<![A-Za-z0-9_]){re.escape(old)}(?![A-Za-z0-9_])" for old in sorted(swaps, key=len, reverse=True)
    )
    pattern = re.compile("|".join(inside))

    def change(value: Any) -> Any:
        if isinstance(value, str):
            return pattern.sub(lambda found: swaps[found[0]], value)
        return [change(one) for one in value] if isinstance(value, list) else value

    asked = example.asked
    files = change(asked.files)
    if len({*files}) < len(files):
        return example
    plan = [
        task.model_copy(update={"args": {k: change(v) for k, v in task.args.items()}}) for task in asked.plan
    ]
    update = {"request": change(asked.request), "files": files, "plan": plan}
    turns = [
        turn.model_copy(update={"request": change(turn.request), "files": change(turn.files)})
        for turn in asked.turns
    ]
    return Example(asked.model_copy(update={**update, "turns": turns}), tuple(map(change, example.left)))


def joined(first: Example, second: Example, rng: Random) -> Example | None:
    """One request for both; None if it would be no such thing: in chats, or with equal file names."""
    one, other = first.asked, second.asked
    if other.turns or one.language != other.language or {*one.files} & {*other.files} or not one.plan:
        return None
    shift = len(one.plan)
    moved = [
        Task(
            task=task.task,
            id=task.id + shift,
            dep=[dep + shift for dep in task.deps] or [-1],
            args=substitute(task.args, lambda number: ref(number + shift)),
        )
        for task in other.plan
    ]
    joint = rng.choice(_JOINTS[one.language])
    start = one.request if joint == "\n" else one.request.rstrip(" .!。！")
    update = {
        "request": start + joint + other.request,
        "files": [*one.files, *other.files],
        "plan": [*one.plan, *moved],
    }
    return Example(one.model_copy(update=update), (*first.left, *second.left))
